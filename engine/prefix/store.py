"""Stored prefixes under one ceiling of bytes: put, found, and given up, those that were not used for longest first.

Owns who is kept and the counts; caches are opaque here, and what of them may be used is the entry's own to say.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
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
    caches: list[Any]
    shortest: int
    size_bytes: int
    float_tokens: int = 0

    @property
    def length(self) -> int:
        """Its tokens."""
        return len(self.tokens) // TOKEN_BYTES


class Hit(NamedTuple):
    """An entry of which the first `length` tokens are what was looked for."""

    entry: Entry
    length: int


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

    def covers(self, scope: Scope, tokens: bytes) -> bool:
        """Whether some entry gives all of these tokens; it then counts as used."""
        length = len(tokens) // TOKEN_BYTES
        found = self.find(scope, tokens, length)
        return found is not None and found.length == length

    def put(self, entry: Entry) -> bool:
        """Whether the entry is stored. Those that it can stand for go, and others where they leave no room."""
        if self.is_off or entry.size_bytes > self._left_bytes:
            return False
        trie = self._tries.get(entry.scope, PrefixTrie[Entry]())
        for older in list(trie.prefixes(entry.tokens)):
            if older.length >= entry.shortest:
                self.drop(older)
        self._give_up(entry.size_bytes, entries=1)
        # Dropping a scope's last entry ends its trie.
        self._tries.setdefault(entry.scope, trie).put(entry.tokens, entry)
        self._entries[entry] = None
        self.size_bytes += entry.size_bytes
        return True

    def make_room(self, size_bytes: int) -> bool:
        """Gives up others until an entry of so many bytes has room; not when it never would, which is told."""
        if self.is_off or size_bytes > self._left_bytes:
            return False
        self._give_up(size_bytes, entries=1)
        return True

    def live_rows_take(self, size_bytes: int) -> None:
        """Tells what the live rows' caches take; the entries make room for it."""
        self._live_bytes = size_bytes
        self._give_up(0, entries=0)

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
        """Forgets one entry, if it is still there."""
        if entry not in self._entries:
            return
        del self._entries[entry]
        self.size_bytes -= entry.size_bytes
        trie = self._tries[entry.scope]
        trie.remove(entry.tokens)
        if trie.is_empty:
            del self._tries[entry.scope]

    def clear(self) -> None:
        """Forgets all entries."""
        for entry in list(self._entries):
            self.drop(entry)

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
