"""Chat bodies: what is honoured arrives in the Generation, the rest is refused or named."""

from typing import Any

import pytest

from frontend.dialects.base import AskedSampling, ChatPrompt, Generation
from frontend.dialects.openai_chat import CHAT_FIELDS, parse_chat
from frontend.dialects.openai_completions import COMPLETION_FIELDS, parse_completion
from frontend.errors import RequestError
from protocol.errors import ErrorCode

USER = {"role": "user", "content": "Hi"}


def body(**fields: Any) -> dict[str, Any]:
    """A body with one user message and further fields."""
    return {"model": "m", "messages": [USER], **fields}


def refused(content: object) -> RequestError:
    """The error that a body is answered with."""
    with pytest.raises(RequestError) as caught:
        parse_chat(content)
    assert caught.value.status == 400
    return caught.value


def test_the_least_body() -> None:
    """Only messages are needed; max_tokens stays open."""
    assert parse_chat({"messages": [USER]}) == Generation(
        model=None, prompts=(ChatPrompt(({"role": "user", "content": "Hi"},)),)
    )


def test_every_honoured_field_arrives() -> None:
    """Each in its place."""
    generation = parse_chat(
        body(
            stream=True,
            stream_options={"include_usage": True},
            max_tokens=7,
            temperature=1,
            seed=5,
            stop=["a", "b", "a"],
            stop_token_ids=[1, 2],
            include_stop_str_in_output=True,
            ignore_eos=True,
            min_tokens=3,
            skip_special_tokens=False,
            timeout=2.5,
            user="ann",
        )
    )
    assert generation == Generation(
        model="m",
        prompts=(ChatPrompt((USER,)),),
        sampling=AskedSampling(temperature=1.0),
        max_tokens=7,
        seed=5,
        stops=("a", "b"),
        stop_ids=(1, 2),
        include_stop=True,
        ignore_eos=True,
        min_tokens=3,
        skip_special_tokens=False,
        timeout_s=2.5,
        is_stream=True,
        include_usage=True,
    )


def test_null_is_the_same_as_absent() -> None:
    """For every known field but messages: clients send their unset options as null."""
    nulls = dict.fromkeys(CHAT_FIELDS)
    assert parse_chat({**nulls, "messages": [USER]}) == parse_chat({"messages": [USER]})


def test_max_completion_tokens_wins() -> None:
    """As in vLLM and mlx_lm.server."""
    assert parse_chat(body(max_tokens=5, max_completion_tokens=9)).max_tokens == 9
    assert parse_chat(body(max_completion_tokens=9)).max_tokens == 9


@pytest.mark.parametrize(("stop", "stops"), [("x", ("x",)), ([], ()), (["x", "y"], ("x", "y")), (["\n"], ("\n",))])
def test_stop_is_a_string_or_a_list(stop: object, stops: tuple[str, ...]) -> None:
    """Both of OpenAI's forms."""
    assert parse_chat(body(stop=stop)).stops == stops


def test_a_stop_string_is_bounded() -> None:
    """A text that is all but a very long one would be read again with each of its tokens."""
    assert parse_chat(body(stop="x" * 1_000)).stops == ("x" * 1_000,)
    with pytest.raises(RequestError, match="`stop` has a string of 1001 characters, at most 1000 are taken"):
        parse_chat(body(stop=["y", "x" * 1_001]))


@pytest.mark.parametrize("seed", [0, -1, 2**63 - 1, -(2**63)])
def test_any_64_bit_seed_is_taken(seed: int) -> None:
    """Negative ones too: OpenAI's range."""
    assert parse_chat(body(seed=seed)).seed == seed


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model", 1),
        ("messages", None),
        ("messages", []),
        ("messages", "hi"),
        ("messages", {"role": "user"}),
        ("stream", 1),
        ("stream", "true"),
        ("max_tokens", 0),
        ("max_tokens", -1),
        ("max_tokens", 1.5),
        ("max_tokens", "10"),
        ("max_tokens", True),
        ("max_completion_tokens", 0),
        ("temperature", "hot"),
        ("temperature", True),
        ("temperature", -0.1),
        ("temperature", 101),
        ("temperature", float("nan")),
        ("seed", 1.0),
        ("seed", 2**63),
        ("stop", 5),
        ("stop", ""),
        ("stop", {"a": 1}),
        ("stop", [str(index) for index in range(17)]),
        ("stop", ["a", ""]),
        ("stop_token_ids", 5),
        ("stop_token_ids", list(range(1025))),
        ("ignore_eos", "yes"),
        ("include_stop_str_in_output", 0),
        ("skip_special_tokens", 0),
        ("min_tokens", -1),
        ("n", 0),
        ("n", True),
        ("timeout", 0),
        ("timeout", -1),
        ("timeout", "10s"),
        ("user", 7),
        ("continue_final_message", 1),
        ("add_generation_prompt", "no"),
    ],
)
def test_a_wrong_value_is_refused_by_name(field: str, value: object) -> None:
    """Nothing is coerced; the field is the error's param and is in its message."""
    error = refused(body(**{field: value}))
    assert (error.code, error.param) == (ErrorCode.INVALID_REQUEST, field)
    assert f"`{field}`" in error.message


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"stop": ["a", 1]}, "stop[1]"),
        ({"stop_token_ids": [1, True]}, "stop_token_ids[1]"),
        ({"stop_token_ids": [-1]}, "stop_token_ids[0]"),
        ({"stream_options": {}}, "stream_options"),
        ({"stream": True, "stream_options": []}, "stream_options"),
        ({"stream": True, "stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
        ({"max_tokens": 2, "min_tokens": 3}, "min_tokens"),
    ],
)
def test_a_wrong_part_is_refused_by_its_place(fields: dict[str, Any], param: str) -> None:
    """Also inside lists and objects, and where two fields contradict."""
    assert refused(body(**fields)).param == param


@pytest.mark.parametrize("content", [None, [], "x", 1, True])
def test_a_body_must_be_an_object(content: object) -> None:
    """Any other JSON is refused, and no field is named that the client has not sent."""
    error = refused(content)
    assert (error.param, "must be a JSON object" in error.message) == (None, True)


def test_the_message_says_given_and_expected() -> None:
    """So a client can be mended without the docs."""
    assert refused(body(max_tokens="10")).message == '`max_tokens` must be an integer of at least 1, not "10"'


def test_a_long_value_is_shown_short() -> None:
    """The error does not echo a whole prompt."""
    assert len(refused(body(messages="x" * 10_000)).message) < 200


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("best_of", 2),
        ("prompt_logprobs", 3),
        ("echo", True),
        ("function_call", {"name": "f"}),
        ("thinking_token_budget", 100),
        ("functions", [{}]),
        ("structural_tag", {}),
        ("guided_whitespace_pattern", " *"),
        ("modalities", ["text", "audio"]),
        ("audio", {"voice": "a"}),
        ("prediction", {"type": "content"}),
        ("chat_template", "{{ x }}"),
        ("use_beam_search", True),
        ("truncate_prompt_tokens", 5),
        ("web_search_options", {}),
    ],
)
def test_what_would_change_the_output_is_refused(field: str, value: object) -> None:
    """By name and value, with what to do."""
    error = refused(body(**{field: value}))
    assert (error.code, error.param) == (ErrorCode.UNSUPPORTED, field)
    assert f"`{field}`" in error.message


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", 1),
        ("best_of", 1),
        ("presence_penalty", 0),
        ("frequency_penalty", 0.0),
        ("logit_bias", {}),
        ("logprobs", False),
        ("echo", False),
        ("response_format", {"type": "text"}),
        ("tools", []),
        ("tool_choice", "none"),
        ("tool_choice", "auto"),
        ("parallel_tool_calls", True),
        ("modalities", ["text"]),
        ("chat_template_kwargs", {}),
        ("user", "ann"),
        ("metadata", {"a": "b"}),
        ("store", False),
        ("service_tier", "auto"),
        ("xtc_threshold", 0.1),
        ("prompt_cache_key", "k"),
    ],
)
def test_neutral_and_harmless_values_change_nothing(field: str, value: object) -> None:
    """Clients send their defaults: the Generation is that of a body without the field, and nothing is named."""
    assert parse_chat(body(**{field: value})) == parse_chat(body())


def test_unknown_fields_are_named_in_order() -> None:
    """At every level, each once; a long name is shortened."""
    message = {**USER, "cache_control": {}, "content": [{"type": "text", "text": "Hi", "cache_control": {}}]}
    generation = parse_chat(
        body(messages=[message, message], zeta=1, alpha=2, store=True, stream=True, stream_options={"x": 1})
        | {"long" * 50: 1}
    )
    assert generation.ignored == (
        "zeta",
        "alpha",
        "store",
        ("long" * 50)[:64],
        "messages[].cache_control",
        "messages[].content[].cache_control",
        "stream_options.x",
    )


def test_a_trailing_assistant_message_opens_a_new_turn() -> None:
    """As OpenAI, vLLM and mlx_lm.server have it."""
    messages = [USER, {"role": "assistant", "content": "Hello"}]
    assert parse_chat(body(messages=messages)).prompts == (ChatPrompt(tuple(messages)),)


@pytest.mark.parametrize("fields", [{}, {"add_generation_prompt": False}])
def test_a_final_message_is_continued_on_request(fields: dict[str, Any]) -> None:
    """vLLM's field; the generation prompt need not be switched off beside it."""
    messages = [USER, {"role": "assistant", "content": "Hello"}]
    prompt = parse_chat(body(messages=messages, continue_final_message=True, **fields)).prompts[0]
    assert prompt == ChatPrompt(tuple(messages), add_generation_prompt=False, continue_final_message=True)


@pytest.mark.parametrize(
    ("messages", "fields"),
    [
        ([USER, {"role": "assistant", "content": "Hello"}], {"add_generation_prompt": True}),
        ([USER], {}),
    ],
)
def test_what_cannot_be_continued_is_refused(messages: list[Any], fields: dict[str, Any]) -> None:
    """Two contradicting flags, or a last message that is not the assistant's."""
    assert refused(body(messages=messages, continue_final_message=True, **fields)).param == "continue_final_message"


def test_both_dialects_know_the_fields_of_the_apis_they_copy() -> None:
    """OpenAI's published request fields, none of which may be news to us."""
    chat = """messages model audio frequency_penalty function_call functions logit_bias logprobs
        max_completion_tokens max_tokens metadata modalities n parallel_tool_calls prediction presence_penalty
        prompt_cache_key prompt_cache_retention reasoning_effort response_format safety_identifier seed service_tier
        stop store stream stream_options temperature tool_choice tools top_logprobs top_p user verbosity
        web_search_options"""
    completions = """model prompt best_of echo frequency_penalty logit_bias logprobs max_tokens n presence_penalty seed
        stop stream stream_options suffix temperature top_p user"""
    mlx_lm = """stream stream_options model draft_model num_draft_tokens adapters max_completion_tokens max_tokens
        temperature top_p top_k min_p repetition_penalty repetition_context_size presence_penalty
        presence_context_size frequency_penalty frequency_context_size xtc_probability xtc_threshold logit_bias
        logprobs top_logprobs seed stop"""
    assert set(chat.split()) - set(CHAT_FIELDS) == set()
    assert set(completions.split()) - set(COMPLETION_FIELDS) == set()
    assert set(mlx_lm.split()) - (set(CHAT_FIELDS) & set(COMPLETION_FIELDS)) == set()


def test_both_dialects_read_shared_fields_alike() -> None:
    """Beside the prompt the two Generations are equal."""
    fields = {"temperature": 0.5, "stop": "x", "max_tokens": 3, "strange": 1}
    chat, completion = parse_chat(body(**fields)), parse_completion({"model": "m", "prompt": "Hi", **fields})
    assert (chat.sampling, chat.stops, chat.max_tokens, chat.ignored) == (
        completion.sampling,
        completion.stops,
        completion.max_tokens,
        completion.ignored,
    )


def test_role_mapping_is_the_templates() -> None:
    """mlx_lm.server's words for each role; those that no message can have are named."""
    mapping = {"user": "U: ", "assistant": "A: ", "stop": "\n", "system_prompt": "x"}
    generation = parse_chat(body(role_mapping=mapping))
    (prompt,) = generation.prompts
    assert isinstance(prompt, ChatPrompt)
    assert (prompt.variables, prompt.asked_by) == ({"role_mapping": mapping}, {"role_mapping": ("role_mapping",)})
    assert generation.ignored == ("role_mapping.system_prompt",)
    for nothing in ({}, None):
        (prompt,) = parse_chat(body(role_mapping=nothing)).prompts
        assert isinstance(prompt, ChatPrompt)
        assert prompt.asked_by == {}


@pytest.mark.parametrize(("value", "param"), [("USER", "role_mapping"), ({"user": None}, "role_mapping.user")])
def test_role_mapping_is_a_map_of_texts(value: object, param: str) -> None:
    """The error names the role."""
    assert refused(body(role_mapping=value)).param == param


def test_what_is_missing_is_not_told_as_a_value() -> None:
    """A client that sent nothing looks for no null."""
    error = refused({"messages": [{"role": "user"}]})
    assert error.message == "`messages[0].content` is missing or null: it must be a string or an array of text parts"


def test_a_tool_of_the_other_api_is_told_how_it_looks_here() -> None:
    """Its fields stand elsewhere, and many mix the two up."""
    error = refused(body(tools=[{"type": "function", "name": "f", "parameters": {}}]))
    assert error.param == "tools[0].function"
    assert "not beside its type as in the Responses API" in error.message
