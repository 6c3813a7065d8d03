"""Rows decoding together: groups of rows, each with its own caches; who joins and leaves, and how."""

from collections.abc import Callable, Iterable, Iterator, Set
from typing import Any, Final, NamedTuple

import mlx.core as mx

from engine.cache.base import CacheKind
from engine.cache.columns import capacity_for
from engine.cache.layout import Layout
from engine.cache.registry import kinds_of
from engine.grouping import Room, StepCost
from engine.model.adapters import Adapter
from engine.row import Row
from engine.sampling.sampler import SamplingPlan, plan_sampling
from engine.sampling.split import SplitPlan, plan_split

# A forward that is launched is done when the step after it is read.
_LINGERING_STEPS: Final = 2
_ENDLESS_TOKENS: Final = 1 << 40
_ENDLESS_BYTES: Final = 1 << 60


class Charge(NamedTuple):
    """What caches take at a coming step: all of them, and the largest layer, which may exist twice for the while."""

    size_bytes: int
    layer_bytes: int


class _Charged(NamedTuple):
    """A charge, and for which widths after a step it is true. Of caches that are gone it would keep nothing alive."""

    widths: range
    charge: Charge


class Group:
    """Rows that share each forward, and so have the same adapter. Order of rows = order on the batch axis.

    register: what the rows forward next, [B] uint32: the last sampled tokens, in general not read yet,
    or the last tokens of their prompts. One row has solo caches; two or more have batched ones.
    plan: how they sample; split: instead, while some of them follow grammars; ahead: then the part of the register
    that is those rows', [C] in batch order, where it can be read before the rest.
    """

    __slots__ = ("_caches", "_charged", "ahead", "kinds", "layout", "plan", "register", "rows", "split")

    def __init__(self, kinds: list[CacheKind] | None) -> None:
        self.kinds = kinds
        self.rows: list[Row] = []
        self._charged: _Charged | None = None
        self.caches = []
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
    def caches(self) -> list[Any]:
        """One a layer."""
        return self._caches

    @caches.setter
    def caches(self, caches: list[Any]) -> None:
        self._caches = caches
        self._charged = None

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
        kinds = self._own_kinds
        if kinds is None:
            return [cache.nbytes for cache in self.caches]
        return [kind.row_bytes(cache, columns) for kind, cache in zip(kinds, self.caches, strict=True)]

    def charge(self, tokens: int = 1) -> Charge:
        """What its caches take once a forward has written so many tokens more; looked at when they change or grow."""
        width = self.layout.width + tokens
        charged = self._charged
        if charged is None or width not in charged.widths:
            charged = self._charged = self._charged_for(tokens)
        return charged.charge

    def _charged_for(self, tokens: int) -> _Charged:
        kinds = self._own_kinds
        after = range(self.layout.width + tokens, self.layout.width + tokens + 1)
        if kinds is None:
            sizes = [cache.nbytes for cache in self.caches]
            return _Charged(after, Charge(sum(sizes), max(sizes, default=0)))
        pairs = list(zip(kinds, self.caches, strict=True))
        sizes = [max(cache.nbytes, kind.next_bytes(cache, tokens)) for kind, cache in pairs]
        rooms = [room for kind, cache in pairs if (room := kind.room_tokens(cache)) is not None]
        room = min(rooms, default=_ENDLESS_TOKENS)
        if tokens <= room:
            after = range(self.layout.width + 1, self.layout.width + room + 1)
        return _Charged(after, Charge(sum(sizes), max(sizes, default=0)))

    @property
    def _own_kinds(self) -> list[CacheKind] | None:
        """Alone a row may have quantized what its batch would not."""
        return self.kinds if len(self.rows) > 1 else kinds_of(self.caches)

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
    """Every decoding row, in groups. kinds: each layer's cache kind, None when rows cannot share a group.

    most_bytes: what all of their caches may take, the largest layer twice.
    """

    def __init__(
        self, kinds: list[CacheKind] | None, weights_bytes: int, most_bytes: Callable[[], int] = lambda: _ENDLESS_BYTES
    ) -> None:
        self._kinds = kinds
        self._weights_bytes = weights_bytes
        self._most_bytes = most_bytes
        self.groups: list[Group] = []
        self._lingering_bytes = 0
        self._lingering_steps = 0

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
        """What the caches of all rows may take in the coming step, the largest layer twice."""
        charges = [group.charge() for group in self.groups]
        return sum(each.size_bytes for each in charges) + max((each.layer_bytes for each in charges), default=0)

    @property
    def lingering_bytes(self) -> int:
        """What they took before rows moved last: freed when the caches that are made of it are computed."""
        return self._lingering_bytes if self.groups else 0

    def linger(self, ended: Set[Row] = frozenset(), joiners: Iterable[Group] = ()) -> None:
        """Before rows move: what is there now stays until the step after the next one is launched.

        ended: rows that leave; a group of such alone leaves nothing that others are made of.
        """
        moving = [group for group in self.groups if any(row not in ended for row in group.rows)]
        joining_bytes = sum(joiner.allocated_bytes for joiner in joiners)
        moving_bytes = sum(group.allocated_bytes for group in moving)
        before_bytes = max(self._lingering_bytes, moving_bytes) if moving else 0
        self._lingering_bytes = before_bytes + joining_bytes
        self._lingering_steps = _LINGERING_STEPS

    def step_done(self) -> None:
        """A step was launched and the one before it read."""
        self._lingering_steps -= 1
        if self._lingering_steps <= 0:
            self.settled()

    def settled(self) -> None:
        """Nothing is left of what was there before rows moved."""
        self._lingering_bytes = 0

    def join(self, joiners: list[Group]) -> None:
        """Takes prefilled rows in: each where it adds least, or all anew where the cost rule says so."""
        self.linger(joiners=joiners)
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
        return self._arranged([[row for group in home for row in group.rows] for home in homes], parts, cost)

    def rearrange(self) -> None:
        """Once rows have left: those that are left come together where that costs less."""
        if len(self.groups) > 1:
            self.linger()
            alike = _by_adapter(self.groups)
            self.groups = [group for parts in alike for group in self._joined(parts, set())]

    def tighten(self) -> bool:
        """Where groups take more than they may: rows of like length get groups of their own. Whether any has moved."""
        before = self.groups
        after: list[Group] = []
        for parts in _by_adapter(before):
            rows = [row for group in parts for row in group.rows]
            if len(rows) == 1 or parts[0].kinds is None:
                after += parts
                continue
            homes = [group.rows for group in parts]
            after += self._arranged(homes, parts, self._step_cost(parts[0]), is_kept=True)
        self.groups = after
        return set(after) != set(before)

    def _arranged(
        self, homes: list[list[Row]], parts: list[Group], cost: StepCost, *, is_kept: bool = False
    ) -> list[Group]:
        """Rows of `parts` into `homes`, or into the best partition when that is enough cheaper, or when bytes run out.

        is_kept: not for the sake of cost.
        """
        lengths = {row: length for part in parts for row, length in zip(part.rows, part.lengths, strict=True)}
        rows = list(lengths)
        widths = list(lengths.values())

        def of(partition: list[list[int]]) -> list[list[Row]]:
            return [[rows[index] for index in sorted(indices)] for indices in partition]

        def lengths_of(groups: list[list[Row]]) -> list[list[int]]:
            return [[lengths[row] for row in group] for group in groups]

        if not is_kept:
            better = of(cost.best(widths))
            homes = better if cost.is_worth(lengths_of(better), lengths_of(homes)) else homes
        taken = Room(lambda width: parts[0].layer_bytes(capacity_for(width + 1)))
        most_bytes = self._most_bytes() - sum(group.charge().size_bytes for group in self.groups if group not in parts)
        if taken.of(lengths_of(homes)) > most_bytes:
            tighter = of(cost.best_within(widths, taken, most_bytes))
            homes = tighter if taken.of(lengths_of(tighter)) < taken.of(lengths_of(homes)) else homes
        return [_gathered(set(home), parts) for home in homes]

    def _step_cost(self, sample: Group) -> StepCost:
        return StepCost(self._weights_bytes, lambda width: sum(sample.layer_bytes(width)))


def _by_adapter(groups: list[Group]) -> list[list[Group]]:
    """Groups whose rows may share a forward, together."""
    alike: dict[Adapter | None, list[Group]] = {}
    for group in groups:
        alike.setdefault(group.adapter, []).append(group)
    return list(alike.values())


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
