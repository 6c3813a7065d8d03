"""Any JSON at all is either parsed or refused with a 400: never another exception."""

from collections.abc import Callable

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from frontend.dialects.anthropic import ANTHROPIC_FIELDS, parse_message
from frontend.dialects.anthropic_blocks import BLOCK_FIELDS
from frontend.dialects.anthropic_errors import message_error_body
from frontend.dialects.anthropic_tools import TOOL_FIELDS
from frontend.dialects.base import Generation
from frontend.dialects.openai_chat import CHAT_FIELDS, parse_chat
from frontend.dialects.openai_completions import COMPLETION_FIELDS, parse_completion
from frontend.dialects.openai_messages import MESSAGE_FIELDS
from frontend.dialects.openai_responses import RESPONSES_FIELDS, parse_responses
from frontend.dialects.openai_responses_hosted import HOSTED_ITEMS
from frontend.dialects.openai_responses_items import CALL_FIELDS, REASONING_ITEM_FIELDS
from frontend.dialects.openai_responses_items import MESSAGE_FIELDS as ITEM_FIELDS
from frontend.dialects.openai_responses_tools import CUSTOM_FIELDS, FUNCTION_FIELDS, NAMESPACE_FIELDS
from frontend.errors import RequestError, error_body

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
)
MESSAGES = st.lists(
    st.dictionaries(st.sampled_from([*MESSAGE_FIELDS]), JSON | st.sampled_from(["user", "assistant"]), max_size=4),
    max_size=3,
)

ITEM_TYPES = [
    *("message", "reasoning", "function_call", "function_call_output", "item_reference", "additional_tools"),
    "mcp_approval_response",
]
ITEMS = st.lists(
    st.dictionaries(
        st.sampled_from([*ITEM_FIELDS, *CALL_FIELDS, *REASONING_ITEM_FIELDS, "output", "tools"]),
        JSON | st.sampled_from(["user", "assistant", *ITEM_TYPES]),
        max_size=5,
    ),
    max_size=3,
)
HOSTED = st.lists(
    st.sampled_from([*HOSTED_ITEMS]).flatmap(
        lambda kind: st.fixed_dictionaries(
            {"type": st.just(kind)},
            optional={name: JSON | st.just("c") for name in HOSTED_ITEMS[kind].fields if name != "type"},
        )
    ),
    max_size=4,
)
TOOLS = st.lists(
    st.dictionaries(
        st.sampled_from([*FUNCTION_FIELDS, *CUSTOM_FIELDS, *NAMESPACE_FIELDS]),
        JSON | st.sampled_from(["function", "custom", "namespace", "web_search", "mcp"]),
        max_size=5,
    ),
    max_size=3,
)


def bodies(fields: list[str]) -> st.SearchStrategy[dict[str, object]]:
    """Objects with known field names and any values."""
    return st.dictionaries(st.sampled_from(fields), JSON | MESSAGES | ITEMS | TOOLS, max_size=5)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(chat=bodies([*CHAT_FIELDS]), completion=bodies([*COMPLETION_FIELDS]), anything=JSON)
def test_any_body_is_parsed_or_refused(chat: object, completion: object, anything: object) -> None:
    """And every refusal can be told: its envelope encodes."""
    refusals = [
        refusal(parse, body)
        for parse, body in ((parse_chat, chat), (parse_completion, completion), (parse_chat, anything))
    ]
    assert {error.status for error in refusals if error is not None} <= {400}
    assert all(msgspec.json.encode(error_body(error)) for error in refusals if error is not None)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(body=bodies([*RESPONSES_FIELDS]), items=ITEMS | HOSTED, tools=TOOLS)
def test_any_response_is_parsed_or_refused(body: dict[str, object], items: object, tools: object) -> None:
    """Whatever its items and its tools are; an item that is named and not stored is a 404."""
    refusals = [refusal(parse_responses, each) for each in (body, {"input": items}, {"input": "x", "tools": tools})]
    assert {error.status for error in refusals if error is not None} <= {400, 404}
    assert all(msgspec.json.encode(error_body(error)) for error in refusals if error is not None)


def refusal(parse: Callable[[object], Generation], body: object) -> RequestError | None:
    """The error that a body is answered with, if it is."""
    try:
        parse(body)
    except RequestError as error:
        return error
    return None


BLOCKS = st.lists(
    st.sampled_from([*BLOCK_FIELDS]).flatmap(
        lambda kind: st.fixed_dictionaries(
            {"type": st.just(kind)}, optional={name: JSON for name in BLOCK_FIELDS[kind] if name != "type"}
        )
    ),
    max_size=3,
)
TURNS = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "system"]), "content": JSON | BLOCKS},
        optional={"clear_at": JSON, "output_config": JSON},
    ),
    max_size=4,
)
TOOLS = st.lists(st.dictionaries(st.sampled_from([*TOOL_FIELDS]), JSON, max_size=4), max_size=2)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(body=bodies([*ANTHROPIC_FIELDS]), turns=TURNS, tools=TOOLS | JSON, anything=JSON)
def test_any_body_of_anthropics_is_parsed_or_refused(
    body: dict[str, object], turns: object, tools: object, anything: object
) -> None:
    """Also turns of every block with any values, and tools."""
    refusals = [
        refusal(parse_message, given) for given in (body, {**body, "messages": turns, "tools": tools}, anything)
    ]
    assert {error.status for error in refusals if error is not None} <= {400}
    assert all(msgspec.json.encode(message_error_body(error, "x")) for error in refusals if error is not None)
