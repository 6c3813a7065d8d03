"""Any JSON at all is either parsed or refused with a 400: never another exception."""

from collections.abc import Callable

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from frontend.dialects.base import Generation
from frontend.dialects.openai_chat import CHAT_FIELDS, parse_chat
from frontend.dialects.openai_completions import COMPLETION_FIELDS, parse_completion
from frontend.dialects.openai_messages import MESSAGE_FIELDS
from frontend.errors import RequestError, error_body

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
)
MESSAGES = st.lists(
    st.dictionaries(st.sampled_from([*MESSAGE_FIELDS]), JSON | st.sampled_from(["user", "assistant"]), max_size=4),
    max_size=3,
)


def bodies(fields: list[str]) -> st.SearchStrategy[dict[str, object]]:
    """Objects with known field names and any values."""
    return st.dictionaries(st.sampled_from(fields), JSON | MESSAGES, max_size=5)


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


def refusal(parse: Callable[[object], Generation], body: object) -> RequestError | None:
    """The error that a body is answered with, if it is."""
    try:
        parse(body)
    except RequestError as error:
        return error
    return None
