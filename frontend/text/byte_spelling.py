"""How vocabularies spell bytes: as stand-in letters (byte-level BPE) or as tokens such as `<0xE2>` (byte fallback)."""

from typing import Final


def _byte_level_alphabet() -> dict[str, int]:
    """The printable stand-in of each byte, as GPT-2 chose them: visible Latin-1 as it is, the others from U+0100."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in set(visible)]
    alphabet = {chr(byte): byte for byte in visible}
    alphabet.update({chr(0x100 + index): byte for index, byte in enumerate(hidden)})
    return alphabet


_BYTE_OF_CHARACTER: Final = _byte_level_alphabet()


def byte_level_bytes(spelling: str) -> bytes:
    """The bytes that a byte-level token spells; an added token spells itself."""
    try:
        return bytes([_BYTE_OF_CHARACTER[character] for character in spelling])
    except KeyError:
        return spelling.encode()


def fallback_byte(spelling: str) -> int | None:
    """The byte of a byte-fallback token; None for any other."""
    if len(spelling) != 6 or not spelling.startswith("<0x") or not spelling.endswith(">"):
        return None
    try:
        return int(spelling[3:5], 16)
    except ValueError:
        return None
