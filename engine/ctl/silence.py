"""How long a process that should speak all the time has said nothing to one who was listening. Ends nobody."""

from typing import Final, Literal

# A listener that was itself asleep, with its machine or by SIGSTOP, has missed no more than this.
_LONGEST_COUNTED_S: Final = 2.0
# Between the warning and the end: what the process still has to say reaches the terminal meanwhile.
LAST_WORDS_S: Final = 2.0


class Silence:
    """limit_s: of listening without a word. Each of its verdicts comes once, until it is heard again."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self.heard()

    def heard(self) -> None:
        """It has spoken, or begins anew."""
        self._silent_s = 0.0
        self._verdicts: list[Literal["warn", "end"]] = ["end", "warn"]

    def waited(self, waited_s: float) -> None:
        """The listener has listened for so long."""
        self._silent_s += min(waited_s, _LONGEST_COUNTED_S)

    def verdict(self) -> Literal["warn", "end"] | None:
        """What is due: at the limit to warn of the end, a little later to end it."""
        due_s = self.limit_s + (0.0 if len(self._verdicts) == 2 else LAST_WORDS_S)
        return self._verdicts.pop() if self._verdicts and self._silent_s >= due_s else None
