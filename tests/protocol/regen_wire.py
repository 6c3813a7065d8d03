"""Rewrites goldens/wire from wire_examples: `python -m tests.protocol.regen_wire`; the commit says why."""

from pathlib import Path
from typing import Final

import msgspec

from protocol.codec import encode
from tests.protocol.wire_examples import EXAMPLES, AnyMessage

WIRE_GOLDENS: Final = Path(__file__).parents[2] / "goldens" / "wire"


def readable(message: AnyMessage) -> str:
    """The same message for a human reader; bytes as base64."""
    return msgspec.json.format(msgspec.json.encode(message), indent=2).decode() + "\n"


def main() -> None:
    """Removes what is no example any more, and writes the rest."""
    WIRE_GOLDENS.mkdir(parents=True, exist_ok=True)
    for path in WIRE_GOLDENS.iterdir():
        path.unlink()
    for name, message in EXAMPLES.items():
        (WIRE_GOLDENS / f"{name}.msgpack").write_bytes(encode(message))
        (WIRE_GOLDENS / f"{name}.json").write_text(readable(message), encoding="utf-8")


if __name__ == "__main__":
    main()
