"""What the text machine tells: the text that may be sent now, and whether a stop string has ended it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TextOutput:
    """What one feed made safe to send.

    text: never ends within a possible stop string. consumed_tokens: all tokens fed so far, or, once
    stopped, those up to and including the one that completed the stop string.
    """

    text: str
    is_stopped: bool
    consumed_tokens: int
