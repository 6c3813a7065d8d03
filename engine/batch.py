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

    register: the rows' last sampled tokens, [B] uint32, in general not read yet. One row keeps solo
    caches and has no layout; two or more have batched caches in one layout.
    """

    __slots__ = ("caches", "kinds", "layout", "plan", "register", "rows")

    def __init__(self, kinds: list[CacheKind] | None) -> None:
        self.kinds = kinds
        self.rows: list[Row] = []
        self.caches: list[Any] = []
        self.layout: Layout | None = None
        self.register: mx.array = mx.zeros((0,), mx.uint32)
        self.plan: SamplingPlan = plan_sampling([])

    @property
    def allocated_bytes(self) -> int:
        """Bytes of all layers' caches."""
        return sum(cache.nbytes for cache in self.caches)

    def join(self, joiners: list[Row], tokens: list[int]) -> None:
        """Takes prefilled rows in, with the token each has just sampled (already read)."""
        caches = [_handed_over(row) for row in joiners]
        if not self.rows and len(joiners) == 1:
            self.caches = caches[0]
        else:
            self._stack(caches)
        self.register = mx.concatenate([self.register, mx.array(tokens, dtype=mx.uint32)])
        self.rows = self.rows + joiners
        self.plan = plan_sampling(self.rows)

    def leave(self, leavers: Iterable[Row]) -> None:
        """Drops rows; the last one left goes back to solo caches."""
        gone = set(leavers)
        keep = [index for index, row in enumerate(self.rows) if row not in gone]
        if len(keep) == len(self.rows):
            return
        if self.layout is not None and keep:
            self._keep(keep, self.layout)
        elif not keep:
            self.caches, self.layout = [], None
        self.register = self.register[mx.array(keep, dtype=mx.uint32)] if keep else mx.zeros((0,), mx.uint32)
        self.rows = [self.rows[index] for index in keep]
        self.plan = plan_sampling(self.rows)

    def _stack(self, joining: list[list[Any]]) -> None:
        """Layer by layer, so that the most that exists twice is one layer."""
        assert self.kinds is not None, "rows of a model that cannot batch never share a group"
        lengths = [caches[0].size() for caches in joining]
        if self.layout is not None:
            layout = self.layout.joined(lengths)
        else:
            lone = [self.caches[0].size()] if self.rows else []
            layout = Layout([], 0).joined(lone + lengths)
        running = [self.caches] if self.rows else []
        parts = running + joining
        self.caches = [kind.stack([caches[layer] for caches in parts], layout) for layer, kind in enumerate(self.kinds)]
        self.layout = layout

    def _keep(self, keep: list[int], layout: Layout) -> None:
        assert self.kinds is not None
        if len(keep) == 1:
            self.caches = [kind.alone(cache, keep[0]) for kind, cache in zip(self.kinds, self.caches, strict=True)]
            self.layout = None
            return
        kept = layout.kept(keep)
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

    def join(self, joiners: list[Row], tokens: list[int]) -> None:
        """Takes prefilled rows into the one group there is; a split by length comes with its cost rule."""
        if not joiners:
            return
        if not self.groups:
            self.groups.append(Group(self._kinds))
        self.groups[0].join(joiners, tokens)

    def leave(self, leavers: Iterable[Row]) -> None:
        """Drops rows wherever they are, and groups that become empty."""
        gone = list(leavers)
        for group in self.groups:
            group.leave(gone)
        self.groups = [group for group in self.groups if group.rows]

    def drop(self, group: Group) -> None:
        """Forgets a group whose caches can no longer be trusted."""
        self.groups.remove(group)


def _handed_over(row: Row) -> list[Any]:
    assert row.caches is not None, "a row joins once, after its prefill"
    caches, row.caches = row.caches, None
    return caches
