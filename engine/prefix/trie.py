"""A radix trie over token ids: which stored sequences share the most with a given one. Knows nothing of caches.

Sequences are bytes, a u32 little-endian word for each token, as on the wire: they compare as fast as memory does.
"""

from collections.abc import Iterator
from typing import Final, Generic, NamedTuple, TypeVar

TOKEN_BYTES: Final = 4

Value = TypeVar("Value")


class Candidate(NamedTuple, Generic[Value]):
    """A stored sequence that begins as the one that was looked for. shared: tokens that both begin with.

    length: its own tokens.
    """

    shared: int
    length: int
    value: Value


class _Node(Generic[Value]):
    """label: the tokens between the parent and this node; stop: bytes from the root to its end."""

    __slots__ = ("children", "label", "stop", "value")

    def __init__(self, label: bytes, stop: int, value: Value | None = None) -> None:
        self.label = label
        self.stop = stop
        self.value = value
        self.children: dict[bytes, _Node[Value]] = {}

    def adopt(self, child: "_Node[Value]") -> None:
        self.children[child.label[:TOKEN_BYTES]] = child

    def split(self, at: int) -> "_Node[Value]":
        """A node in this one's place that ends `at` bytes into its label, with this one as its only child."""
        upper = _Node[Value](self.label[:at], self.stop - len(self.label) + at)
        self.label = self.label[at:]
        upper.adopt(self)
        return upper

    def candidates(self, shared: int, without: "_Node[Value] | None") -> Iterator[Candidate[Value]]:
        """Values here and below, but not below `without`; nearest ones first."""
        nodes = [self]
        while nodes:
            below: list[_Node[Value]] = []
            for node in nodes:
                if node.value is not None:
                    yield Candidate(shared, node.stop // TOKEN_BYTES, node.value)
                below += [child for child in node.children.values() if child is not without]
            nodes = below


class _Step(NamedTuple, Generic[Value]):
    """shared: bytes from the root that the node has in common with what is looked for."""

    node: _Node[Value]
    shared: int


class PrefixTrie(Generic[Value]):
    """At most one value for each sequence, which is never empty."""

    def __init__(self) -> None:
        self._root = _Node[Value](b"", 0)

    @property
    def is_empty(self) -> bool:
        """Whether no value is stored."""
        return not self._root.children

    def put(self, tokens: bytes, value: Value) -> Value | None:
        """Stores a value; returns the one that it replaces."""
        assert tokens, "a prefix has tokens"
        node = self._root
        while node.stop < len(tokens):
            rest = tokens[node.stop :]
            child = node.children.get(rest[:TOKEN_BYTES])
            if child is None:
                child = _Node(rest, len(tokens))
                node.adopt(child)
            elif (shared := shared_bytes(child.label, rest)) < len(child.label):
                child = child.split(shared)
                node.adopt(child)
            node = child
        replaced, node.value = node.value, value
        return replaced

    def remove(self, tokens: bytes) -> Value | None:
        """Forgets a sequence; returns its value. Nodes that hold nothing any more go with it."""
        path = [self._root]
        while path[-1].stop < len(tokens):
            start = path[-1].stop
            child = path[-1].children.get(tokens[start : start + TOKEN_BYTES])
            if child is None or not tokens.startswith(child.label, start):
                return None
            path.append(child)
        *_, node = path
        if node.stop != len(tokens):
            return None
        removed, node.value = node.value, None
        for parent, child in zip(reversed(path[:-1]), reversed(path[1:]), strict=True):
            _tidy(parent, child)
        return removed

    def prefixes(self, tokens: bytes) -> Iterator[Value]:
        """Values of stored sequences with which `tokens` begins, or which it is; shortest first."""
        for node, shared in self._path(tokens):
            if node.value is not None and node.stop == shared:
                yield node.value

    def find(self, tokens: bytes) -> Iterator[Candidate[Value]]:
        """Stored sequences that share at least one token, those that share most first.

        Of those that share equally much, one that is a prefix of `tokens`, or all of it, comes first.
        """
        without: _Node[Value] | None = None
        for node, shared in reversed(self._path(tokens)):
            yield from node.candidates(shared // TOKEN_BYTES, without)
            without = node

    def _path(self, tokens: bytes) -> "list[_Step[Value]]":
        """The nodes that share tokens, from the root down; only the last one may do so in part."""
        path: list[_Step[Value]] = []
        node = self._root
        while node.stop < len(tokens):
            child = node.children.get(tokens[node.stop : node.stop + TOKEN_BYTES])
            if child is None:
                break
            shared = shared_bytes(child.label, tokens[node.stop :])
            path.append(_Step(child, node.stop + shared))
            if shared < len(child.label):
                break
            node = child
        return path


def shared_bytes(left: bytes, right: bytes) -> int:
    """Length of the beginning, in whole tokens, that both have."""
    most = min(len(left), len(right)) // TOKEN_BYTES
    if left[: most * TOKEN_BYTES] == right[: most * TOKEN_BYTES]:
        return most * TOKEN_BYTES
    least = 0
    # Invariant: `least` tokens are equal, `most` are not.
    while most - least > 1:
        middle = (least + most) // 2
        window = slice(least * TOKEN_BYTES, middle * TOKEN_BYTES)
        least, most = (middle, most) if left[window] == right[window] else (least, middle)
    return least * TOKEN_BYTES


def _tidy(parent: _Node[Value], child: _Node[Value]) -> None:
    """Removes a child that holds nothing, or puts its only child in its place."""
    if child.value is not None or len(child.children) > 1:
        return
    if not child.children:
        del parent.children[child.label[:TOKEN_BYTES]]
        return
    (only,) = child.children.values()
    only.label = child.label + only.label
    parent.adopt(only)
