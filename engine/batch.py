"""Rows decoding together: groups of rows, each with its own caches; who joins and leaves, and how."""

from collections.abc import Iterable, Iterator
from typing import Any

import mlx.core as mx

from engine.cache.base import CacheKind
from engine.cache.layout import Layout
from engine.row import Row
from engine.sampling.sampler import SamplingPlan, plan_sampling


class Group:
    """Rows that share each forward. Order of rows = order on the batch axis.

    register: what the rows forward next, [B] uint32: the last sampled tokens, in general not read yet,
    or the last tokens of their prompts. One row has solo caches; two or more have batched ones.
    """

    __slots__ = ("caches", "kinds", "layout", "plan", "register", "rows")

    def __init__(self, kinds: list[CacheKind] | None) -> None:
        self.kinds = kinds
        self.rows: list[Row] = []
        self.caches: list[Any] = []
        self.layout = Layout([], 0)
        self.register: mx.array = mx.zeros((0,), mx.uint32)
        self.plan: SamplingPlan = plan_sampling([])

    @classmethod
    def of_one(cls, kinds: list[CacheKind] | None, row: Row, token: int) -> "Group":
        """A prefilled row, which hands over its caches. token: what it forwards next."""
        assert row.caches is not None, "a row joins once, after its prefill"
        group = cls(kinds)
        group.caches, row.caches = row.caches, None
        group.layout = Layout([0], row.prefilled)
        group._seat([row], mx.array([token], dtype=mx.uint32))
        return group

    @classmethod
    def of_prompts(cls, kinds: list[CacheKind], rows: list[Row]) -> "Group":
        """Rows with blank batched caches, left-padded for their whole prompts but the last token of each."""
        group = cls(kinds)
        lengths = [len(row.to_prefill) - 1 for row in rows]
        group.layout = Layout([max(lengths) - length for length in lengths], 0)
        group.caches = [kind.blank(group.layout) for kind in kinds]
        group._seat(rows, mx.array([row.to_prefill[-1] for row in rows], dtype=mx.uint32))
        return group

    @property
    def allocated_bytes(self) -> int:
        """Bytes of all layers' caches."""
        return sum(cache.nbytes for cache in self.caches)

    def fork(self, families: list[list[Row]]) -> None:
        """Each row, in order, becomes a family of rows that go on from its caches; its own comes first."""
        if all(len(family) == 1 for family in families):
            return
        assert self.kinds is not None, "rows of a model that cannot batch never share a group"
        sources = [index for index, family in enumerate(families) for _ in family]
        layout = Layout([self.layout.pads[index] for index in sources], self.layout.width)
        if len(self.rows) == 1:
            self.caches = [
                kind.stack([cache] * len(sources), layout) for kind, cache in zip(self.kinds, self.caches, strict=True)
            ]
        else:
            self.caches = [
                kind.keep(cache, sources, layout) for kind, cache in zip(self.kinds, self.caches, strict=True)
            ]
        self.layout = layout
        self._seat([row for family in families for row in family], self.register[mx.array(sources, dtype=mx.uint32)])

    def join(self, others: list["Group"]) -> None:
        """Takes in the rows of these groups, in order. Empty, it adopts the caches of a single one as they are."""
        parts = [group for group in (self, *others) if group.rows]
        if len(parts) == 1:
            self.caches, self.layout = parts[0].caches, parts[0].layout
        else:
            self._stack(parts)
        register = mx.concatenate([group.register for group in parts])
        self._seat([row for group in parts for row in group.rows], register)

    def leave(self, leavers: Iterable[Row]) -> None:
        """Drops rows; the last one left goes back to solo caches."""
        gone = set(leavers)
        keep = [index for index, row in enumerate(self.rows) if row not in gone]
        if len(keep) == len(self.rows):
            return
        if keep:
            self._keep(keep)
        else:
            self.caches = []
        register = self.register[mx.array(keep, dtype=mx.uint32)] if keep else mx.zeros((0,), mx.uint32)
        self._seat([self.rows[index] for index in keep], register)

    def _seat(self, rows: list[Row], register: mx.array) -> None:
        self.rows = rows
        self.register = register
        self.plan = plan_sampling(rows)

    def _stack(self, parts: list["Group"]) -> None:
        """Layer by layer, so that the most that exists twice is one layer."""
        assert self.kinds is not None, "rows of a model that cannot batch never share a group"
        layout = Layout.side_by_side([group.layout for group in parts])
        caches = [group.caches for group in parts]
        self.caches = [kind.stack([each[layer] for each in caches], layout) for layer, kind in enumerate(self.kinds)]
        self.layout = layout

    def _keep(self, keep: list[int]) -> None:
        assert self.kinds is not None
        if len(keep) == 1:
            self.caches = [kind.alone(cache, keep[0]) for kind, cache in zip(self.kinds, self.caches, strict=True)]
            self.layout = Layout([0], self.layout.width - self.layout.pads[keep[0]])
            return
        kept = self.layout.kept(keep)
        self.caches = [kind.keep(cache, keep, kept) for kind, cache in zip(self.kinds, self.caches, strict=True)]
        self.layout = kept


class Batch:
    """Every decoding row, in groups. kinds: each layer's cache kind, None when rows cannot share a group."""

    def __init__(self, kinds: list[CacheKind] | None) -> None:
        self._kinds = kinds
        self.groups: list[Group] = []

    def __len__(self) -> int:
        return sum(len(group.rows) for group in self.groups)

    def __iter__(self) -> Iterator[Row]:
        return (row for group in self.groups for row in group.rows)

    @property
    def allocated_bytes(self) -> int:
        """Bytes of the caches of all groups."""
        return sum(group.allocated_bytes for group in self.groups)

    def join(self, joiners: list[Group]) -> None:
        """Takes prefilled rows into the one group there is; a split by length comes with its cost rule."""
        if not self.groups:
            self.groups.append(Group(self._kinds))
        self.groups[0].join(joiners)

    def leave(self, leavers: Iterable[Row]) -> None:
        """Drops rows wherever they are, and groups that become empty."""
        gone = list(leavers)
        for group in self.groups:
            group.leave(gone)
        self.groups = [group for group in self.groups if group.rows]
