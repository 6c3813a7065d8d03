"""ChatTemplate renders what transformers renders, and refuses what a template refuses."""

from typing import Any

import jinja2
import pytest
import tokenizers
from transformers import PreTrainedTokenizerFast
from transformers.utils.chat_template_utils import render_jinja_template

from frontend.errors import RequestError
from frontend.text.template import ChatTemplate, TemplateChoice, compile_error, load_template
from frontend.text.tokenizer import Tokenizer
from protocol.errors import ErrorCode
from protocol.messages import BosRule
from tests.frontend.text import template_sources

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
CALL = {"type": "function", "id": "c1", "function": {"name": "get", "arguments": {"b": "é<", "a": [1, None]}}}

Messages = list[dict[str, Any]]

CONVERSATIONS: dict[str, Messages] = {
    "one": [{"role": "user", "content": 'Hi <there> & "you" 😀\n'}],
    "system": [{"role": "system", "content": " Be brief. "}, {"role": "user", "content": "  Hi  "}],
    "turns": [
        {"role": "user", "content": "a", "name": "ann"},
        {"role": "assistant", "content": "\nb", "reasoning_content": "\nbecause\n"},
        {"role": "user", "content": "c"},
        {"role": "assistant", "content": "d", "reasoning": "why"},
    ],
    "tools": [
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "content": '{"x": 1}', "tool_call_id": "c1"},
    ],
    "nulls": [
        {"role": "user", "content": "x", "name": None},
        {"role": "assistant", "content": "y", "tool_calls": None},
    ],
}
OPEN: dict[str, Messages] = {
    "plain": [{"role": "user", "content": "count"}, {"role": "assistant", "content": "one, two,"}],
    "space": [{"role": "user", "content": "count"}, {"role": "assistant", "content": "one, two, "}],
    "repeated": [{"role": "user", "content": "one"}, {"role": "assistant", "content": "one"}],
}


def by_transformers(source: str, messages: Messages, **kwargs: Any) -> str:
    """The oracle, given the messages as apply_chat_template gives them: without nulls."""
    chat = [{name: value for name, value in message.items() if value is not None} for message in messages]
    rendered, _ = render_jinja_template([chat], chat_template=source, **SPECIAL, **kwargs)
    return rendered[0]


def outcome(render: Any, *arguments: Any, **kwargs: Any) -> str | None:
    """The text, or None when the template raised."""
    try:
        return render(*arguments, **kwargs)
    except (RequestError, jinja2.TemplateError, TypeError):
        return None


@pytest.mark.parametrize("add_generation_prompt", [True, False])
@pytest.mark.parametrize("conversation", CONVERSATIONS)
@pytest.mark.parametrize("name", template_sources.ALL)
def test_renders_as_transformers(name: str, conversation: str, add_generation_prompt: bool) -> None:
    """Character for character, or both refuse."""
    source, messages = template_sources.ALL[name], CONVERSATIONS[conversation]
    expected = outcome(by_transformers, source, messages, add_generation_prompt=add_generation_prompt)
    ours = outcome(ChatTemplate(source, SPECIAL).render, messages, add_generation_prompt=add_generation_prompt)
    assert ours == expected


def test_the_comparison_mostly_compares_text() -> None:
    """A refusal on both sides proves little: it must stay the exception."""
    refused = [
        (name, conversation)
        for name, source in template_sources.ALL.items()
        for conversation, messages in CONVERSATIONS.items()
        if outcome(by_transformers, source, messages) is None
    ]
    assert refused == [("gemma", "system")]


@pytest.mark.parametrize("messages", OPEN)
@pytest.mark.parametrize("name", ["chatml", "llama_3", "qwen_3", "gemma"])
def test_an_open_last_message_renders_as_transformers(name: str, messages: str) -> None:
    """continue_final_message ends with the message's own text, no end marker behind it."""
    source = template_sources.ALL[name]
    expected = by_transformers(source, OPEN[messages], continue_final_message=True)
    ours = ChatTemplate(source, SPECIAL).render(
        OPEN[messages], add_generation_prompt=False, continue_final_message=True
    )
    assert ours == expected
    assert ours.rstrip().endswith(OPEN[messages][-1]["content"].rstrip())


def test_keyword_arguments_reach_the_template() -> None:
    """As chat_template_kwargs does."""
    template = ChatTemplate(template_sources.QWEN_3, SPECIAL)
    messages = CONVERSATIONS["one"]
    expected = by_transformers(
        template_sources.QWEN_3, messages, add_generation_prompt=True, tools=[{"a": 1}], enable_thinking=False
    )
    assert template.render(messages, tools=[{"a": 1}], enable_thinking=False) == expected
    assert expected.endswith("</think>\n\n")


def test_messages_are_left_as_they_are() -> None:
    """Rendering writes nothing into the caller's messages."""
    messages: Messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "reasoning": "c"}]
    ChatTemplate(template_sources.CHATML, SPECIAL).render(
        messages, add_generation_prompt=False, continue_final_message=True
    )
    assert messages == [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "reasoning": "c"}]


def test_arguments_are_text_for_a_template_that_concatenates_them() -> None:
    """Most templates want an object, a few a string: each gets what it can use."""
    source = (
        "{% for m in messages %}{% for c in m.tool_calls %}{{ '>' + c.function.arguments }}{% endfor %}{% endfor %}"
    )
    assert ChatTemplate(source, {}).render(CONVERSATIONS["tools"]) == '>{"b": "é<", "a": [1, null]}'


@pytest.mark.parametrize(
    ("source", "part"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ messages[5].content }}", "no element 5"),
        ("{{ messages[0].content + 1 }}", "concatenate"),
        ("{{ 1 / 0 }}", "division"),
        ("{{ messages.append(1) }}", "'append' of 'list' object is unsafe"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{% set ns = namespace() %}{% set ns._x = 1 %}", "_x"),
    ],
)
def test_what_a_template_raises_is_a_400(source: str, part: str) -> None:
    """With the template's own words."""
    with pytest.raises(RequestError, match=part) as caught:
        ChatTemplate(source, {}).render(CONVERSATIONS["one"])
    assert (caught.value.code, caught.value.param) == (ErrorCode.INVALID_REQUEST, "messages")


def test_a_template_that_does_not_compile_fails_chats_only() -> None:
    """It is the model's fault, told at the first chat with the line; making it raises nothing."""
    template = ChatTemplate("a\n{% if %}", {})
    with pytest.raises(RequestError, match="line 2") as caught:
        template.render(CONVERSATIONS["one"])
    assert caught.value.code is ErrorCode.BAD_MODEL


@pytest.mark.parametrize(
    ("source", "content"),
    [(template_sources.CHATML, ""), (template_sources.CHATML, "  "), ("{{ messages[0].content }}", "dropped")],
)
def test_a_message_that_cannot_be_continued_is_refused(source: str, content: str) -> None:
    """Without text to go on from, or with a template that drops it."""
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": content}]
    with pytest.raises(RequestError, match="continue"):
        ChatTemplate(source, {}).render(messages, add_generation_prompt=False, continue_final_message=True)


def test_both_ends_at_once_are_refused() -> None:
    """A new turn and an open one exclude each other."""
    with pytest.raises(RequestError, match="exclude"):
        ChatTemplate(template_sources.CHATML, {}).render(OPEN["plain"], continue_final_message=True)


def tokenizer_of(template: str | None) -> Tokenizer:
    """With a template, or without one."""
    return with_templates({} if template is None else {"default": template})


def with_templates(templates: dict[str, str]) -> Tokenizer:
    """With several, by name."""
    return Tokenizer(tokenizers.Tokenizer(tokenizers.models.BPE()), BosRule(), SPECIAL, templates)


def test_an_operators_template_wins_over_the_models() -> None:
    """And the default one steps in only where there is none at all."""
    messages = CONVERSATIONS["one"][:1]
    mine = TemplateChoice(source="mine {{ eos_token }}", has_default=True)
    assert load_template(tokenizer_of("theirs"), mine).render(messages) == "mine </s>"
    default = TemplateChoice(has_default=True)
    assert load_template(tokenizer_of("theirs"), default).render(messages) == "theirs"
    chatml = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert load_template(tokenizer_of(None), default).render([{"role": "user", "content": "hi"}]) == chatml
    assert load_template(tokenizer_of(None)).is_transcript
    assert not load_template(tokenizer_of(None), default).is_transcript


TURNS = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Which?"},
    {"role": "assistant", "content": "That one."},
    {"role": "user", "content": " Why? \n"},
]


@pytest.mark.parametrize(
    "role_mapping",
    [
        None,
        {"user": "U> ", "assistant": "A> ", "stop": "|"},
        {"system": "S", "user": "U", "assistant": "A", "stop": "\n\n", "bos": "B"},
        {"user": "only "},
    ],
)
def test_a_model_without_a_template_is_told_a_transcript(role_mapping: dict[str, str] | None) -> None:
    """mlx_lm.server's own words, and those of a request in their place."""
    oracle = pytest.importorskip("mlx_lm.server")
    kwargs = {} if role_mapping is None else {"role_mapping": role_mapping}
    for count in range(1, len(TURNS) + 1):
        rendered = load_template(tokenizer_of(None)).render(TURNS[:count], **kwargs)
        assert rendered == oracle.convert_chat(TURNS[:count], role_mapping)


def test_a_transcript_may_be_continued() -> None:
    """Or left without a new turn."""
    template = load_template(tokenizer_of(None))
    turns = [*TURNS[:1], {"role": "user", "content": "Count."}, {"role": "assistant", "content": "One, "}]
    opened = template.render(turns, add_generation_prompt=False, continue_final_message=True)
    assert opened == "ASSISTANT's RULE: Be brief.\nUSER: Count.\nASSISTANT: One, "
    assert template.render(turns[:2], add_generation_prompt=False) == "ASSISTANT's RULE: Be brief.\nUSER: Count.\n"


@pytest.mark.parametrize(
    "names", [["default"], ["default", "tool_use", "rag"], ["rag", "default"], ["tool_use"], ["rag"]]
)
@pytest.mark.parametrize("tools", [None, [CALL]])
def test_a_request_with_tools_has_the_template_that_transformers_takes(names: list[str], tools: Any) -> None:
    """Of several by name: `tool_use`, or the default; without a default a chat without tools is refused, as there."""
    templates = {name: f"{name} {{{{ messages[0].content }}}}" for name in names}
    backend = tokenizers.Tokenizer(tokenizers.models.BPE())
    theirs = PreTrainedTokenizerFast(
        tokenizer_object=backend, chat_template=[{"name": name, "template": text} for name, text in templates.items()]
    )
    messages = CONVERSATIONS["one"]
    found = load_template(with_templates(templates))
    ours = outcome((found if tools is None else found.with_tools).render, messages)
    try:
        expected = by_transformers(theirs.get_chat_template(tools=tools), messages)
    except ValueError:
        expected = None
    assert expected == ours
    assert (ours is None) == ("default" not in names and (tools is None or "tool_use" not in names))


def test_an_operators_template_is_the_one_for_tools_too() -> None:
    """It is given in place of all that the model has."""
    found = load_template(with_templates({"default": "d", "tool_use": "t"}), TemplateChoice(source="mine"))
    assert found.with_tools is found


def test_a_chat_without_tools_and_without_template_is_told_so() -> None:
    """A model may have one for tools alone."""
    with pytest.raises(RequestError, match="requests without tools"):
        load_template(with_templates({"tool_use": "t"})).render(CONVERSATIONS["one"])


def test_a_requests_variables_win_over_the_operators() -> None:
    """Which win over the special tokens; what nobody sets is undefined."""
    choice = TemplateChoice(
        source="{{ eos_token }} {{ mood }} {{ depth }}", variables={"mood": "calm", "eos_token": "E"}
    )
    template = load_template(tokenizer_of(None), choice)
    assert template.render(CONVERSATIONS["one"]) == "E calm "
    assert template.render(CONVERSATIONS["one"], mood="wild", depth=2) == "E wild 2"


def test_variables_that_no_template_reads_are_said(caplog: pytest.LogCaptureFixture) -> None:
    """Once, at the start: a flag is never without effect in silence."""
    choice = TemplateChoice(source="{{ mood }}", variables={"mood": "calm", "deep": 1})
    load_template(tokenizer_of(None), choice)
    load_template(tokenizer_of(None), TemplateChoice(source="{{ mood }}", variables={"mood": "calm"}))
    assert [record.__dict__["names"] for record in caplog.records] == [["deep"]]


def test_why_a_template_does_not_compile() -> None:
    """The line, and jinja2's words; a sound one has no reason."""
    assert compile_error("{% generation %}x{% endgeneration %}") is None
    assert compile_error("{% break %}") == "'break' outside loop"
    assert compile_error("ok\n{% for x %}") == "line 2: expected token 'in', got 'end of statement block'"
