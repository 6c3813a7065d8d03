"""What rows leave to those that come after them, and what they find: between rows and the store.

Owns when a prefix is kept and which one is taken; what is given up for room is the store's.
"""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

import msgspec

from engine import prefill
from engine.batch import Group
from engine.parts import LoopParts
from engine.prefix.holding import Holding, shortest
from engine.prefix.store import Entry, PrefixStore, Scope
from engine.prefix.trie import TOKEN_BYTES, shared_bytes
from engine.row import Row
from protocol.codec import pack_ids
from protocol.status import PrefixStatus

# However many a client asks for, so many snapshots of one prompt are kept: the longest ones.
MOST_SNAPSHOTS: Final = 8
# A chunk, however short, costs about a quarter of a whole one: shorter prefixes are neither kept nor taken.
_LEAST_SHARE: Final = 4


@dataclass(slots=True, eq=False)
class PrefixTally:
    """Since the start; see protocol.status.PrefixStatus."""

    misses: int = 0
    queried_tokens: int = 0
    hit_tokens: int = 0
    exact: int = 0
    snapshot: int = 0
    cut: int = 0
    live: int = 0
    unasked: int = 0


class _Found(NamedTuple):
    """The prefix that a row begins with. entry None: it is of a row that lives."""

    holding: Holding
    length: int
    entry: Entry | None = None


class PrefixKeeper:
    """One per loop. `begin` before a row's first chunk, `chunk_done` after each, `leave` before ended rows go."""

    def __init__(self, parts: LoopParts) -> None:
        kinds = parts.cache_plan.kinds(parts.model)
        self._store = PrefixStore(parts.prefix_limits)
        self._adapters = parts.adapters
        self._start_tokens = parts.cache_plan.start_tokens
        self._least_tokens = max(1, parts.chunk_tokens // _LEAST_SHARE)
        self._has_snapshots = kinds is not None and shortest(kinds, parts.facts.context_length) > 1
        self._tally = PrefixTally()
        # Stored since the device was last known to be well.
        self._unproven: list[Entry] = []

    def status(self) -> PrefixStatus:
        """For the engine's status."""
        tally = self._tally
        hits = tally.exact + tally.snapshot + tally.cut + tally.live
        return msgspec.structs.replace(self._store.status(), hits=hits, **asdict(tally))

    # --- before and while a prompt is computed --------------------------------------------------

    def begin(self, row: Row, groups: Iterable[Group]) -> None:
        """A row that computes nothing yet takes over the longest prefix there is. groups: of rows that live."""
        if self._store.is_off:
            return
        if row.wants_prompt_logprobs:
            self._tally.unasked += 1
            return
        if self._has_snapshots:
            row.snapshots = self._snapshots_of(row)
        found = self._found(row, groups)
        self._tally.queried_tokens += len(row.to_prefill)
        if found is None:
            self._tally.misses += 1
            return
        self._count(found, len(row.to_prefill) - 1)
        row.caches = []
        for cache in found.holding.prefix(found.length):
            row.caches.append(cache)
            if found.entry is None:
                # The next step writes into what this copies.
                prefill.wait_for_chunk([cache])
        row.donor = found.entry
        row.prefilled = found.length
        row.cached_tokens = min(found.length, row.prompt_tokens)

    def next_stop(self, row: Row) -> int | None:
        """Where the row's chunk must end, so that its caches can be kept as they are then."""
        return next((length for length in row.snapshots if length > row.prefilled), None)

    def chunk_done(self, row: Row) -> None:
        """Keeps a copy of the row's caches, if they now hold a prefix that is worth keeping."""
        if row.prefilled in row.snapshots and row.caches is not None:
            self._keep(row, Holding.of_solo(row.caches, row.prefilled))

    def _snapshots_of(self, row: Row) -> list[int]:
        """Those that were asked for, and all that is forwarded before the last token."""
        stop = len(row.to_prefill) - 1
        asked = sorted({length for length in row.submit.snapshot_at if self._least_tokens <= length < stop})
        return [*asked[-MOST_SNAPSHOTS:], stop]

    def _found(self, row: Row, groups: Iterable[Group]) -> _Found | None:
        """In the store, or in a row that lives and has more of it."""
        most, tokens = len(row.to_prefill) - 1, _known(row)
        best: _Found | None = None
        hit = self._store.find(_scope(row), tokens, most)
        if hit is not None:
            holding = Holding.of_solo(hit.entry.caches, hit.entry.length)
            assert holding is not None, "caches of no kind are never kept"
            best = _Found(holding, hit.length, hit.entry)
        for holding, shared in self._living(row, tokens, groups):
            length = min(shared, most)
            floor = max(holding.shortest, self._quantized_from(holding))
            if floor <= length and (best is None or length > best.length):
                best = _Found(holding, length)
        return best if best is not None and best.length >= self._least_tokens else None

    def _living(self, row: Row, tokens: bytes, groups: Iterable[Group]) -> Iterator[tuple[Holding, int]]:
        """What rows of the same scope hold, and how much of it is this row's, too."""
        for group in groups:
            for index, donor in enumerate(group.rows):
                if _scope(donor) != _scope(row) or donor.to_prefill[0] != row.to_prefill[0]:
                    continue
                holding = Holding.of_row(group, index)
                if holding is not None:
                    shared = shared_bytes(_known(donor), tokens) // TOKEN_BYTES
                    yield holding, min(shared, self._ceiling(holding))

    def _quantized_from(self, holding: Holding) -> int:
        """Under --quantized-kv-start: the tokens below which a row has other caches than these; 0 for none."""
        return self._start_tokens if any(hasattr(cache, "bits") for cache in holding.caches) else 0

    def _ceiling(self, holding: Holding) -> int:
        """The most tokens with which a row has such caches."""
        has_start = self._start_tokens and not self._quantized_from(holding)
        return min(holding.length, self._start_tokens - 1) if has_start else holding.length

    def _count(self, found: _Found, most: int) -> None:
        self._tally.hit_tokens += found.length
        if found.entry is None:
            self._tally.live += 1
        elif found.length == most:
            self._tally.exact += 1
        elif found.length == found.entry.length:
            self._tally.snapshot += 1
        else:
            self._tally.cut += 1

    # --- when rows end --------------------------------------------------------------------------

    def leave(self, ended: Iterable[Row], groups: Iterable[Group]) -> None:
        """Keeps what rows that have ended hold, but of those that failed. Their groups still have them."""
        if self._store.is_off:
            return
        for row in ended:
            if row.caches is not None:
                self._keep_ended(row, Holding.of_solo(row.caches, row.prefilled))
        for group in groups:
            for index, row in enumerate(group.rows):
                if row.ending is not None:
                    self._keep_ended(row, Holding.of_row(group, index))

    def _keep_ended(self, row: Row, holding: Holding | None) -> None:
        if row.ending is not None and row.ending.reason != "error":
            self._keep(row, holding, row.keep_tokens)

    def _keep(self, row: Row, holding: Holding | None, most: int = 0) -> None:
        """Keeps as much as can be found again: of known tokens, and at most so many, where that is not 0."""
        if holding is None or (row.adapter is not None and not self._adapters.has(row.adapter)):
            return
        known = _known(row)
        length = min(self._ceiling(holding), len(known) // TOKEN_BYTES, most or holding.length)
        tokens, scope = known[: length * TOKEN_BYTES], _scope(row)
        floor = self._quantized_from(holding)
        is_cut_too_short = length < holding.length and length < max(holding.shortest, floor)
        if length < self._least_tokens or is_cut_too_short or self._store.covers(scope, tokens):
            return
        if not self._store.make_room(holding.size_bytes):
            return
        caches: list[Any] = []
        for cache in holding.prefix(length):
            prefill.launch_copy(cache)
            caches.append(cache)
        floor = max(shortest(holding.kinds, length), floor)
        entry = Entry(scope, tokens, caches, floor, sum(cache.nbytes for cache in caches))
        if self._store.put(entry):
            self._unproven.append(entry)

    # --- faults, room and operators -------------------------------------------------------------

    def proven(self) -> None:
        """The device has done what it was set to: what was copied until then is sound."""
        self._unproven.clear()

    def distrust(self, rows: Iterable[Row]) -> None:
        """After a fault: forgets what was copied since, and what these rows had begun with and never got a token."""
        donors = [row.donor for row in rows if row.donor is not None and row.first_token_at is None]
        for entry in [*self._unproven, *donors]:
            self._store.drop(entry)
        self._unproven.clear()

    def live_rows_take(self, size_bytes: int) -> None:
        """Tells what the live rows' caches take; entries give way."""
        self._store.live_rows_take(size_bytes)

    def forget_unmounted(self) -> None:
        """Forgets what belongs to adapters that nobody can ask for any more."""
        for entry in list(self._store):
            if entry.scope.adapter is not None and not self._adapters.has(entry.scope.adapter):
                self._store.drop(entry)

    def clear(self) -> None:
        """Forgets everything."""
        self._store.clear()


def _scope(row: Row) -> Scope:
    return Scope(row.adapter, row.submit.cache_salt)


def _known(row: Row) -> bytes:
    """The row's tokens as far as the host knows them, the stop token that ended it among them."""
    told = row.told if row.ending is None or row.ending.stop_id is None else [*row.told, row.ending.stop_id]
    return row.submit.prompt.ids + row.submit.generated + pack_ids(told)
