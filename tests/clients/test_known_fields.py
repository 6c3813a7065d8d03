"""The request fields of the official clients' own types: each is in our tables, so that none is taken unawares."""

from collections.abc import Mapping
from typing import Any, get_type_hints

import pytest
from anthropic.types import message_count_tokens_params, message_create_params
from anthropic.types.beta import message_create_params as beta_message_create_params
from openai.types import completion_create_params
from openai.types.chat import ChatCompletionContentPartTextParam
from openai.types.chat import completion_create_params as chat_create_params
from openai.types.responses import response_create_params

from frontend.dialects.anthropic import ANTHROPIC_FIELDS
from frontend.dialects.openai_chat import CHAT_FIELDS
from frontend.dialects.openai_completions import COMPLETION_FIELDS
from frontend.dialects.openai_messages import PART_FIELDS
from frontend.dialects.openai_responses import RESPONSES_FIELDS

# Arguments of a call that the client sends as headers.
IN_HEADERS = {"workspace_id"}


@pytest.mark.parametrize(
    ("parameters", "table"),
    [
        (chat_create_params.CompletionCreateParamsStreaming, CHAT_FIELDS),
        (ChatCompletionContentPartTextParam, PART_FIELDS),
        (completion_create_params.CompletionCreateParamsStreaming, COMPLETION_FIELDS),
        (response_create_params.ResponseCreateParamsStreaming, RESPONSES_FIELDS),
        (message_create_params.MessageCreateParamsStreaming, ANTHROPIC_FIELDS),
        (beta_message_create_params.MessageCreateParamsStreaming, ANTHROPIC_FIELDS),
        (message_count_tokens_params.MessageCountTokensParams, ANTHROPIC_FIELDS),
    ],
    ids=lambda value: getattr(value, "__module__", ""),
)
def test_every_parameter_is_known(parameters: Any, table: Mapping[str, object]) -> None:
    """A field that is new to OpenAI or Anthropic fails here first: decide what becomes of it."""
    assert set(get_type_hints(parameters)) - set(table) - IN_HEADERS == set()
