"""How a request's tools and reasoning meet a model: what its prompt says, and what its reply is read as.

Owns the choice of formats for one request; prompts are rendered by the template, replies read by the text machine.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from frontend.answer_grammar import answer_grammar
from frontend.dialects.base import ChatPrompt, Constraint, Generation, NamedTool, Tool, ToolUse
from frontend.errors import RequestError
from frontend.model_text import ModelText
from frontend.parsers.base import ReasoningFormat, ToolFormat
from frontend.text.structure import ReplyForm
from frontend.text.tool_preamble import has_calls, with_calls_as_text, with_system_in_user, with_tools_as_text
from frontend.thought_grammar import Thought
from frontend.tool_grammar import CallSetting, tool_grammar
from protocol.errors import ErrorCode

# A prompt opens reasoning in its last tokens, if it does.
_TAIL_TOKENS: Final = 24
_SHORT_ID_LENGTH: Final = 9


def rendered(prompt: ChatPrompt, tools: ToolUse | None, text: ModelText) -> str:
    """A chat's prompt text. Raises RequestError."""
    flags: dict[str, Any] = {
        "add_generation_prompt": prompt.add_generation_prompt,
        "continue_final_message": prompt.continue_final_message,
    }
    flags |= prompt.variables
    if tools is None or tools.choice == "none":
        is_unknown = "tools" not in text.template.reads and has_calls(prompt.messages)
        messages = with_calls_as_text(prompt.messages) if is_unknown else _with_short_ids(prompt.messages, text)
        return text.template.render(messages, **flags)
    template = text.template.with_tools
    described = [described_tool(tool) for tool in tools.tools]
    if "tools" in template.reads or not prompt.messages:
        return template.render(_with_short_ids(prompt.messages, text), tools=described, **flags)
    messages = with_tools_as_text(prompt.messages, described)
    try:
        return template.render(messages, **flags)
    except RequestError:
        return template.render(with_system_in_user(messages), **flags)


def reply_form(generation: Generation, prompt_ids: list[int], text: ModelText) -> ReplyForm:
    """What the reply to a request's prompt is read as; a completion's is text alone. Raises RequestError."""
    prompt = generation.prompts[0]
    if not isinstance(prompt, ChatPrompt):
        return ReplyForm()
    tools = generation.tools
    call_format = None if tools is None or tools.choice == "none" else _call_format(text)
    reasoning = text.formats.reasoning
    return ReplyForm(
        call_format=call_format,
        tools={} if tools is None or call_format is None else {tool.name: tool for tool in tools.tools},
        reasoning=reasoning,
        is_in_reasoning=reasoning is not None and _is_open(reasoning, prompt, prompt_ids, text),
        hidden=_hidden(call_format, reasoning, text) if generation.skip_special_tokens else (),
        is_parallel=tools is None or (tools.is_parallel and not isinstance(tools.choice, NamedTool)),
        is_call_forced=call_format is not None and tools is not None and tools.choice != "auto",
    )


def constrained(generation: Generation, form: ReplyForm, text: ModelText) -> Generation:
    """The request with the one grammar that its tool choice, strict tools and response format ask for.

    A reply that must call answers in no other format; one that may is the answer, or calls. Either may have a thought
    before it. Raises RequestError.
    """
    tools, call_format, answer = generation.tools, form.call_format, generation.constraint
    if tools is None or call_format is None:
        return _behind_thought(generation, form, text)
    is_auto = tools.choice == "auto"
    if is_auto and answer is None and not any(tool.is_strict for tool in tools.tools):
        return generation
    field = "tool_choice" if not is_auto else "tools" if answer is None else answer.field
    has_headers = form.reasoning is not None and form.reasoning.headers is not None
    if call_format.grammar is None or (answer is not None and is_auto and has_headers):
        raise RequestError(
            ErrorCode.UNSUPPORTED,
            f"`{field}`: this model writes its calls in the format {call_format.name}, which cannot be forced yet: "
            "use tool_choice auto, tools that are not strict, and no response format beside them",
            field,
        )
    setting = CallSetting(
        call_format=call_format.grammar,
        thought=_thought(form),
        tokens=_mark_ids(form, text),
        is_parallel=form.is_parallel,
        answer=answer if is_auto else None,
    )
    grammar = tool_grammar(tools.tools, tools.choice, setting)
    return generation if grammar is None else replace(generation, constraint=Constraint(field, grammar))


def _behind_thought(generation: Generation, form: ReplyForm, text: ModelText) -> Generation:
    """Without calls. A model whose replies are messages with headers is held from its first token, as it is."""
    thought, reasoning = _thought(form), form.reasoning
    if generation.constraint is None or thought is None or reasoning is None or reasoning.headers is not None:
        return generation
    if generation.constraint.grammar.kind in ("lark", "gbnf") and not thought.is_open:
        return generation
    return replace(generation, constraint=answer_grammar(generation.constraint, thought, _mark_ids(form, text)))


def _mark_ids(form: ReplyForm, text: ModelText) -> Mapping[str, int]:
    return text.tokenizer.unspelled_ids(_markers(form.call_format, form.reasoning))


def unread_fields(generation: Generation, text: ModelText) -> tuple[str, ...]:
    """The fields that set variables of which this model's template reads none."""
    chats = (prompt for prompt in generation.prompts if isinstance(prompt, ChatPrompt))
    asked = [item for prompt in chats for item in prompt.asked_by.items()]
    has_tools = generation.tools is not None and generation.tools.choice != "none"
    template = text.template.with_tools if has_tools else text.template
    return tuple(dict.fromkeys(name for name, variables in asked if template.reads.isdisjoint(variables)))


def described_tool(tool: Tool) -> dict[str, Any]:
    """A tool as chat templates read it, whatever dialect it came in."""
    function: dict[str, Any] = {"name": tool.name}
    # Templates join the description to other text, and look into the schema.
    function["description"] = tool.description or ""
    function["parameters"] = dict(tool.parameters or {"type": "object", "properties": {}})
    return {"type": "function", "function": function}


def _with_short_ids(messages: Sequence[Mapping[str, Any]], text: ModelText) -> Sequence[Mapping[str, Any]]:
    """Mistral's templates refuse every id but their own kind; ours, and those of other servers, are longer."""
    call_format = text.formats.tools
    if call_format is None or not call_format.has_short_ids:
        return messages
    return [_with_short_id(message) for message in messages]


def _with_short_id(message: Mapping[str, Any]) -> dict[str, Any]:
    short = dict(message)
    if "tool_call_id" in short:
        short["tool_call_id"] = _short_id(short["tool_call_id"])
    if "tool_calls" in short:
        short["tool_calls"] = [
            {**call, "id": _short_id(call["id"])} if "id" in call else call for call in short["tool_calls"]
        ]
    return short


def _short_id(id_: str) -> str:
    """The same for the same; of one that is short already, itself."""
    is_short = len(id_) == _SHORT_ID_LENGTH and id_.isascii() and id_.isalnum()
    return id_ if is_short else hashlib.sha256(id_.encode()).hexdigest()[:_SHORT_ID_LENGTH]


def _call_format(text: ModelText) -> ToolFormat | None:
    """None: calls stay text, as the server was told."""
    found = text.call_format
    if found is None and text.are_tools_read:
        raise _unreadable("it is not known in which format its chat template has calls: start with --tool-parser")
    if found is None and not text.has_tools:
        raise _unreadable("its chat template has no tools, and --tool-parser none lets them stay text")
    return found


def _unreadable(why: str) -> RequestError:
    return RequestError(ErrorCode.UNSUPPORTED, f"`tools` cannot be used with this model: {why}", "tools")


def _is_open(reasoning: ReasoningFormat, prompt: ChatPrompt, prompt_ids: list[int], text: ModelText) -> bool:
    if prompt.continue_final_message:
        content = str(prompt.messages[-1].get("content") or "")
        began = max(content.rfind(begin) for begin in reasoning.begins)
        return began > max(content.rfind(end) for end in reasoning.ends)
    return reasoning.is_open_after(text.tokenizer.decode(prompt_ids[-_TAIL_TOKENS:], False))


def _thought(form: ReplyForm) -> Thought | None:
    """What a forced call must let the model do first."""
    reasoning = form.reasoning
    if reasoning is None:
        return None
    return Thought(reasoning.begins[0], reasoning.ends[0] + reasoning.behind_end, form.is_in_reasoning)


def _hidden(call_format: ToolFormat | None, reasoning: ReasoningFormat | None, text: ModelText) -> tuple[str, ...]:
    """Markers that are special tokens: the text machine must see them, the client must not."""
    return text.tokenizer.special_tokens_in(_markers(call_format, reasoning))


def _markers(call_format: ToolFormat | None, reasoning: ReasoningFormat | None) -> list[str]:
    markers: list[str] = []
    if call_format is not None:
        markers += [*call_format.openers, *call_format.start_openers, *call_format.marks]
    if reasoning is not None:
        markers += reasoning.marks
    return markers
