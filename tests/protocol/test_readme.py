"""protocol/README.md says what the code does: every message, field, type, default, code and limit, and no more."""

import re
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from protocol import codec, endpoint, messages, sampling, status
from protocol.errors import ErrorCode
from tests.protocol.strategies import structs_of
from tests.protocol.wire_tables import described_default, described_type, own_fields

README: Final = (Path(__file__).parents[2] / "protocol" / "README.md").read_text(encoding="utf-8")
STRUCTS: Final = {**structs_of(messages), **structs_of(sampling), **structs_of(status)}
_HEADING: Final = re.compile(r"^### (\w+)(?: — `(\w+)`)?$", re.MULTILINE)
_FIELD: Final = re.compile(r"^\| `(\w+)` \| (.+?) \| (.+?) \| (.+) \|$", re.MULTILINE)
_CODE: Final = re.compile(r"^\| `(\w+)` \| ([^|]+) \|$", re.MULTILINE)
_BASES: Final = ("ToEngine", "FromEngine")


class _Section(NamedTuple):
    tag: str | None
    body: str


def _sections() -> dict[str, _Section]:
    parts = _HEADING.split(README)[1:]
    found = zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    return {name: _Section(tag, body.split("\n## ")[0]) for name, tag, body in found}


def test_every_struct_has_its_section_and_no_other_is_told() -> None:
    """What is on the wire is in the document, once."""
    assert len(_HEADING.findall(README)) == len(_sections())
    assert set(_sections()) == set(STRUCTS)


@pytest.mark.parametrize("name", sorted(set(STRUCTS) - set(_BASES)))
def test_the_tag_is_told(name: str) -> None:
    """A tagged struct's heading has its tag, an untagged one's has none."""
    assert _sections()[name].tag == STRUCTS[name].__struct_config__.tag


@pytest.mark.parametrize("name", sorted(STRUCTS))
def test_fields_types_and_defaults_are_told(name: str) -> None:
    """The table has the struct's own fields in their order, each with type, bounds, default and a meaning."""
    told = [row[:3] for row in _FIELD.findall(_sections()[name].body)]
    assert told == [
        (field.name, described_type(field), described_default(field)) for field in own_fields(STRUCTS[name])
    ]


def test_every_error_code_is_told() -> None:
    """The table of codes has every code, in the order of the code."""
    told = [code for code, _ in _CODE.findall(README.split("## Error codes")[1])]
    assert told == [code.value for code in ErrorCode]


@pytest.mark.parametrize(
    "words",
    [
        f"Protocol version: **{messages.PROTOCOL_VERSION}** (`PROTOCOL_VERSION`)",
        f"{codec.MAX_FRAME_BYTES:,} bytes (`MAX_FRAME_BYTES`)",
        f"{codec.MAX_CHUNK_BYTES:,} bytes of data (`MAX_CHUNK_BYTES`)",
        f"{codec.MAX_ITEMS:,} items (`MAX_ITEMS`)",
        f"{codec.MAX_PROMPT_LOGPROBS:,} entries\n(`MAX_PROMPT_LOGPROBS`)",
        f"{endpoint.MAX_SOCKET_PATH_BYTES} bytes (`MAX_SOCKET_PATH_BYTES`",
        f"{endpoint.HIGH_WATER_MARK:,} messages\n  unread (`HIGH_WATER_MARK`)",
        f"{endpoint.LEASE_S:g} s of silence (`LEASE_S`)",
    ],
)
def test_the_numbers_are_true(words: str) -> None:
    """A limit that changes in the code changes here."""
    assert words in README


def test_the_ping_interval_is_a_second() -> None:
    """The document says it in a word."""
    assert endpoint.PING_INTERVAL_S == 1.0
    assert "pings every second (`PING_INTERVAL_S`)" in README
