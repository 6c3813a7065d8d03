"""White space of which it is not known yet whether anything follows it, however much of it there is."""


class HeldSpace:
    """Pieces in, all of them out; joined each time they would be slow, and models write line breaks without end."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def add(self, text: str) -> None:
        """One more piece."""
        if text:
            self._parts.append(text)
            self._length += len(text)

    def tail(self, characters: int) -> str:
        """The last of it, that many characters or all."""
        found = ""
        for part in reversed(self._parts):
            if len(found) >= characters:
                break
            found = part + found
        return found[len(found) - characters :] if characters < len(found) else found

    def take(self) -> str:
        """All of it; none is left."""
        text, self._parts, self._length = "".join(self._parts), [], 0
        return text
