"""The store: what it finds and gives up, against plain lists."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.prefix.store import Entry, PrefixStore, Scope, StoreLimits
from protocol.codec import pack_ids, unpack_ids

HERE = Scope(None, None)
ELSEWHERE = Scope(None, "salt")


def _entry(*ids: int, shortest: int = 1, size_bytes: int = 10, scope: Scope = HERE, float_tokens: int = 0) -> Entry:
    return Entry(scope, pack_ids(list(ids)), shortest, float_tokens, ["a layer"], size_bytes)


def _snapshot(*ids: int, **options: Any) -> Entry:
    """One that cannot be cut."""
    return _entry(*ids, shortest=len(ids), **options)


def _store(size_bytes: int = 1_000, entries: int | None = None) -> PrefixStore:
    return PrefixStore(StoreLimits(size_bytes, entries))


def _found(store: PrefixStore, *ids: int, scope: Scope = HERE) -> tuple[Entry, int] | None:
    return store.find(scope, pack_ids(list(ids)), len(ids) - 1)


def test_the_longest_usable_prefix_is_found() -> None:
    """Whole entries, parts of longer ones and of those that go on differently; never the last token."""
    store = _store()
    short, long = _snapshot(1, 2), _entry(1, 2, 3, 4, 5)
    assert store.put(short)
    assert store.put(long)
    assert _found(store, 1, 2, 3, 4, 5) == (long, 4)
    assert _found(store, 1, 2, 3, 4, 5, 6, 7) == (long, 5)
    assert _found(store, 1, 2, 3, 9, 9) == (long, 3)
    assert _found(store, 9, 1, 2) is None
    assert _found(store, 1) is None


def test_what_cannot_be_cut_is_found_whole_only() -> None:
    """Of a window that has forgotten, or a recurrent state, no shorter prefix can be made."""
    store = _store()
    early, late = _snapshot(1, 2), _snapshot(1, 2, 3, 4)
    store.put(early)
    store.put(late)
    assert _found(store, 1, 2, 3, 4, 5) == (late, 4)
    assert _found(store, 1, 2, 3, 4) == (early, 2)
    assert _found(store, 1, 2, 3, 9) == (early, 2)
    assert _found(store, 1, 9) is None


def test_an_entry_that_can_be_cut_a_little_is() -> None:
    """Down to its shortest, and no further."""
    store = _store()
    entry = _entry(1, 2, 3, 4, shortest=3)
    store.put(entry)
    assert _found(store, 1, 2, 3, 9) == (entry, 3)
    assert _found(store, 1, 2, 9) is None


def test_a_longer_entry_replaces_those_it_can_stand_for() -> None:
    """A conversation that goes on leaves one entry; snapshots of what cannot be cut stay beside it."""
    store = _store()
    for entry in (_entry(1, 2), _entry(1, 2, 3), _entry(1, 9)):
        store.put(entry)
    assert len(store) == 2
    store.put(_snapshot(1, 2, 3, 4))
    assert len(store) == 3
    store.put(_entry(1, 2, 3, 4, shortest=4))
    assert len(store) == 3
    assert store.size_bytes == 30


def test_covered_prefixes_are_known_before_they_are_copied() -> None:
    """Whole or as a part."""
    store = _store()
    store.put(_entry(1, 2, 3, 4))
    store.put(_snapshot(7, 8, 9))
    covered = [_entry(1, 2, 3, 4), _entry(1, 2), _snapshot(1, 2), _snapshot(7, 8, 9)]
    others = [_entry(1, 2, 3, 4, 5), _snapshot(7, 8), _entry(1, 3), _entry(1, 2, scope=ELSEWHERE), _entry(9)]
    assert [store.covers(entry) for entry in covered] == [True] * 4
    assert [store.covers(entry) for entry in others] == [False] * 5


def test_an_entry_that_serves_fewer_stands_for_no_other() -> None:
    """One that was read on quantized caches from early on, or that cannot be cut as short, is no substitute."""
    for lesser, better in (
        (_entry(1, 2, 3, 4, float_tokens=1), _entry(1, 2, 3, float_tokens=2)),
        (_entry(1, 2, 3, 4, shortest=3), _entry(1, 2, 3, shortest=2)),
    ):
        for first, second in ((lesser, better), (better, lesser)):
            store = _store()
            assert not store.covers(first)
            store.put(first)
            assert not store.covers(second)
            store.put(second)
            assert list(store) == [first, second]
    short, long = _entry(1, 2, 3, float_tokens=2), _entry(1, 2, 3, 4, float_tokens=2)
    store = _store()
    store.put(short)
    store.put(long)
    assert list(store) == [long]
    assert store.covers(short)


def test_of_one_sequence_there_is_one_entry() -> None:
    """The later one, which was not covered: what is forgotten afterwards is that one."""
    store = _store()
    first, second = _entry(1, 2, float_tokens=1), _entry(1, 2, float_tokens=2)
    store.put(first)
    assert not store.covers(second)
    store.put(second)
    assert (list(store), store.size_bytes) == ([second], 10)
    store.drop(first)
    assert _found(store, 1, 2, 3) == (second, 2)


def test_nothing_is_used_by_an_entry_that_it_does_not_cover() -> None:
    """A prefix that is only begun alike was of no use."""
    store = _store(size_bytes=20)
    begun_alike, other = _snapshot(1, 2), _snapshot(3, 4)
    store.put(begun_alike)
    store.put(other)
    assert not store.covers(_snapshot(1, 2, 3))
    store.put(_snapshot(5, 6))
    assert begun_alike not in list(store)


def test_a_conversation_that_goes_on_takes_the_room_of_its_own_past() -> None:
    """Where its last turn gives way anyway, no stranger does."""
    store = _store(size_bytes=30)
    for entry in (_entry(7), _entry(8), _entry(1, 2)):
        store.put(entry)
    assert store.make_room(_entry(1, 2, 3))
    assert [entry.tokens for entry in store] == [pack_ids([7]), pack_ids([8])]
    assert store.status().evictions == 0


def test_what_is_dropped_holds_nothing() -> None:
    """E4: rows remember the entry that they began with; its bytes are free all the same."""
    store = _store(size_bytes=10)
    entry = _entry(1, 2)
    store.put(entry)
    assert entry.caches == ["a layer"]
    store.put(_entry(3, 4))
    assert entry.caches == []


def test_scopes_never_meet() -> None:
    """E9: another salt or adapter finds nothing, and drops nothing."""
    store = _store()
    mine, other = _entry(1, 2, 3), _entry(1, 2, 3, scope=ELSEWHERE)
    store.put(mine)
    assert _found(store, 1, 2, 3, 4, scope=ELSEWHERE) is None
    store.put(other)
    assert len(store) == 2
    assert _found(store, 1, 2, 3, 4) == (mine, 3)
    store.drop(mine)
    assert _found(store, 1, 2, 3, 4) is None
    assert _found(store, 1, 2, 3, 4, scope=ELSEWHERE) == (other, 3)


def test_what_was_not_used_for_longest_goes_first() -> None:
    """By bytes and by number of entries."""
    for store in (_store(size_bytes=30), _store(entries=3)):
        first, second, third = _entry(1, 1), _entry(2, 2), _entry(3, 3)
        for entry in (first, second, third):
            store.put(entry)
        assert _found(store, 1, 1, 1) == (first, 2)
        store.put(_entry(4, 4))
        assert second not in list(store)
        assert {first, third} < set(store)
        assert store.status().evictions == 1


def test_what_a_used_entry_continues_was_used_as_well() -> None:
    """The snapshot that many conversations share outlives any of them."""
    store = _store(size_bytes=30)
    shared = _snapshot(1, 2)
    store.put(shared)
    for last in (3, 4):
        store.put(_snapshot(1, 2, last))
    assert _found(store, 1, 2, 4, 5) is not None
    store.put(_snapshot(9, 9))
    assert shared in list(store)
    assert _found(store, 1, 2, 3, 5) == (shared, 2)


def test_entries_may_be_held_to_less_than_rows_leave() -> None:
    """A ceiling of their own counts beside the common one; 0 keeps nothing."""
    store = PrefixStore(StoreLimits(100, kept_bytes=25))
    for first in range(4):
        assert store.put(_entry(first, 1))
    assert (len(store), store.size_bytes) == (2, 20)
    assert not store.put(_entry(7, 7, size_bytes=26))
    store.live_rows_take(85)
    assert store.size_bytes == 10
    assert PrefixStore(StoreLimits(100, kept_bytes=0)).is_off


def test_live_rows_push_entries_out_and_never_the_reverse() -> None:
    """E4: one ceiling; entries have what the rows leave, and nothing is stored that would not fit beside them."""
    store = _store(size_bytes=50)
    for first in range(5):
        store.put(_entry(first, 1))
    store.live_rows_take(25)
    assert (len(store), store.size_bytes) == (2, 20)
    assert not store.put(_entry(7, 7, size_bytes=26))
    assert len(store) == 2
    assert store.put(_entry(7, 7, size_bytes=25))
    assert len(store) == 1
    store.live_rows_take(200)
    assert (len(store), store.size_bytes) == (0, 0)
    assert not store.put(_entry(1, 1))
    store.live_rows_take(0)
    assert store.put(_entry(1, 1))


@pytest.mark.parametrize("store", [_store(size_bytes=0), _store(entries=0)])
def test_a_store_without_room_is_off(store: PrefixStore) -> None:
    """Both flags at 0 mean no prefix cache."""
    assert store.is_off
    assert not store.put(_entry(1, 2))
    assert len(store) == 0


def test_clearing_forgets_everything() -> None:
    """In all scopes; dropping what is gone already is no fault."""
    store = _store()
    entry = _entry(1, 2)
    store.put(entry)
    store.put(_entry(1, 2, scope=ELSEWHERE))
    store.clear()
    store.drop(entry)
    assert (len(store), store.size_bytes, store._tries) == (0, 0, {})


class _Model:
    """The same, as a list of entries in the order of use."""

    def __init__(self, limits: StoreLimits) -> None:
        self.limits = limits
        self.entries: list[Entry] = []
        self.live_bytes = 0

    @property
    def size_bytes(self) -> int:
        return sum(entry.size_bytes for entry in self.entries)

    @property
    def left_bytes(self) -> int:
        return max(0, self.limits.size_bytes - self.live_bytes)

    def usable(self, entry: Entry, asked: Entry) -> int:
        """Tokens of an entry for a row that asks for these tokens, of which so many must have been read as floats."""
        pairs = zip(unpack_ids(entry.tokens), unpack_ids(asked.tokens), strict=False)
        shared = next((at for at, (mine, other) in enumerate(pairs) if mine != other), min(entry.length, asked.length))
        is_apt = shared >= entry.shortest and min(shared, entry.float_tokens) >= asked.float_tokens
        return shared if is_apt and entry.scope == asked.scope else 0

    def continued(self, entry: Entry) -> list[Entry]:
        """What the entry continues, longest first."""
        alike = [each for each in self.entries if each.scope == entry.scope and entry.tokens.startswith(each.tokens)]
        return sorted((each for each in alike if each is not entry), key=lambda each: -each.length)

    def used(self, entry: Entry) -> list[Entry]:
        last = [entry, *self.continued(entry)]
        return [*(each for each in self.entries if each not in last), *last]

    def covering(self, entry: Entry) -> list[Entry]:
        alike = [each for each in self.entries if each.scope == entry.scope and each.tokens.startswith(entry.tokens)]
        return [each for each in alike if _serves_all(each, entry)]

    def put(self, entry: Entry) -> bool:
        if entry.size_bytes > self.left_bytes:
            return False
        older = self.continued(entry)
        gone = [each for each in older if each.tokens == entry.tokens or _serves_all(entry, each)]
        self.entries = [each for each in self.entries if each not in gone]
        self.give_up(entry.size_bytes, 1)
        self.entries.append(entry)
        return True

    def give_up(self, size_bytes: int, entries: int) -> None:
        most = len(self.entries) + entries if self.limits.entries is None else self.limits.entries
        while self.entries and (self.size_bytes + size_bytes > self.left_bytes or len(self.entries) + entries > most):
            self.entries.pop(0)


def _serves_all(entry: Entry, other: Entry) -> bool:
    """By trial: each length of the other, to each row that could begin with it."""
    lengths = range(other.shortest, other.length + 1)
    needs = [(length, need) for length in lengths for need in range(length + 1) if need <= other.float_tokens]
    return all(length >= entry.shortest and min(length, entry.float_tokens) >= need for length, need in needs)


IDS = st.lists(st.integers(1, 3), min_size=1, max_size=6)
SCOPES = st.sampled_from([HERE, ELSEWHERE])


@st.composite
def _entries(draw: st.DrawFn) -> Entry:
    ids = draw(IDS)
    tokens = st.integers(0, len(ids))
    shortest, float_tokens = max(1, draw(tokens)), draw(tokens)
    size_bytes, scope = draw(st.integers(1, 30)), draw(SCOPES)
    return _entry(*ids, shortest=shortest, size_bytes=size_bytes, scope=scope, float_tokens=float_tokens)


STEPS = st.lists(
    st.one_of(
        # What the loop does with what rows leave, most of all.
        st.tuples(st.just("keep"), _entries()),
        st.tuples(st.just("put"), _entries()),
        st.tuples(st.just("find"), _entries()),
        st.tuples(st.just("live"), st.integers(0, 120)),
        st.tuples(st.just("drop"), st.integers(0, 5)),
        st.tuples(st.just("clear"), st.none()),
    ),
    max_size=40,
)


class _Both:
    """The store and its model, one step after another."""

    def __init__(self, limits: StoreLimits) -> None:
        self.store = PrefixStore(limits)
        self.model = _Model(limits)

    def keep(self, entry: Entry) -> None:
        covering = self.model.covering(entry)
        assert self.store.covers(entry) == bool(covering)
        if covering:
            # Any of them may be the one that was used.
            orders = [self.model.used(each) for each in covering]
            assert list(self.store) in orders
            self.model.entries = list(self.store)
        else:
            self.put(entry)

    def put(self, entry: Entry) -> None:
        assert self.store.put(entry) == self.model.put(entry)

    def find(self, asked: Entry) -> None:
        found = self.store.find(
            asked.scope,
            asked.tokens,
            asked.length,
            lambda entry, length: min(length, entry.float_tokens) >= asked.float_tokens,
        )
        lengths = [self.model.usable(entry, asked) for entry in self.model.entries]
        assert (found.length if found else 0) == max(lengths, default=0)
        if found is not None:
            assert self.model.usable(found.entry, asked) == found.length
            self.model.entries = self.model.used(found.entry)

    def live(self, size_bytes: int) -> None:
        self.model.live_bytes = size_bytes
        self.store.live_rows_take(size_bytes)
        self.model.give_up(0, 0)

    def drop(self, index: int) -> None:
        for entry in self.model.entries[index : index + 1]:
            self.store.drop(entry)
            self.model.entries.remove(entry)

    def clear(self, _: None) -> None:
        self.store.clear()
        self.model.entries.clear()


@settings(max_examples=400, deadline=None)
@given(steps=STEPS, limits=st.builds(StoreLimits, st.integers(1, 100), st.none() | st.integers(1, 4)))
def test_a_store_is_a_list_of_prefixes(steps: list[Any], limits: StoreLimits) -> None:
    """Any sequence of steps leaves the same entries in the same order, and finds as much; only they have caches."""
    both = _Both(limits)
    stored: set[Entry] = set()
    for step, argument in steps:
        getattr(both, step)(argument)
        stored.update(both.store)
        assert list(both.store) == both.model.entries
        assert both.store.size_bytes == both.model.size_bytes
        assert not any(trie.is_empty for trie in both.store._tries.values())
        assert not any(entry.caches for entry in stored.difference(both.store))
