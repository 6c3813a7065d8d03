"""mlx-lm's parsers as the oracle: on whole texts, each of its formats reads the calls that ours reads."""

import importlib
import pkgutil
from typing import Any

import pytest

from tests.frontend.parsers.generated_calls import TOOLS, Call, GeneratedReply, generated_replies, read_calls, templates

TEMPLATES = templates()
# Our formats, by the module of the same.
ORACLES = {
    "function_gemma": ("function_gemma",),
    "gemma4": ("gemma4",),
    "glm47": ("glm45", "glm47"),
    "json_tools": ("hermes",),
    "kimi_k2": ("kimi_k2",),
    "kimi_k3": ("kimi_k3",),
    "laguna": ("glm47",),
    "longcat": ("longcat",),
    "minicpm5": ("minicpm5",),
    "minimax_m2": ("minimax_m2",),
    "mistral": ("mistral",),
    "muse_spark": ("muse_spark",),
    "pythonic": ("lfm2",),
    "qwen3_coder": ("qwen3_coder",),
}


def _is_word(call: Call) -> bool:
    return call.name.isidentifier() and all(key.isascii() for key in _keys(call.arguments))


def _keys(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [*value, *(key for item in value.values() for key in _keys(item))]
    return [key for item in value for key in _keys(item)] if isinstance(value, list) else []


def _is_flat(call: Call) -> bool:
    return _is_word(call) and not any(isinstance(value, list | dict) for value in call.arguments.values())


def _has_texts_alone(call: Call) -> bool:
    texts = [value for value in call.arguments.values() if isinstance(value, str)]
    return not any(text.replace(".", "").isdigit() or text in ("true", "null") for text in texts)


def _has_no_pitfall(call: Call) -> bool:
    values = call.arguments.values()
    return not any((isinstance(value, int) and value > 2**53) or value == "null" for value in values)


# What a module reads; beyond it, it raises or gives another value than was written.
READS = {
    "function_gemma": _is_flat,
    "gemma4": _is_word,
    "lfm2": _is_word,
    "minicpm5": _has_no_pitfall,
    "minimax_m2": _has_no_pitfall,
    "mistral": lambda call: "." not in call.name,
    "longcat": lambda call: bool(call.arguments),
    "muse_spark": _has_texts_alone,
    "qwen3_coder": _has_no_pitfall,
}
DECLARED: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": tool.name, "parameters": tool.parameters}} for tool in TOOLS.values()
]


def oracle_calls(module: str, text: str) -> list[Call]:
    """The calls of each section, as the module reads what stands between its markers."""
    parser = importlib.import_module(f"mlx_lm.tool_parsers.{module}")
    calls: list[Call] = []
    for section in text.split(parser.tool_call_start)[1:]:
        end = parser.tool_call_end
        parsed = parser.parse_tool_call(section.partition(end)[0] if end else section, DECLARED)
        calls += [Call(call["name"], call["arguments"]) for call in (parsed if isinstance(parsed, list) else [parsed])]
    return calls


def comparable(name: str, reply: GeneratedReply) -> bool:
    """Whether the oracle is made for all calls of a reply."""
    return all(READS[name](call) for call in reply.calls) if name in READS else True


def test_every_parser_of_the_oracle_is_asked() -> None:
    """A format that mlx-lm learns has to be found here, or named as ours."""
    folder = pytest.importorskip("mlx_lm.tool_parsers").__path__
    assert {module.name for module in pkgutil.iter_modules(folder)} == set(ORACLES)


@pytest.mark.parametrize(("module", "name"), [(module, name) for module, names in ORACLES.items() for name in names])
def test_calls_are_read_as_the_oracle_reads_them(module: str, name: str) -> None:
    """Names, order, and every argument's value."""
    pytest.importorskip("mlx_lm")
    replies = [reply for reply in generated_replies(TEMPLATES[name], 3, 60, is_plain=True) if comparable(name, reply)]
    assert len(replies) >= 10
    assert [oracle_calls(module, reply.text) for reply in replies] == [
        read_calls(TEMPLATES[name], reply.text) for reply in replies
    ]
