"""The key-value half of a GGUF file, typed. Knows nothing of tensors or of any output format."""

from dataclasses import dataclass
from typing import Any, TypeVar

from gguf import GGUFReader

from engine.ctl.failure import CommandError

Value = TypeVar("Value", str, int, float, bool)


@dataclass(frozen=True, slots=True)
class Metadata:
    """Typed look-ups in one file's metadata; a missing or mistyped key raises CommandError naming it."""

    reader: GGUFReader

    def has(self, key: str) -> bool:
        """Whether the file has this key."""
        return self.reader.get_field(key) is not None

    def get(self, key: str, type_: type[Value], default: Value | None = None) -> Value:
        """One scalar; `default` stands in for a missing key."""
        found = self._contents(key)
        if found is None:
            if default is None:
                raise CommandError(f"the GGUF file has no {key}")
            return default
        if type_ is float and isinstance(found, int) and not isinstance(found, bool):
            return type_(found)
        if not isinstance(found, type_) or (type_ is int and isinstance(found, bool)):
            raise CommandError(f"the GGUF file's {key} is {found!r}, not of type {type_.__name__}")
        return found

    def find(self, key: str, type_: type[Value]) -> Value | None:
        """One scalar, or None when the file lacks the key."""
        return self.get(key, type_) if self.has(key) else None

    def get_list(self, key: str, type_: type[Value]) -> list[Value]:
        """One array whose items are all of one type."""
        found = self._contents(key)
        if not isinstance(found, list) or not all(type(item) is type_ for item in found):
            raise CommandError(f"the GGUF file has no list of {type_.__name__} under {key}")
        return found

    def _contents(self, key: str) -> Any:
        field = self.reader.get_field(key)
        return None if field is None else field.contents()
