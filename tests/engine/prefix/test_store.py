"""The store: what it finds and gives up, against plain lists."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.prefix.store import Entry, PrefixStore, Scope, StoreLimits
from protocol.codec import pack_ids

HERE = Scope(None, None)
ELSEWHERE = Scope(None, "salt")


def _entry(*ids: int, shortest: int = 1, size_bytes: int = 10, scope: Scope = HERE) -> Entry:
    return Entry(scope, pack_ids(list(ids)), [], shortest, size_bytes)


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
    covered = [[1, 2, 3, 4], [1, 2], [7, 8, 9], [1, 2, 3, 4, 5], [7, 8], [1, 3]]
    assert [store.covers(HERE, pack_ids(ids)) for ids in covered] == [True, True, True, False, False, False]


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

    def usable(self, entry: Entry, tokens: bytes, most: int) -> int:
        shared = 0
        while shared < min(most, entry.length) and entry.tokens[: 4 * shared + 4] == tokens[: 4 * shared + 4]:
            shared += 1
        return shared if shared >= min(entry.shortest, entry.length) else 0

    def use(self, entry: Entry) -> None:
        continued = [each for each in self.entries if entry.tokens.startswith(each.tokens) and each is not entry]
        continued.sort(key=lambda each: -each.length)
        self.entries = [each for each in self.entries if each is not entry and each not in continued]
        self.entries += [entry, *continued]

    def put(self, entry: Entry) -> bool:
        if entry.size_bytes > self.limits.size_bytes - self.live_bytes:
            return False
        self.entries = [
            each
            for each in self.entries
            if not (entry.tokens.startswith(each.tokens) and each.length >= entry.shortest)
        ]
        while self.size_bytes + entry.size_bytes > self.limits.size_bytes - self.live_bytes:
            self.entries.pop(0)
        while self.limits.entries is not None and len(self.entries) + 1 > self.limits.entries:
            self.entries.pop(0)
        self.entries.append(entry)
        return True


IDS = st.lists(st.integers(1, 3), min_size=1, max_size=6)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), IDS, st.integers(1, 6), st.integers(1, 30)),
        st.tuples(st.just("find"), IDS),
        st.tuples(st.just("live"), st.integers(0, 120)),
    ),
    max_size=40,
)


@settings(max_examples=300, deadline=None)
@given(steps=STEPS, limits=st.builds(StoreLimits, st.integers(1, 100), st.none() | st.integers(1, 4)))
def test_a_store_is_a_list_of_prefixes(steps: list[Any], limits: StoreLimits) -> None:
    """Any sequence of puts, finds and evictions leaves the same entries in the same order, and finds as much."""
    store, model = PrefixStore(limits), _Model(limits)
    for step, *arguments in steps:
        if step == "put":
            ids, shortest, size_bytes = arguments
            entry = _entry(*ids, shortest=min(shortest, len(ids)), size_bytes=size_bytes)
            covering = store.find(HERE, entry.tokens, len(ids))
            if covering is not None:
                model.use(covering.entry)
            assert store.put(entry) == model.put(entry)
        elif step == "find":
            tokens = pack_ids(arguments[0])
            found = store.find(HERE, tokens, len(arguments[0]))
            lengths = [model.usable(entry, tokens, len(arguments[0])) for entry in model.entries]
            assert (found.length if found else 0) == max(lengths, default=0)
            if found is not None:
                model.use(found.entry)
        else:
            model.live_bytes = arguments[0]
            store.live_rows_take(arguments[0])
            while model.entries and model.size_bytes > max(0, limits.size_bytes - model.live_bytes):
                model.entries.pop(0)
        assert list(store) == model.entries
        assert store.size_bytes == model.size_bytes
