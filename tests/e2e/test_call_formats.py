"""Every call format from socket to socket: a model that writes a golden's text, the real engine, a frontend, HTTP."""

import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from frontend.parsers.registry import REASONING_FORMATS, TOOL_FORMATS
from frontend.settings import Settings
from tests.fakes.processes import child
from tests.fakes.scripted_model import ScriptedModel, build_scripted_model
from tests.fakes.serving import decoded_events, http_frontend
from tests.fakes.tools import TOOLS
from tests.frontend.parsers.golden_cases import Case, cases, golden_files, load

# It writes nothing but the number of its tools, so that a prompt can have any length; `~` is in no golden.
TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}{{ tools | length }}:"
FILLER, BEHIND_FILLER = "~", f"{len(TOOLS)}:"
LEAST_PROMPT = 12
DECLARED = [
    {"type": "function", "function": {"name": tool.name, "parameters": tool.parameters or {}}}
    for tool in TOOLS.values()
]
_MARK = re.compile(r"<[|｜][^|｜>]*[|｜]>|\[/?[A-Z_]+\]")


class Script(NamedTuple):
    """One golden case, and the formats that read it."""

    tools: str
    reasoning: str
    case: Case


def scripts() -> dict[str, Script]:
    """Of each golden with calls the case that has most of them, where the prompt opens nothing."""
    found: dict[str, Script] = {}
    for path in golden_files():
        content = load(path)
        if content["tools"] is not None:
            whole = [case for case in cases(path).values() if all(kind != "broken" for kind, _ in case.pieces)]
            fit = [case for case in whole if not case.form.is_in_reasoning]
            most = max(fit, key=lambda case: sum(kind == "end" for kind, _ in case.pieces))
            found[path.stem] = Script(content["tools"], content["reasoning"] or "none", most)
    return found


def special_marks() -> list[str]:
    """What models have as special tokens: the text machine must see them, the client must not."""
    markers: list[str] = []
    for call_format in TOOL_FORMATS.values():
        markers += [*call_format.openers, *call_format.start_openers, *call_format.marks]
    for reasoning in REASONING_FORMATS.values():
        markers += [*reasoning.begins, *reasoning.ends, *reasoning.dropped]
    return sorted({mark for marker in markers for mark in _MARK.findall(marker)})


SCRIPTS = scripts()
_SPECIAL = re.compile("|".join(map(re.escape, special_marks())))


@pytest.fixture(scope="module")
def model() -> Iterator[ScriptedModel]:
    """One model that has all scripts, and an engine with it; the engine's runtime folder is beside its files."""
    with tempfile.TemporaryDirectory(prefix="cv-", ignore_cleanup_errors=True) as name:
        texts = [script.case.text for script in SCRIPTS.values()]
        built = build_scripted_model(
            Path(name) / "m", texts, special=special_marks(), template=TEMPLATE, least_prompt=LEAST_PROMPT
        )
        arguments = ["-m", "engine", "--model", str(built.folder), "--runtime-dir", str(Path(name) / "r")]
        with child([*arguments, "--log-level", "warning"]):
            yield built


def joined(events: list[Any]) -> dict[str, Any]:
    """What a client makes of the deltas."""
    message: dict[str, Any] = {"content": "", "reasoning_content": "", "calls": []}
    for event in events:
        choice = event["choices"][0]
        for name in ("content", "reasoning_content"):
            message[name] += choice["delta"].get(name, "")
        for part in choice["delta"].get("tool_calls", []):
            if "id" in part:
                message["calls"].append([part["function"]["name"], ""])
            message["calls"][part["index"]][1] += part["function"]["arguments"]
        message["finish"] = choice["finish_reason"]
    return message


def expected(case: Case) -> dict[str, Any]:
    """The same of a golden's pieces."""
    message: dict[str, Any] = {"content": "", "reasoning_content": "", "calls": [], "finish": "tool_calls"}
    for kind, text in case.pieces:
        match kind:
            case "text":
                # Here the marks are special tokens, which no client is shown.
                message["content"] += _SPECIAL.sub("", text)
            case "reasoning":
                message["reasoning_content"] += text
            case "call":
                message["calls"].append([text, ""])
            case "arguments":
                message["calls"][-1][1] += text
    return message


@pytest.mark.parametrize("name", SCRIPTS)
async def test_calls_reach_the_client(model: ScriptedModel, name: str) -> None:
    """Names, arguments, reasoning and the text around, streamed; the same in a reply that is not."""
    script = SCRIPTS[name]
    behind = len(model.tokenizer.encode(BEHIND_FILLER, add_special_tokens=False).ids)
    filler = FILLER * (model.prompt_tokens[list(SCRIPTS).index(name)] - behind)
    body = {"messages": [{"role": "user", "content": filler}], "tools": DECLARED, "temperature": 0}
    settings = Settings(
        runtime_dir=str(model.folder.parent / "r"), tool_parser=script.tools, reasoning_parser=script.reasoning
    )
    async with http_frontend(settings) as http:
        url = f"{http.url}/v1/chat/completions"
        async with http.session.post(url, json={**body, "stream": True}) as response:
            assert response.status == 200, await response.text()
            events = decoded_events(await response.read())
        async with http.session.post(url, json=body) as response:
            whole = json.loads(await response.read())["choices"][0]
    assert events[-1] == "[DONE]"
    assert joined(events[:-1]) == expected(script.case)
    calls = [[call["function"]["name"], call["function"]["arguments"]] for call in whole["message"]["tool_calls"]]
    assert calls == expected(script.case)["calls"]
    assert whole["finish_reason"] == "tool_calls"
