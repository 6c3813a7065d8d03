"""The radix trie: what is stored and found, against a plain dict of sequences."""

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.prefix.trie import PrefixTrie, shared_bytes
from protocol.codec import pack_ids

# Few tokens, one of them wide, so that sequences often share a beginning and bytes within a token.
TOKENS = st.sampled_from([1, 2, 257, 65_793])
SEQUENCES = st.lists(TOKENS, min_size=1, max_size=9).map(tuple)
Sequence = tuple[int, ...]


def _shared(left: Sequence, right: Sequence) -> int:
    return next(
        (at for at, pair in enumerate(zip(left, right, strict=False)) if pair[0] != pair[1]),
        min(len(left), len(right)),
    )


def _found(model: dict[Sequence, int], sought: Sequence) -> list[tuple[int, int, int]]:
    """What a trie must find, in no order among those that share equally much."""
    shares = [(_shared(stored, sought), len(stored), value) for stored, value in model.items()]
    return sorted((share for share in shares if share[0]), key=lambda share: (-share[0], share[1:]))


@settings(max_examples=300, deadline=None)
@given(
    steps=st.lists(st.tuples(st.sampled_from(["put", "remove"]), SEQUENCES), max_size=30),
    sought=st.lists(SEQUENCES, min_size=1, max_size=5),
)
def test_a_trie_finds_what_a_dict_of_sequences_holds(steps: list[tuple[str, Sequence]], sought: list[Sequence]) -> None:
    """After any puts and removals: the same values, those that share most first."""
    trie = PrefixTrie[int]()
    model: dict[Sequence, int] = {}
    for number, (step, sequence) in enumerate(steps):
        tokens = pack_ids(list(sequence))
        if step == "put":
            assert trie.put(tokens, number) == model.get(sequence)
            model[sequence] = number
        else:
            assert trie.remove(tokens) == model.pop(sequence, None)
        assert trie.is_empty == (not model)
    for sequence in [*sought, *model]:
        tokens = pack_ids(list(sequence))
        found = list(trie.find(tokens))
        assert [each.shared for each in found] == sorted((each.shared for each in found), reverse=True)
        assert sorted(found, key=lambda each: (-each.shared, *each[1:])) == _found(model, sequence)
        prefixes = [
            value
            for stored, value in sorted(model.items(), key=lambda item: len(item[0]))
            if stored == sequence[: len(stored)]
        ]
        assert list(trie.prefixes(tokens)) == prefixes


def test_a_prefix_comes_before_others_that_share_as_much() -> None:
    """It needs no cut."""
    trie = PrefixTrie[str]()
    for name, ids in {"beyond": [1, 2, 3, 4], "beside": [1, 2, 9], "prefix": [1, 2]}.items():
        trie.put(pack_ids(ids), name)
    assert next(trie.find(pack_ids([1, 2, 7]))) == (2, 2, "prefix")


def test_what_is_removed_leaves_no_nodes() -> None:
    """A trie does not grow with what has passed through it."""
    trie = PrefixTrie[int]()
    kept = pack_ids([1, 2, 3, 4])
    trie.put(kept, 0)
    for ids in ([1, 2], [1, 2, 3, 9], [7], [1, 2, 3, 4, 5]):
        trie.put(pack_ids(ids), 1)
        trie.remove(pack_ids(ids))
    (only,) = trie._root.children.values()
    assert (only.label, only.children) == (kept, {})


def test_tokens_are_shared_whole() -> None:
    """65793 and 257 begin with the same two bytes and are different tokens all the same."""
    left, right = pack_ids([1, 257]), pack_ids([1, 65_793])
    assert left[:6] == right[:6]
    assert shared_bytes(left, right) == 4
    assert shared_bytes(left, left + right) == 8
    assert shared_bytes(left, b"") == 0
