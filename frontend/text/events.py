"""What the text machine tells: the text that may be sent now, and whether a stop string has ended it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TextOutput:
    """What one feed made safe to send.

    text: never ends within a possible stop string. stop: the stop string that was found. consumed_tokens: all
    tokens fed so far, or, once stopped, those up to and including the one that completed the stop string.
    starts: one for each token whose text is out now and was not before, in order: the character at which it
    begins. A stop string takes the tokens with it that have no text before the cut. Only with has_spans.
    """

    text: str
    stop: str | None
    consumed_tokens: int
    starts: tuple[int, ...] = ()

    @property
    def is_stopped(self) -> bool:
        """Whether a stop string has ended the text."""
        return self.stop is not None
