"""What is said in the conversations with a tool that every client must carry on, and a model that says it.

Who asks gets a call, or calls; what the tool returned decides the answer. The FakeEngine follows the words themselves;
the model for the real engine has them all written beforehand, and finds them by the conversation's last turn alone:
one result, argument or name that gets lost on its way, and it says that it has nothing to say.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.fakes.scripted_model import build_scripted_model

THOUGHT: Final = "I should look."
RESULTS: Final = {"Oslo": "!echo It is cold in Oslo.", "Lima": "!echo It is warm in Lima."}
LOST: Final = "There is nothing to say to that."
DESCRIPTION: Final = "The weather in a city."
PARAMETERS: Final = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": list(RESULTS)}},
    "required": ["city"],
    "additionalProperties": False,
}
_FILLER: Final = "~"
_LEAST_PROMPT: Final = 8
# Reads the tools, so that nobody tells them in a system message, and names the tags, so that calls are read in them.
_TEMPLATE: Final = """
{%- set turn = namespace(text='') -%}
{%- for message in messages -%}
  {%- if message.role == 'assistant' -%}
    {%- set turn.text = '' -%}
    {%- for call in message.tool_calls or [] -%}
      {%- set turn.text = turn.text ~ call.function.name ~ ' ' ~ (call.function.arguments | tojson) ~ '; ' -%}
    {%- endfor -%}
  {%- elif message.role in ('user', 'tool') -%}
    {%- set turn.text = turn.text ~ message.content -%}
  {%- endif -%}
{%- endfor -%}
{%- if tools %}{# <tool_call>{"name": …}</tool_call> behind <think></think> #}{% endif -%}
"""


@dataclass(frozen=True, slots=True)
class Conversation:
    """cities: those that the tool is called for, in this order. thought: what comes before the calls."""

    cities: tuple[str, ...]
    thought: str = ""

    @property
    def question(self) -> str:
        """What the user says."""
        return f"!echo {self.calls}"

    @property
    def calls(self) -> str:
        """The model's first turn, as it writes it."""
        calls = (json.dumps({"name": "weather", "arguments": {"city": city}}) for city in self.cities)
        thought = f"<think>\n{self.thought}\n</think>\n\n" if self.thought else ""
        return thought + "\n".join(f"<tool_call>\n{call}\n</tool_call>" for call in calls)

    @property
    def answer(self) -> str:
        """Its last turn."""
        return RESULTS[self.cities[-1]].removeprefix("!echo ")

    @property
    def returned(self) -> str:
        """The conversation's last turn before the answer, as the template above spells it."""
        calls = "".join(f"weather {json.dumps({'city': city})}; " for city in self.cities)
        return calls + "".join(RESULTS[city] for city in self.cities)


CONVERSATIONS: Final = {
    "one call": Conversation(("Oslo",)),
    "two calls at once": Conversation(("Oslo", "Lima")),
    "a call behind a thought": Conversation(("Oslo",), THOUGHT),
}


@dataclass(frozen=True, slots=True)
class Told:
    """What a client made of a conversation. thought: None if it shows none."""

    cities: tuple[str, ...]
    answer: str
    thought: str | None = None


def build_speaking_model(folder: Path) -> Path:
    """Writes a model for the real engine that takes its part in all of them."""
    said = {LOST: LOST}
    for conversation in CONVERSATIONS.values():
        said |= {conversation.question: conversation.calls, conversation.returned: conversation.answer}
    numbers = json.dumps({turn: number for number, turn in enumerate(said)})
    prompt = f"{{{{ '{_FILLER}' * prompt_tokens[{numbers}.get(turn.text, 0)] }}}}"
    build_scripted_model(
        folder, list(said.values()), template=_TEMPLATE + prompt, least_prompt=_LEAST_PROMPT, vocabulary_size=256
    )
    return folder
