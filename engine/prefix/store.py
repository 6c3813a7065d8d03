"""Stored prefixes under one ceiling of bytes: put, found, and given up, those that were not used for longest first.

Owns who is kept and the counts; caches are opaque here, and what of them may be used is the entry's own to say.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from engine.model.adapters import Adapter
from engine.prefix.trie import TOKEN_BYTES, PrefixTrie
from protocol.status import PrefixStatus


class Scope(NamedTuple):
    """Prefixes are shared only within one. adapter: this very one, whatever its name."""

    adapter: Adapter | None
    salt: str | None


@dataclass(slots=True, eq=False)
class Entry:
    """Solo caches that hold these tokens, one a layer. tokens: u32 little-endian.

    shortest: the fewest tokens to which all of them can be cut; as many as they hold where they cannot. float_tokens:
    of the first ones, how many were computed on caches that were not quantized yet.
    """

    scope: Scope
    tokens: bytes
    shortest: int
    float_tokens: int = 0
    caches: list[Any] = field(default_factory=list[Any])
    size_bytes: int = 0

    @property
    def length(self) -> int:
        """Its tokens."""
        return len(self.tokens) // TOKEN_BYTES

    def stands_for(self, other: "Entry") -> bool:
        """Whether it serves everyone whom the other one would. It begins with the other's tokens."""
        return self.shortest <= other.shortest and self.float_tokens >= other.float_tokens


class Hit(NamedTuple):
    """An entry of which the first `length` tokens are what was looked for."""

    entry: Entry
    length: int


class Dropped(NamedTuple):
    """What was forgotten at once. size_bytes: of the entries' caches."""

    entries: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """size_bytes: over live rows' caches and entries together, 0 stores nothing. entries: None for no limit.

    kept_bytes: over entries alone; None for what live rows leave.
    """

    size_bytes: int
    entries: int | None = None
    kept_bytes: int | None = None


class PrefixStore:
    """All entries, by scope. The rows that live take their bytes first; the entries have what is left."""

    def __init__(self, limits: StoreLimits) -> None:
        self._limits: Final = limits
        self._tries: dict[Scope, PrefixTrie[Entry]] = {}
        # In the order of their last use.
        self._entries: dict[Entry, None] = {}
        self._live_bytes = 0
        self.size_bytes = 0
        self._evictions = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries)

    @property
    def is_off(self) -> bool:
        """Whether nothing will ever be stored."""
        return not self._limits.size_bytes or 0 in (self._limits.entries, self._limits.kept_bytes)

    def find(
        self, scope: Scope, tokens: bytes, most: int, is_apt: Callable[[Entry, int], bool] | None = None
    ) -> Hit | None:
        """The entry that gives the longest prefix of at most so many tokens. It counts as used.

        is_apt: whether so many tokens of an entry will do; None: any will.
        """
        trie = self._tries.get(scope)
        if trie is None:
            return None
        for shared, length, entry in trie.find(tokens):
            usable = min(shared, most)
            can_be_cut = length <= usable or entry.shortest <= usable
            if can_be_cut and (is_apt is None or is_apt(entry, min(length, usable))):
                self._use(entry)
                return Hit(entry, min(length, usable))
        return None

    def covers(self, entry: Entry) -> bool:
        """Whether one that is stored stands for this one, which need not be made then; it counts as used."""
        trie = self._tries.get(entry.scope)
        if trie is None:
            return False
        for shared, _, stored in trie.find(entry.tokens):
            if shared < entry.length:
                return False
            if stored.stands_for(entry):
                self._use(stored)
                return True
        return False

    def put(self, entry: Entry) -> bool:
        """Whether the entry is stored, behind `make_room`. For one that is covered nothing is gained."""
        if not self.make_room(entry):
            return False
        self._tries.setdefault(entry.scope, PrefixTrie[Entry]()).put(entry.tokens, entry)
        self._entries[entry] = None
        self.size_bytes += entry.size_bytes
        return True

    def make_room(self, entry: Entry) -> bool:
        """Whether there is room for the entry now: those that it stands for go, and others where that is not enough.

        Where there never would be, all stay.
        """
        if self.is_off or entry.size_bytes > self._left_bytes:
            return False
        trie = self._tries.get(entry.scope)
        for older in [] if trie is None else list(trie.prefixes(entry.tokens)):
            # Of one sequence there is one entry.
            if older.length == entry.length or entry.stands_for(older):
                self.drop(older)
        self._give_up(entry.size_bytes, entries=1)
        return True

    def live_rows_take(self, size_bytes: int) -> None:
        """Tells what the live rows' caches take; the entries make room for it."""
        self._live_bytes = size_bytes
        self._give_up(0, entries=0)

    def holds_beside(self, live_bytes: int) -> bool:
        """Whether all entries have room beside rows that take so much."""
        return self.size_bytes + live_bytes <= self._limits.size_bytes

    @property
    def _left_bytes(self) -> int:
        """What live rows leave to entries, and at most what these may take."""
        left_bytes = max(0, self._limits.size_bytes - self._live_bytes)
        return left_bytes if self._limits.kept_bytes is None else min(left_bytes, self._limits.kept_bytes)

    def _give_up(self, size_bytes: int, entries: int) -> None:
        """Gives up what was not used for longest, until so much more has room."""
        most_entries = self._limits.entries
        while self._entries and (
            self.size_bytes + size_bytes > self._left_bytes
            or (most_entries is not None and len(self._entries) + entries > most_entries)
        ):
            self._evictions += 1
            self.drop(next(iter(self._entries)))

    def drop(self, entry: Entry) -> None:
        """Forgets one entry, if it is still there. Whoever still knows it holds none of its bytes."""
        if entry not in self._entries:
            return
        del self._entries[entry]
        self.size_bytes -= entry.size_bytes
        entry.caches.clear()
        trie = self._tries[entry.scope]
        trie.remove(entry.tokens)
        if trie.is_empty:
            del self._tries[entry.scope]

    def clear(self) -> Dropped:
        """Forgets all entries; says what they were."""
        dropped = Dropped(len(self._entries), self.size_bytes)
        for entry in list(self._entries):
            self.drop(entry)
        return dropped

    def status(self) -> PrefixStatus:
        """What is stored, and how much has been given up; how often rows looked for it is told by those who look."""
        return PrefixStatus(
            entries=len(self._entries),
            size_bytes=self.size_bytes,
            limit_bytes=0 if self.is_off else self._limits.size_bytes,
            evictions=self._evictions,
        )

    def _use(self, entry: Entry) -> None:
        """The entry is used now, and so are those that it continues, of which more rows may be continuations."""
        for each in (entry, *reversed(list(self._tries[entry.scope].prefixes(entry.tokens)))):
            del self._entries[each]
            self._entries[each] = None
