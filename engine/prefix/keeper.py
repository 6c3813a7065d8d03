"""What rows leave to those that come after them, and what they find: between rows and the store.

Owns when a prefix is kept and which one is taken; what is given up for room is the store's.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

import msgspec

from engine import prefill
from engine.batch import Group
from engine.cache.base import CacheKind
from engine.model.adapters import Adapters
from engine.prefix.holding import Holding, shortest
from engine.prefix.least import least_tokens
from engine.prefix.store import Dropped, Entry, Hit, PrefixStore, Scope, StoreLimits
from engine.prefix.trie import TOKEN_BYTES, shared_bytes
from engine.prefix.use import FoundBy
from engine.row import Row
from protocol.codec import pack_ids
from protocol.status import PrefixStatus

# However many a client asks for, so many snapshots of one prompt are kept: the longest ones.
MOST_SNAPSHOTS: Final = 8


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
    """The prefix that a row begins with. float_tokens: see Entry. entry None: it is of a row that lives."""

    holding: Holding
    length: int
    float_tokens: int
    entry: Entry | None = None


class RowCaches(NamedTuple):
    """What caches rows have. kinds None: some layer's is of no kind, and nothing can be kept of it.

    chunk_tokens: of one prefill chunk; context_tokens: of the longest row. is_quantized: after its first chunk.
    why_none: why nothing can be kept of them, in a user's words.
    """

    kinds: Sequence[CacheKind] | None
    chunk_tokens: int
    context_tokens: int
    is_quantized: bool = False
    why_none: str = ""

    @property
    def wants_snapshots(self) -> bool:
        """Whether a long row's caches cannot be cut to any prefix, so that copies are kept at chosen lengths."""
        return self.kinds is not None and shortest(self.kinds, self.context_tokens) > 1


class PrefixKeeper:
    """One per loop. `begin` before a row's first chunk, `chunk_done` after each, `leave` before ended rows go."""

    def __init__(self, limits: StoreLimits, adapters: Adapters, rows: RowCaches) -> None:
        self._store = PrefixStore(limits if rows.kinds is not None else StoreLimits(0))
        self._adapters = adapters
        self._is_quantized = rows.is_quantized
        self._chunk_tokens = rows.chunk_tokens
        self._least_tokens = least_tokens(rows.chunk_tokens)
        # Whether clients should say at which lengths copies are worth keeping.
        self.wants_snapshots: Final = rows.wants_snapshots and not self._store.is_off
        self._why_none = rows.why_none
        self._tally = PrefixTally()
        # Stored since the device was last known to be well.
        self._unproven: list[Entry] = []

    def status(self) -> PrefixStatus:
        """For the engine's status."""
        tally = self._tally
        hits = tally.exact + tally.snapshot + tally.cut + tally.live
        return msgspec.structs.replace(self._store.status(), hits=hits, reason=self._why_none, **asdict(tally))

    # --- before and while a prompt is computed --------------------------------------------------

    def expect(self, row: Row, before: Iterable[Row]) -> None:
        """Of a row that was admitted: how much will be there, kept or by one of the rows that prefill before it.

        For one that computes over a chunk of what it needs, it waits.
        """
        row.prefix.leader, row.prefix.leader_tokens = None, 0
        if self._cannot_ask(row):
            return
        known = _known(row)
        hit = self._find(row, known)
        found_tokens = 0 if hit is None else hit.length
        for leader in before:
            than = max(row.prefix.leader_tokens, found_tokens + self._chunk_tokens)
            if _may_share_more(leader, row, than):
                stop = min(len(leader.to_prefill), len(row.to_prefill)) - 1
                length = self._kept_length(leader, min(_shared_tokens(leader, known), stop))
                if length > than:
                    row.prefix.leader, row.prefix.leader_tokens = leader, length
        expected_tokens = max(found_tokens, row.prefix.leader_tokens)
        row.prefix.expected_tokens = expected_tokens if expected_tokens >= self._least_tokens else 0

    def begin(self, row: Row, groups: Iterable[Group], prefilling: Iterable[Row]) -> None:
        """A row of which nothing is computed yet takes over the longest prefix there is.

        groups, prefilling: the rows that live.
        """
        row.prefix.expected_tokens = 0
        if row.is_half_way or self._cannot_ask(row):
            return
        if self.wants_snapshots:
            row.prefix.snapshots = self._snapshots_of(row)
        found = self._found(row, [*_decoding(groups), *_half_way(prefilling)])
        if found is None:
            return
        row.prefix.found = _name(found, len(row.to_prefill) - 1)
        row.caches = []
        for cache in found.holding.prefix(found.length):
            row.caches.append(cache)
            if found.entry is None:
                # Its owner writes on: what this copies must be as it is now.
                prefill.wait_for_chunk([cache])
            else:
                # What is still to be copied would stay in memory after its entry is given up.
                prefill.launch_copy(cache)
        row.prefix.donor = found.entry
        row.prefix.float_tokens = min(found.float_tokens, found.length)
        row.prefilled = row.prefix.taken_tokens = found.length

    def count(self, row: Row) -> None:
        """A row whose first chunk runs now: whether it looked for a prefix, and what it found."""
        tally = self._tally
        if self._store.is_off:
            return
        if row.wants_prompt_logprobs:
            tally.unasked += 1
            return
        tally.queried_tokens += len(row.to_prefill)
        tally.hit_tokens += row.prefix.taken_tokens
        match row.prefix.found:
            case None:
                tally.misses += 1
            case "exact":
                tally.exact += 1
            case "snapshot":
                tally.snapshot += 1
            case "cut":
                tally.cut += 1
            case "live":
                tally.live += 1

    def next_stop(self, row: Row) -> int | None:
        """Where the row's chunk must end, so that its caches can be kept as they are then.

        Not in a first chunk after which caches are quantized: what follows it reads otherwise than what is in it.
        """
        least = 0
        if self._is_quantized:
            if not row.prefilled:
                return self._first_chunk(row) or None
            least = self._first_chunk(row) - 1
        return next((length for length in row.prefix.snapshots if length > max(row.prefilled, least)), None)

    def chunk_done(self, row: Row) -> None:
        """Keeps a copy of the row's caches, if they now hold a prefix that is worth keeping."""
        if self._is_quantized:
            row.prefix.float_tokens = row.prefix.float_tokens or row.prefilled
        if row.prefilled not in row.prefix.snapshots or row.caches is None:
            return
        holding = Holding.of_solo(row.caches, row.prefilled)
        if holding is not None:
            self._keep(row, holding)

    def _cannot_ask(self, row: Row) -> bool:
        """Whether the row computes all of its prompt in any case."""
        is_short = len(row.to_prefill) <= self._least_tokens
        return self._store.is_off or row.wants_prompt_logprobs or row.decodes_alone or is_short

    def _first_chunk(self, row: Row) -> int:
        """Tokens that a row's first chunk computes, if nothing of it is there."""
        return row.first_chunk_tokens(self._chunk_tokens)

    def _snapshots_of(self, row: Row) -> list[int]:
        """Those that were asked for, and all that is forwarded before the last token."""
        stop = len(row.to_prefill) - 1
        asked = sorted({length for length in row.submit.snapshot_at if self._least_tokens <= length < stop})
        return [*asked[-MOST_SNAPSHOTS:], stop]

    def _kept_length(self, row: Row, shared: int) -> int:
        """How much of the first tokens of a row that prefills another one can begin with."""
        if not self.wants_snapshots:
            return shared
        return max((length for length in self._snapshots_of(row) if length <= shared), default=0)

    def _found(self, row: Row, living: "Iterable[_Living]") -> _Found | None:
        """In the store, or in a row that lives and has more of it; None: not enough to be worth it."""
        least, most, tokens = row.prefilled + self._least_tokens, len(row.to_prefill) - 1, _known(row)
        best: _Found | None = None
        hit = self._find(row, tokens)
        if hit is not None:
            holding = Holding.of_solo(hit.entry.caches, hit.entry.length)
            assert holding is not None, "caches of no kind are never kept"
            best = _Found(holding, hit.length, hit.entry.float_tokens, hit.entry)
        for each in living:
            than = max(least - 1, 0 if best is None else best.length)
            if min(each.length, most) <= than or not _may_share_more(each.row, row, than):
                continue
            length = min(_shared_tokens(each.row, tokens), each.length, most)
            if length > than and self._reads_alike(row, length, each.row.prefix.float_tokens):
                holding = each.holding()
                if holding is not None and holding.shortest <= length:
                    best = _Found(holding, length, each.row.prefix.float_tokens)
        return best if best is not None and best.length >= least else None

    def _find(self, row: Row, tokens: bytes) -> Hit | None:
        return self._store.find(
            _scope(row),
            tokens,
            len(row.to_prefill) - 1,
            lambda entry, length: self._reads_alike(row, length, entry.float_tokens),
        )

    def _reads_alike(self, row: Row, length: int, float_tokens: int) -> bool:
        """Whether a row that begins with so many tokens of another computes what it would alone.

        A first chunk is read before it is quantized, so that it is taken as a whole or not at all.
        """
        return not self._is_quantized or min(length, float_tokens) >= self._first_chunk(row)

    # --- when rows end --------------------------------------------------------------------------

    def leave(self, ended: Iterable[Row], groups: Iterable[Group], live_bytes: int) -> None:
        """Keeps what rows that have ended hold, but of those that failed. Their groups still have them.

        live_bytes: what all rows take, these among them.
        """
        if self._store.is_off:
            return
        living = (*_half_way(ended), *_decoding(groups))
        leaving = [each for each in living if each.row.ending is not None and each.row.ending.reason != "error"]
        held = [(each.row, holding) for each in leaving if (holding := each.holding()) is not None]
        for row, holding in held:
            self._keep(row, holding, row.prefix.keep_tokens, live_bytes)

    def give_way(self, row: Row, caches: list[Any], length: int, live_bytes: int) -> None:
        """Keeps what a row held that has left its group. live_bytes: of all other rows."""
        holding = None if self._store.is_off else Holding.of_solo(caches, length)
        if holding is not None:
            self._keep(row, holding, live_bytes=live_bytes + holding.size_bytes)

    def _keep(self, row: Row, holding: Holding, most: int = 0, live_bytes: int | None = None) -> None:
        """Keeps as much as can be found again, and at most so many tokens, where that is not 0.

        live_bytes: of all rows, where this one goes: what is its alone gives way to what is kept of it.
        """
        entry = self._worth_keeping(row, holding, most)
        if entry is None:
            return
        if live_bytes is not None:
            self._store.live_rows_take(live_bytes - (holding.size_bytes if holding.row_index is None else 0))
        # MLX is lazy: now it is known what will be held, and nothing is copied before there is room for it.
        entry.caches = list(holding.prefix(entry.length))
        entry.size_bytes = sum(cache.nbytes for cache in entry.caches)
        if not self._store.put(entry):
            return
        self._unproven.append(entry)
        is_alone = holding.row_index is None
        is_tight = is_alone and live_bytes is not None and not self._store.holds_beside(live_bytes)
        for layer, cache in enumerate(entry.caches):
            if is_tight:
                prefill.wait_for_chunk([cache])
                holding.caches[layer] = None
            else:
                prefill.launch_copy(cache)

    def _worth_keeping(self, row: Row, holding: Holding, most: int = 0) -> Entry | None:
        """An entry, still without its caches, for what can be found again; None where that is of no use."""
        if row.decodes_alone or (row.adapter is not None and not self._adapters.has(row.adapter)):
            return None
        known = _known(row)
        length = min(holding.length, len(known) // TOKEN_BYTES, most or holding.length)
        is_cut_too_short = length < holding.length and length < holding.shortest
        float_tokens = min(row.prefix.float_tokens, length)
        tokens = known[: length * TOKEN_BYTES]
        entry = Entry(_scope(row), tokens, shortest(holding.kinds, length), float_tokens)
        is_useless = length < self._least_tokens or is_cut_too_short or self._store.covers(entry)
        return None if is_useless else entry

    # --- faults, room and operators -------------------------------------------------------------

    def proven(self) -> None:
        """The device has done what it was set to: what was copied until then is sound."""
        self._unproven.clear()

    def distrust(self, rows: Iterable[Row]) -> None:
        """After a fault: forgets what was copied since, and what these rows had begun with and never got a token."""
        donors = [row.prefix.donor for row in rows if row.prefix.donor is not None and row.first_token_at is None]
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

    def clear(self) -> Dropped:
        """Forgets everything; says what it was."""
        self._unproven.clear()
        return self._store.clear()


class _Living(NamedTuple):
    """A row, and where its caches are: its place in a group; None: its own. length: tokens in them."""

    row: Row
    length: int
    group: Group | None = None
    seat: int = 0

    def holding(self) -> Holding | None:
        """What it holds: made only for a row that lends or leaves something."""
        if self.group is not None:
            return Holding.of_row(self.group, self.seat)
        return Holding.of_solo(self.row.caches or [], self.length)


def _decoding(groups: Iterable[Group]) -> Iterator[_Living]:
    for group in groups:
        for seat, (row, length) in enumerate(zip(group.rows, group.lengths, strict=True)):
            yield _Living(row, length, group, seat)


def _half_way(rows: Iterable[Row]) -> Iterator[_Living]:
    """Those on their way into a group."""
    return (_Living(row, row.prefilled) for row in rows if row.caches and row.prefilled)


def _may_share_more(donor: Row, row: Row, than: int) -> bool:
    """Whether a row of the same scope might lend more than so many tokens: the next one is equal.

    It spares most pairs of long prompts a look at all of their tokens.
    """
    # The last token is never lent.
    if than + 1 >= len(row.to_prefill) or donor is row or donor.ending is not None:
        return False
    is_equal = donor.known_from(than, than + 1) == row.to_prefill[than : than + 1]
    return is_equal and _scope(donor) == _scope(row)


def _name(found: _Found, most: int) -> FoundBy:
    """In the words of the status. most: tokens that can be found."""
    if found.entry is None:
        return "live"
    if found.length == most:
        return "exact"
    return "snapshot" if found.length == found.entry.length else "cut"


def _scope(row: Row) -> Scope:
    return Scope(row.adapter, row.submit.cache_salt)


def _shared_tokens(donor: Row, tokens: bytes) -> int:
    """How many tokens of a row these begin with; of most rows a look at the prompt is enough."""
    prompt = donor.submit.prompt.ids
    shared = shared_bytes(prompt, tokens)
    if shared == len(prompt):
        shared = shared_bytes(_known(donor), tokens)
    return shared // TOKEN_BYTES


def _known(row: Row) -> bytes:
    """The row's tokens as far as the host knows them, the stop token that ended it among them."""
    told = row.told if row.ending is None or row.ending.stop_id is None else [*row.told, row.ending.stop_id]
    return row.submit.prompt.ids + row.replayed + pack_ids(told)
