"""A Responses body becomes a Generation, or a 400 that names the field."""

from typing import Any

import pytest

from frontend.dialects.base import AskedLogprobs, ChatPrompt, Constraint, Generation
from frontend.dialects.openai_responses import parse_responses
from frontend.dialects.openai_responses_frames import asked_of
from frontend.dialects.openai_responses_items import Recalled
from frontend.errors import RequestError
from protocol.errors import ErrorCode
from protocol.messages import Grammar

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}


def parsed(recalled: Recalled | None = None, **fields: Any) -> Generation:
    body = {"input": "Hello?", **fields}
    return parse_responses(body) if recalled is None else parse_responses(body, recalled)


def messages(generation: Generation) -> list[dict[str, Any]]:
    (prompt,) = generation.prompts
    assert isinstance(prompt, ChatPrompt)
    return list(prompt.messages)


def test_a_string_is_a_users_message() -> None:
    """With instructions as the system message before it; errors about the prompt name `input`."""
    generation = parsed(instructions="Be kind.")
    assert messages(generation) == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Hello?"},
    ]
    (prompt,) = generation.prompts
    assert isinstance(prompt, ChatPrompt)
    assert prompt.param == "input"


def test_settings_are_read() -> None:
    """OpenAI's under this API's names, and those of local servers beside them."""
    generation = parsed(
        model="m",
        max_output_tokens=7,
        min_tokens=5,
        temperature=0.5,
        top_p=0.9,
        top_k=4,
        seed=3,
        stop="x",
        stream=True,
        timeout=2,
    )
    assert (generation.model, generation.max_tokens, generation.seed) == ("m", 7, 3)
    assert generation.min_tokens == 5
    assert (generation.stops, generation.is_stream, generation.timeout_s) == (("x",), True, 2.0)
    sampling = generation.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.5, 0.9, 4)
    assert generation.ignored == ()


def test_the_response_repeats_its_request() -> None:
    """What was asked, with OpenAI's defaults where nothing was."""
    blank = asked_of(
        parsed(
            instructions="Be kind.",
            metadata={"run": "7"},
            store=False,
            user="u",
            safety_identifier="s",
            prompt_cache_key="k",
            top_logprobs=2,
            reasoning={"effort": "low", "summary": "concise"},
            text={"format": {"type": "json_object"}, "verbosity": "medium"},
            parallel_tool_calls=False,
            max_tool_calls=3,
        )
    ).blank
    assert (blank.instructions, blank.metadata, blank.store) == ("Be kind.", {"run": "7"}, False)
    assert (blank.user, blank.safety_identifier, blank.prompt_cache_key) == ("u", "s", "k")
    assert (blank.top_logprobs, blank.parallel_tool_calls, blank.max_tool_calls) == (2, False, 3)
    assert (blank.reasoning.effort, blank.reasoning.summary) == ("low", "concise")
    assert (blank.text.format, blank.text.verbosity) == ({"type": "json_object"}, "medium")
    bare = asked_of(parsed()).blank
    assert (bare.store, bare.metadata, bare.tools, bare.tool_choice) == (True, {}, [], "auto")
    assert (bare.parallel_tool_calls, bare.temperature, bare.text.format) == (True, None, {"type": "text"})


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, None),
        ({"top_logprobs": 0}, None),
        ({"top_logprobs": 3}, AskedLogprobs(3)),
        ({"include": ["message.output_text.logprobs"]}, AskedLogprobs(0)),
        ({"return_tokens_as_token_ids": True}, None),
        ({"top_logprobs": 3, "return_tokens_as_token_ids": True}, AskedLogprobs(3, has_ids=True)),
        ({"include": ["message.output_text.logprobs"], "top_logprobs": 3}, AskedLogprobs(3)),
    ],
)
def test_logprobs(fields: dict[str, Any], expected: AskedLogprobs | None) -> None:
    """Asked for by include, by a number of alternatives, or by both."""
    assert parsed(**fields).logprobs == expected


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, Grammar(kind="json_object", text="")),
        (
            {"type": "json_schema", "name": "n", "strict": True, "schema": SCHEMA},
            Grammar(kind="json_schema", text='{"type":"object","properties":{"n":{"type":"integer"}}}'),
        ),
    ],
)
def test_text_format(form: dict[str, Any], expected: Grammar | None) -> None:
    """The schema lies flat beside the type."""
    constraint = None if expected is None else Constraint("text.format", expected)
    assert parsed(text={"format": form}).constraint == constraint


def test_history_comes_before_the_input() -> None:
    """The instructions before all of it; an item that is named is put where its name stands."""
    recalled = Recalled(
        ({"type": "message", "role": "user", "content": "first"}, {"role": "assistant", "content": "answer"}),
        {"msg_9": {"role": "user", "content": "named"}},
    )
    generation = parsed(recalled, instructions="New.", input=[{"type": "item_reference", "id": "msg_9"}])
    assert [(message["role"], message["content"]) for message in messages(generation)] == [
        ("system", "New."),
        ("user", "first"),
        ("assistant", "answer"),
        ("user", "named"),
    ]
    assert asked_of(generation).items == ({"role": "user", "content": "named"},)


def test_history_alone_will_do() -> None:
    """A response can be gone on from without a word."""
    recalled = Recalled(({"role": "user", "content": "first"},))
    for fields in ({}, {"input": []}, {"input": None}):
        assert messages(parse_responses(fields, recalled)) == [{"role": "user", "content": "first"}]


def test_what_has_no_effect_is_named() -> None:
    """Each once, however often it comes up."""
    generation = parsed(
        input=[{"role": "user", "content": [{"type": "input_text", "text": "x", "wild": 1}]}] * 2,
        truncation="auto",
        service_tier="flex",
        text={"verbosity": "low"},
        include=["file_search_call.results", "reasoning.encrypted_content"],
        tools=[{"type": "web_search", "external_web_access": False}],
        client_metadata={"x": "y"},
        novel=1,
    )
    assert set(generation.ignored) == {
        "input[].content[].wild",
        "truncation",
        "service_tier",
        "text.verbosity",
        "include[]=file_search_call.results",
        "tools[].type=web_search",
        "novel",
    }
    assert len(set(generation.ignored)) == len(generation.ignored)


REFUSED: list[tuple[dict[str, Any], str, ErrorCode]] = [
    ({"input": None}, "input", ErrorCode.INVALID_REQUEST),
    ({"input": []}, "input", ErrorCode.INVALID_REQUEST),
    ({"input": 7}, "input", ErrorCode.INVALID_REQUEST),
    ({"input": ["x"]}, "input[0]", ErrorCode.INVALID_REQUEST),
    ({"instructions": 7}, "instructions", ErrorCode.INVALID_REQUEST),
    ({"max_output_tokens": 0}, "max_output_tokens", ErrorCode.INVALID_REQUEST),
    ({"max_tokens": 5}, "max_tokens", ErrorCode.UNSUPPORTED),
    ({"max_output_tokens": 5, "min_tokens": 6}, "min_tokens", ErrorCode.INVALID_REQUEST),
    ({"n": 2}, "n", ErrorCode.UNSUPPORTED),
    ({"response_format": {"type": "json_object"}}, "response_format", ErrorCode.UNSUPPORTED),
    ({"background": True}, "background", ErrorCode.UNSUPPORTED),
    ({"conversation": "conv_1"}, "conversation", ErrorCode.UNSUPPORTED),
    ({"prompt": {"id": "pmpt_1"}}, "prompt", ErrorCode.UNSUPPORTED),
    ({"moderation": {"model": "x"}}, "moderation", ErrorCode.UNSUPPORTED),
    ({"store": "yes"}, "store", ErrorCode.INVALID_REQUEST),
    ({"metadata": {"k": 1}}, "metadata", ErrorCode.INVALID_REQUEST),
    ({"metadata": {str(index): "" for index in range(17)}}, "metadata", ErrorCode.INVALID_REQUEST),
    ({"metadata": {"k" * 65: ""}}, "metadata", ErrorCode.INVALID_REQUEST),
    ({"top_logprobs": 21}, "top_logprobs", ErrorCode.INVALID_REQUEST),
    ({"include": "x"}, "include", ErrorCode.INVALID_REQUEST),
    ({"text": {"format": {"type": "yaml"}}}, "text.format.type", ErrorCode.INVALID_REQUEST),
    ({"text": {"format": {"type": "json_schema"}}}, "text.format.schema", ErrorCode.INVALID_REQUEST),
    ({"text": {"format": {"type": "json_object"}}, "guided_regex": "a"}, "guided_regex", ErrorCode.INVALID_REQUEST),
    ({"reasoning": {"summary": "long"}}, "reasoning.summary", ErrorCode.INVALID_REQUEST),
    ({"reasoning": {"effort": 3}}, "reasoning.effort", ErrorCode.INVALID_REQUEST),
    ({"stream_options": {}}, "stream_options", ErrorCode.INVALID_REQUEST),
    ({"tools": [{"type": "mcp", "server_label": "x"}]}, "tools[0]", ErrorCode.UNSUPPORTED),
]


@pytest.mark.parametrize(("fields", "param", "code"), REFUSED)
def test_refusals_name_the_field(fields: dict[str, Any], param: str, code: ErrorCode) -> None:
    """And which value it had."""
    with pytest.raises(RequestError) as caught:
        parsed(**fields)
    assert (caught.value.param, caught.value.code) == (param, code)
