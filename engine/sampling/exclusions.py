"""What a row's own settings exclude, as the host knows it: told of a token that was read, or is forced.

The device excludes by the same rules (bans.py); an excluded token comes up only where nothing else is possible.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from protocol.sampling import Sampling

_Beginnings = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Exclusions:
    """allowed: empty allows all. words: by their last ids, what of bad words comes before. reach: of the longest."""

    allowed: frozenset[int]
    words: Mapping[int, _Beginnings]
    reach: int

    def excludes(self, token: int, before: Sequence[int]) -> bool:
        """Whether the token may not follow. before: the last tokens, at least `reach` of them where there are."""
        if self.allowed and token not in self.allowed:
            return True
        beginnings = self.words.get(token, ())
        return any(tuple(before[len(before) - len(each) :]) == each for each in beginnings)

    def taken(self, tokens: Sequence[int], before: Sequence[int]) -> list[int]:
        """So many of the tokens as may follow one after another."""
        known = list(before)
        for index, token in enumerate(tokens):
            if self.excludes(token, known):
                return list(tokens[:index])
            known.append(token)
        return list(tokens)

    @property
    def names(self) -> list[str]:
        """What they are, in a client's words."""
        return [*(["the allowed token ids"] if self.allowed else []), *(["the bad words"] if self.words else [])]


def exclusions_of(sampling: Sampling) -> Exclusions | None:
    """None when everything may come up."""
    if not sampling.allowed_ids and not sampling.bad_words:
        return None
    words: dict[int, _Beginnings] = {}
    for *beginning, last in sampling.bad_words:
        words[last] = (*words.get(last, ()), tuple(beginning))
    return Exclusions(
        allowed=frozenset(sampling.allowed_ids),
        words=words,
        reach=max((len(word) - 1 for word in sampling.bad_words), default=0),
    )
