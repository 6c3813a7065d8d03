"""A request's tools and reasoning on a model: what the prompt says, and what the reply is read as."""

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer

from frontend.dialects.base import ChatPrompt, Generation, NamedTool, TextPrompt, Tool, ToolUse
from frontend.errors import RequestError
from frontend.model_text import ModelText, Parsers, load_model_text
from frontend.parsers.registry import REASONING_FORMATS, TOOL_FORMATS
from frontend.reply_form import constrained, described_tool, rendered, reply_form, unread_fields
from frontend.text.pipeline import TextOptions, TextPipeline
from frontend.text.structure import PLAIN_TEXT, ReasoningPiece, TextPiece
from protocol.errors import ErrorCode
from protocol.messages import BosRule
from tests.fakes.tokenizer_folder import CHAT_TEMPLATE, build_tokenizer_folder
from tests.fakes.tools import NOW, WEATHER

CHOSEN = Parsers()
USER = {"role": "user", "content": "Hi"}
USE = ToolUse(tools=(WEATHER, NOW))
WITH_TOOLS = (
    "{% if tools %}{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}"
    'Answer as <tool_call>{"name": …}</tool_call>\n{% endif %}' + CHAT_TEMPLATE
)
THINKING = (
    CHAT_TEMPLATE + "{% if enable_thinking is false %}<think>\n\n</think>\n\n"
    "{% elif add_generation_prompt %}<think>\n{% endif %}"
)
# The ends of their templates, and what is left of a former turn's thought.
QWEN3_THINKING = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{{ message.content.split('</think>')[-1] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)
DEEPSEEK_R1 = (
    "{% for message in messages %}{% if message.role == 'user' %}<｜User｜>{{ message.content }}"
    "{% else %}<｜Assistant｜>{{ message.content.split('</think>')[-1] }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<｜Assistant｜><think>\n{% endif %}"
)
STRANGE = "{% for tool in tools %}{{ tool.function.name }}{% endfor %}" + CHAT_TEMPLATE


def model(folder: Path, template: str | list[dict[str, str]], parsers: Parsers = CHOSEN) -> ModelText:
    """A model with this template, or with several by name."""
    build_tokenizer_folder(folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": template}))
    return load_model_text(folder, BosRule(), parsers=parsers)


def chat(*messages: dict[str, Any], **fields: Any) -> Generation:
    """A request with these messages."""
    prompt = {name: fields.pop(name) for name in ("variables", "asked_by", "continue_final_message") if name in fields}
    return Generation(model=None, prompts=(ChatPrompt(messages or (USER,), **prompt),), **fields)


def form_of(generation: Generation, text: ModelText) -> Any:
    """The form of its reply."""
    prompt = generation.prompts[0]
    assert isinstance(prompt, ChatPrompt)
    return reply_form(generation, text.tokenizer.encode_rendered(rendered(prompt, generation.tools, text)), text)


@pytest.mark.parametrize("tools", [None, ToolUse(tools=(WEATHER,), choice="none")])
def test_earlier_calls_are_told_to_a_template_that_knows_none(tmp_path: Path, tools: ToolUse | None) -> None:
    """Also by a request that offers no tools now; a conversation without calls is left as it is."""
    function = {"name": "weather", "arguments": {"city": "Oslo"}}
    calls = {"role": "assistant", "content": "", "tool_calls": [{"id": "a", "type": "function", "function": function}]}
    result = {"role": "tool", "tool_call_id": "a", "content": "rain"}
    prompt = rendered(ChatPrompt((USER, calls, result)), tools, model(tmp_path, CHAT_TEMPLATE))
    assert '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>' in prompt
    assert "<|im_start|>user\n<tool_response>\nrain\n</tool_response>" in prompt
    plain = rendered(ChatPrompt((USER, USER)), tools, model(tmp_path, CHAT_TEMPLATE))
    assert plain.count("<|im_start|>user\nHi<|im_end|>") == 2


def test_a_template_with_tools_is_given_them_as_declared(tmp_path: Path) -> None:
    """And its format reads the reply."""
    text = model(tmp_path, WITH_TOOLS)
    prompt = rendered(ChatPrompt((USER,)), USE, text)
    assert json.loads(prompt.splitlines()[0]) == described_tool(WEATHER)
    assert form_of(chat(tools=USE), text).call_format is TOOL_FORMATS["hermes"]


def test_a_tool_without_schema_takes_an_empty_object() -> None:
    """Templates look into it."""
    assert described_tool(Tool(name="now")) == {
        "type": "function",
        "function": {"name": "now", "description": "", "parameters": {"type": "object", "properties": {}}},
    }


def test_a_template_without_tools_tells_them_in_a_system_message(tmp_path: Path) -> None:
    """In Hermes' form, before the conversation; calls and results of it become text."""
    text = model(tmp_path, CHAT_TEMPLATE)
    call = {"type": "function", "function": {"name": "now", "arguments": {}}}
    messages = (
        {"role": "system", "content": "Be brief."},
        USER,
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "12:00"},
    )
    prompt = rendered(ChatPrompt(messages), USE, text)
    assert prompt.startswith("<|im_start|>system\nBe brief.\n\nYou can call functions.")
    assert json.dumps(described_tool(WEATHER)) in prompt
    assert prompt.endswith(
        '<|im_start|>assistant\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>\n12:00\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    )
    assert form_of(chat(tools=USE), text).call_format is TOOL_FORMATS["hermes"]


def test_tools_told_in_hermes_form_are_read_in_it(tmp_path: Path) -> None:
    """DeepSeek's templates write calls of their own form, but tell the model of no tools; a named parser wins."""
    template = CHAT_TEMPLATE + "{# <｜tool▁sep｜> #}"
    text = model(tmp_path, template)
    assert text.formats.tools is TOOL_FORMATS["deepseek_v31"]
    assert form_of(chat(tools=USE), text).call_format is TOOL_FORMATS["hermes"]
    named = model(tmp_path, template, Parsers(tools="deepseek_v31"))
    assert form_of(chat(tools=USE), named).call_format is TOOL_FORMATS["deepseek_v31"]


def test_a_template_without_the_role_system_has_them_in_the_first_user_message(tmp_path: Path) -> None:
    """Some refuse a system message."""
    strict = "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}" + CHAT_TEMPLATE
    prompt = rendered(ChatPrompt((USER,)), USE, model(tmp_path, strict))
    assert prompt.startswith("<|im_start|>user\nYou can call functions.")
    assert "\n\nHi<|im_end|>" in prompt


def test_tool_choice_none_tells_the_model_of_no_tools(tmp_path: Path) -> None:
    """And reads no calls."""
    text = model(tmp_path, WITH_TOOLS)
    none = ToolUse(tools=(WEATHER,), choice="none")
    assert rendered(ChatPrompt((USER,)), none, text) == rendered(ChatPrompt((USER,)), None, text)
    assert form_of(chat(tools=none), text) == PLAIN_TEXT


def test_a_template_whose_format_is_unknown_is_refused_unless_told(tmp_path: Path) -> None:
    """Its calls would come as text, which no client expects."""
    with pytest.raises(RequestError, match="--tool-parser") as caught:
        form_of(chat(tools=USE), model(tmp_path / "a", STRANGE))
    assert (caught.value.code, caught.value.param) == (ErrorCode.UNSUPPORTED, "tools")
    assert form_of(chat(tools=USE), model(tmp_path / "b", STRANGE, Parsers(tools="none"))) == PLAIN_TEXT
    named = form_of(chat(tools=USE), model(tmp_path / "c", STRANGE, Parsers(tools="hermes")))
    assert named.call_format is TOOL_FORMATS["hermes"]


def test_no_parser_and_no_tools_in_the_template_is_refused(tmp_path: Path) -> None:
    """Nobody would tell the model of them."""
    with pytest.raises(RequestError, match="--tool-parser none"):
        form_of(chat(tools=USE), model(tmp_path, CHAT_TEMPLATE, Parsers(tools="none")))


def test_a_template_for_tools_is_used_with_tools(tmp_path: Path) -> None:
    """And alone says how calls are read; the default is used without tools, and says how reasoning is."""
    by_name = {"default": CHAT_TEMPLATE + "{# <think> </think> #}{{ tone }}", "tool_use": WITH_TOOLS, "rag": "x"}
    text = model(tmp_path, [{"name": name, "template": source} for name, source in by_name.items()])
    assert (text.formats.tools, text.formats.reasoning) == (TOOL_FORMATS["hermes"], REASONING_FORMATS["think"])
    prompt = rendered(ChatPrompt((USER,)), USE, text)
    assert json.loads(prompt.splitlines()[0]) == described_tool(WEATHER)
    plain = rendered(ChatPrompt((USER,)), None, text)
    assert plain == rendered(ChatPrompt((USER,)), ToolUse(tools=(WEATHER,), choice="none"), text)
    assert "weather" not in plain
    assert form_of(chat(tools=USE), text).call_format is TOOL_FORMATS["hermes"]
    asked = {"asked_by": {"chat_template_kwargs.tone": ("tone",)}}
    assert unread_fields(chat(**asked), text) == ()
    assert unread_fields(chat(**asked, tools=USE), text) == ("chat_template_kwargs.tone",)


def test_only_a_grammar_that_allows_nothing_else_forces_a_call(tmp_path: Path) -> None:
    """A text can be no answer then; where calls stay text nothing forces them."""
    text = model(tmp_path / "a", WITH_TOOLS)
    choices = ("auto", "none", "required", NamedTool("now"))
    forced = [form_of(chat(tools=ToolUse(tools=(WEATHER, NOW), choice=one)), text).is_call_forced for one in choices]
    assert forced == [False, False, True, True]
    unread = model(tmp_path / "b", STRANGE, Parsers(tools="none"))
    assert not form_of(chat(tools=ToolUse(tools=(WEATHER,), choice="required")), unread).is_call_forced


def test_ids_of_calls_are_shortened_for_a_template_that_wants_them_short(tmp_path: Path) -> None:
    """A call and its result keep the same id; one that is short already stays."""
    template = (
        "{# [TOOL_CALLS] #}{% for message in messages %}{% for call in message.tool_calls or [] %}{{ call.id }},"
        "{% endfor %}{{ message.tool_call_id }},{% endfor %}{{ tools }}"
    )
    calls = [
        {"type": "function", "id": id_, "function": {"name": "now", "arguments": {}}} for id_ in ("call_1", "a" * 9)
    ]
    results = [{"role": "tool", "content": "", "tool_call_id": call["id"]} for call in calls]
    turn = {"role": "assistant", "content": "", "tool_calls": calls}
    prompt = rendered(ChatPrompt((turn, *results)), None, model(tmp_path, template))
    first, second, _, again, last, _ = prompt.split(",")
    assert (len(first), first, second, last) == (9, again, "a" * 9, "a" * 9)
    assert first.isalnum()


def test_reasoning_begins_where_the_prompt_has_opened_it(tmp_path: Path) -> None:
    """By the prompt's end, so a variable that switches thinking off is seen."""
    text = model(tmp_path, THINKING)
    assert text.formats.reasoning is REASONING_FORMATS["think"]
    assert form_of(chat(), text).is_in_reasoning
    assert not form_of(chat(variables={"enable_thinking": False}), text).is_in_reasoning
    asks = {"role": "user", "content": "What is <think>?"}
    assert not form_of(chat(asks, variables={"enable_thinking": False}), text).is_in_reasoning


@pytest.mark.parametrize("is_special", [None, False, True])
@pytest.mark.parametrize("template", [QWEN3_THINKING, DEEPSEEK_R1])
def test_a_template_that_opens_its_thought_starts_in_reasoning(
    tmp_path: Path, template: str, is_special: bool | None
) -> None:
    """As Qwen 3's thinking models and DeepSeek R1 have it: the mark spelled out, or a token, special or not."""
    folder = build_tokenizer_folder(tmp_path)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    if is_special is not None:
        tokenizer.add_tokens([AddedToken(mark, special=is_special) for mark in ("<think>", "</think>")])
        tokenizer.save(str(folder / "tokenizer.json"))
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": template}))
    text = load_model_text(folder, BosRule())
    for generation in (chat(), chat(tools=USE)):
        form = form_of(generation, text)
        assert form.reasoning is REASONING_FORMATS["think"]
        assert form.is_in_reasoning
        pipeline = TextPipeline(text.tokenizer, TextOptions(), form)
        outputs = [pipeline.feed([id_]) for id_ in text.tokenizer.encode_rendered("Hm. Yes.\n</think>\n\nHello!")]
        told = [piece.piece for output in [*outputs, pipeline.finish()] for piece in output.pieces]
        assert "".join(piece.text for piece in told if isinstance(piece, ReasoningPiece)) == "Hm. Yes."
        assert "".join(piece.text for piece in told if isinstance(piece, TextPiece)) == "Hello!"


@pytest.mark.parametrize(("content", "is_open"), [("<think>so", True), ("<think>so</think>x", False), ("x", False)])
def test_a_continued_message_goes_on_where_it_stands(tmp_path: Path, content: str, is_open: bool) -> None:
    """In its reasoning, if that is open."""
    text = model(tmp_path, CHAT_TEMPLATE + "{# </think> #}")
    generation = Generation(
        model=None,
        prompts=(
            ChatPrompt(
                (USER, {"role": "assistant", "content": content}),
                add_generation_prompt=False,
                continue_final_message=True,
            ),
        ),
    )
    assert form_of(generation, text).is_in_reasoning == is_open


def test_a_completion_is_text_alone(tmp_path: Path) -> None:
    """Also of a model that thinks."""
    generation = Generation(model=None, prompts=(TextPrompt("<think>\n"),))
    assert reply_form(generation, [1], model(tmp_path, THINKING)) == PLAIN_TEXT


def test_fields_that_the_template_does_not_read_are_named(tmp_path: Path) -> None:
    """Thinking cannot be switched where there is none."""
    asked = {"enable_thinking": ("enable_thinking", "thinking"), "chat_template_kwargs.x": ("x",)}
    assert unread_fields(chat(asked_by=asked), model(tmp_path / "a", THINKING)) == ("chat_template_kwargs.x",)
    assert unread_fields(chat(asked_by=asked), model(tmp_path / "b", CHAT_TEMPLATE)) == tuple(asked)


@pytest.mark.parametrize(
    ("tools", "field"),
    [
        (ToolUse(tools=(WEATHER,), choice="required"), "tool_choice"),
        (ToolUse(tools=(WEATHER, NOW), choice=NamedTool("now")), "tool_choice"),
        (ToolUse(tools=(Tool(name="now", is_strict=True),)), "tools"),
    ],
)
def test_a_choice_is_a_grammar(tmp_path: Path, tools: ToolUse, field: str) -> None:
    """Named after the field that asked for it."""
    text = model(tmp_path, WITH_TOOLS)
    generation = chat(tools=tools)
    constraint = constrained(generation, form_of(generation, text), text).constraint
    assert constraint is not None
    assert (constraint.field, constraint.grammar.kind) == (field, "lark")


def test_a_free_choice_is_no_grammar(tmp_path: Path) -> None:
    """Nor a request without tools."""
    text = model(tmp_path, WITH_TOOLS)
    for generation in (chat(), chat(tools=USE), chat(tools=ToolUse(tools=(WEATHER,), choice="none"))):
        assert constrained(generation, form_of(generation, text), text) == generation
