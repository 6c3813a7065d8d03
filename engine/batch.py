"""Rows decoding together: groups of rows, each with its own caches; who joins and leaves, and how."""

from collections.abc import Iterable, Iterator
from typing import Any

import mlx.core as mx

from engine.cache.base import CacheKind
from engine.cache.columns import capacity_for
from engine.cache.layout import Layout
from engine.cache.registry import kinds_of
from engine.grouping import StepCost
from engine.model.adapters import Adapter
from engine.row import Row
from engine.sampling.sampler import SamplingPlan, plan_sampling
from engine.sampling.split import SplitPlan, plan_split


class Group:
    """Rows that share each forward, and so have the same adapter. Order of rows = order on the batch axis.

    register: what the rows forward next, [B] uint32: the last sampled tokens, in general not read yet,
    or the last tokens of their prompts. One row has solo caches; two or more have batched ones.
    plan: how they sample; split: instead, while some of them follow grammars; ahead: then the part of the register
    that is those rows', [C] in batch order, where it can be read before the rest.
    """

    __slots__ = ("ahead", "caches", "kinds", "layout", "plan", "register", "rows", "split")

    def __init__(self, kinds: list[CacheKind] | None) -> None:
        self.kinds = kinds
        self.rows: list[Row] = []
        self.caches: list[Any] = []
        self.layout = Layout([], 0)
        self.register: mx.array = mx.zeros((0,), mx.uint32)
        self.ahead: mx.array | None = None
        self.plan: SamplingPlan = plan_sampling([])
        self.split: SplitPlan | None = None

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
    def adapter(self) -> Adapter | None:
        """Of all its rows, of which there is at least one."""
        return self.rows[0].adapter

    @property
    def allocated_bytes(self) -> int:
        """Bytes of all layers' caches."""
        return sum(cache.nbytes for cache in self.caches)

    @property
    def lengths(self) -> list[int]:
        """Each row's tokens in the caches."""
        return [self.layout.width - pad for pad in self.layout.pads]

    def layer_bytes(self, columns: int) -> list[int]:
        """What one row takes of each layer's cache when its group is so many columns wide."""
        # Alone a row may have quantized what its batch would not.
        kinds = self.kinds if len(self.rows) > 1 else kinds_of(self.caches)
        if kinds is None:
            return [cache.nbytes for cache in self.caches]
        return [kind.row_bytes(cache, columns) for kind, cache in zip(kinds, self.caches, strict=True)]

    def fork(self, families: list[list[Row]]) -> None:
        """Each row, in order, becomes a family of rows that go on from its caches; its own comes first."""
        if all(len(family) == 1 for family in families):
            return
        assert self.kinds is not None, "rows of a model that cannot batch never share a group"
        sources = [index for index, family in enumerate(families) for _ in family]
        layout = self.layout.kept(sources)
        rows = mx.array(sources, dtype=mx.uint32)
        if len(self.rows) == 1:
            self.caches = [
                kind.stack([cache] * len(sources), layout) for kind, cache in zip(self.kinds, self.caches, strict=True)
            ]
        else:
            self.caches = [kind.keep(cache, rows, layout) for kind, cache in zip(self.kinds, self.caches, strict=True)]
        self.layout = layout
        self._seat([row for family in families for row in family], self.register[rows])

    @classmethod
    def of_parts(cls, parts: list["Group"]) -> "Group":
        """The rows of these groups, in order, on copies of their caches: a fault leaves the parts as they are."""
        group = cls(parts[0].kinds)
        group._stack(parts)
        register = mx.concatenate([part.register for part in parts])
        group._seat([row for part in parts for row in part.rows], register)
        return group

    def part(self, rows: set[Row]) -> "Group":
        """These of its rows as a group of their own; the group itself when they are all of them."""
        part = Group(self.kinds)
        part.caches, part.layout = self.caches, self.layout
        part.rows, part.register = self.rows, self.register
        part.leave(row for row in self.rows if row not in rows)
        return self if len(part.rows) == len(self.rows) else part

    def leave(self, leavers: Iterable[Row]) -> None:
        """Drops rows; the last one left goes back to solo caches."""
        gone = set(leavers)
        keep = [index for index, row in enumerate(self.rows) if row not in gone]
        if len(keep) == len(self.rows):
            return
        if not keep:
            # Of no further use, and without a call that could fail: a group may end here because one has.
            self.rows, self.caches = [], []
            return
        self._keep(keep)
        register = self.register[mx.array(keep, dtype=mx.uint32)]
        self._seat([self.rows[index] for index in keep], register)

    def go_on_from(self, tokens: list[int]) -> None:
        """What the rows forward next, where it is not what they have sampled: their windows are made anew."""
        self._seat(self.rows, mx.array(tokens, dtype=mx.uint32))

    def _seat(self, rows: list[Row], register: mx.array) -> None:
        self.rows = rows
        self.register = register
        self.ahead = None
        self.plan = plan_sampling(rows)
        self.split = plan_split(rows)

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
        rows = mx.array(keep, dtype=mx.uint32)
        self.caches = [kind.keep(cache, rows, kept) for kind, cache in zip(self.kinds, self.caches, strict=True)]
        self.layout = kept


class Batch:
    """Every decoding row, in groups. kinds: each layer's cache kind, None when rows cannot share a group."""

    def __init__(self, kinds: list[CacheKind] | None, weights_bytes: int) -> None:
        self._kinds = kinds
        self._weights_bytes = weights_bytes
        self.groups: list[Group] = []

    def __len__(self) -> int:
        return sum(len(group.rows) for group in self.groups)

    def __iter__(self) -> Iterator[Row]:
        return (row for group in self.groups for row in group.rows)

    @property
    def allocated_bytes(self) -> int:
        """Bytes of the caches of all groups."""
        return sum(group.allocated_bytes for group in self.groups)

    @property
    def ledger_bytes(self) -> int:
        """What the caches of all rows may take: rows x group width, and one layer twice while rows join."""
        charged = 0
        widest_layer = 0
        for group in self.groups:
            projected = group.layer_bytes(capacity_for(group.layout.width + 1))
            # Alone a row may hold more than its share: what a chunk has left, or mlx-lm's own growth.
            layers = [
                max(len(group.rows) * row_bytes, cache.nbytes)
                for row_bytes, cache in zip(projected, group.caches, strict=True)
            ]
            charged += sum(layers)
            widest_layer = max(widest_layer, *layers)
        return charged + widest_layer

    def join(self, joiners: list[Group]) -> None:
        """Takes prefilled rows in: each where it adds least, or all anew where the cost rule says so."""
        alike = _by_adapter([*self.groups, *joiners])
        self.groups = [group for parts in alike for group in self._joined(parts, set(joiners))]

    def _joined(self, parts: list[Group], joiners: set[Group]) -> list[Group]:
        """parts: groups and joiners that may share a forward."""
        if len(parts) < 2:
            return parts
        cost = self._step_cost(parts[0])
        homes: list[list[Group]] = [[part] for part in parts if part not in joiners]
        for joiner in parts:
            if joiner in joiners:
                _place(joiner, homes, cost)
        return _arranged([[row for group in home for row in group.rows] for home in homes], parts, cost)

    def rearrange(self) -> None:
        """Once rows have left: those that are left come together where that costs less."""
        if len(self.groups) > 1:
            alike = _by_adapter(self.groups)
            self.groups = [group for parts in alike for group in self._joined(parts, set())]

    def _step_cost(self, sample: Group) -> StepCost:
        return StepCost(self._weights_bytes, lambda width: sum(sample.layer_bytes(width)))


def _by_adapter(groups: list[Group]) -> list[list[Group]]:
    """Groups whose rows may share a forward, together."""
    alike: dict[Adapter | None, list[Group]] = {}
    for group in groups:
        alike.setdefault(group.adapter, []).append(group)
    return list(alike.values())


def _arranged(homes: list[list[Row]], parts: list[Group], cost: StepCost) -> list[Group]:
    """Rows of `parts` into `homes`, or into the best partition when that is enough cheaper."""
    lengths = {row: length for part in parts for row, length in zip(part.rows, part.lengths, strict=True)}
    rows = list(lengths)
    best = cost.best(list(lengths.values()))
    better = [[rows[index] for index in sorted(indices)] for indices in best]
    if cost.is_worth(
        [[lengths[row] for row in home] for home in better], [[lengths[row] for row in home] for home in homes]
    ):
        homes = better
    return [_gathered(set(home), parts) for home in homes]


def _place(joiner: Group, homes: list[list[Group]], cost: StepCost) -> None:
    """Puts the joiner into the home where a step then costs least, or into a new one."""

    def added_bytes(home: list[Group]) -> int:
        lengths = [length for group in home for length in group.lengths]
        return cost.of([lengths + joiner.lengths]) - cost.of([lengths])

    home = min([*homes, []], key=added_bytes)
    if not home:
        homes.append(home)
    home.append(joiner)


def _gathered(rows: set[Row], parts: list[Group]) -> Group:
    """One group of these rows, from wherever they stand."""
    pieces = [part.part(rows) for part in parts if not rows.isdisjoint(part.rows)]
    return Group.of_parts(pieces) if len(pieces) > 1 else pieces[0]
