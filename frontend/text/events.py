"""What the text machine tells: the pieces of a reply that may be sent now, and whether they end it."""

from dataclasses import dataclass
from typing import NamedTuple

from frontend.text.structure import Piece, TextPiece


class ToldPiece(NamedTuple):
    """A piece, and one start for each token that is told with it, in order: the character at which it begins.

    Starts only with has_spans. They count all text that the tokens spell, markers included.
    """

    piece: Piece
    starts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TextOutput:
    """What one feed made safe to send.

    pieces: their text never ends within a possible stop string. stop: the stop string that was found. is_over: the
    reply ends here, by it or by a call that is the only one. consumed_tokens: all tokens fed so far, or, once it is
    over, those up to and including the one that ended it. A stop string takes the tokens with it that have no text
    before the cut; of the others each is told once, with its text or after it. reasoning_tokens: of those fed so far,
    the ones within reasoning, with those that begin and end it.
    """

    pieces: tuple[ToldPiece, ...]
    stop: str | None
    consumed_tokens: int
    is_over: bool = False
    reasoning_tokens: int = 0

    @property
    def text(self) -> str:
        """The text among the pieces."""
        return "".join([told.piece.text for told in self.pieces if isinstance(told.piece, TextPiece)])

    @property
    def starts(self) -> tuple[int, ...]:
        """Of all tokens that are told."""
        return tuple([start for told in self.pieces for start in told.starts])
