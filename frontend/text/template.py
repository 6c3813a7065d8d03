"""A model's chat template: messages in, one prompt text out, in the sandbox and with the helpers templates expect.

Renders as transformers' apply_chat_template does (a test compares them), without importing it.
"""

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NoReturn, cast

import jinja2
import jinja2.ext
import jinja2.meta
import jinja2.nodes
import jinja2.parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from frontend.errors import RequestError
from frontend.text.tokenizer import Tokenizer
from protocol.errors import ErrorCode
from protocol.template_files import DEFAULT_TEMPLATE

log = logging.getLogger(__name__)

Message = Mapping[str, Any]

_CONTINUE_TAG: Final = "CONTINUE_FINAL_MESSAGE_TAG "
_REASONING_FIELDS: Final = ("reasoning_content", "thinking", "reasoning")
# What a template's own expressions raise on messages they were not written for.
_TEMPLATE_ERRORS: Final = (
    jinja2.TemplateError,
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RecursionError,
)


# What mlx_lm.server makes of a chat with a model that has no template: one text, each message with its speaker.
_TRANSCRIPT: Final = (
    "{% set text %}{% for message in messages %}"
    "{{ role_mapping.get(message['role'], '') + message['content'] + role_mapping.get('stop', '') }}"
    "{% endfor %}{% if add_generation_prompt %}{{ role_mapping.get('assistant', '') }}{% endif %}{% endset %}"
    "{{ text.rstrip() if add_generation_prompt else text }}"
)
_SPEAKERS: Final = {"system": "ASSISTANT's RULE: ", "user": "USER: ", "assistant": "ASSISTANT: ", "stop": "\n"}
_TOOL_TEMPLATE: Final = "tool_use"
# For a model that has named templates, and none of them is the default.
_NO_DEFAULT: Final = (
    "{{ raise_exception('it has none for requests without tools: start the server with --chat-template') }}"
)
# What transformers gave a model without a template of its own.
CHATML: Final = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


@dataclass(frozen=True, slots=True)
class TemplateChoice:
    """What the operator wants. source: in place of the model's template. variables: where a request says nothing else.

    has_default: ChatML for a model without one.
    """

    source: str | None = None
    variables: Mapping[str, Any] = field(default_factory=dict[str, Any])
    has_default: bool = False


class ChatTemplate:
    """One model's template, compiled once. source None: the model has none, and its chats are a plain transcript.

    variables: for every rendering, unless a request gives others. tool_source: of another one, where a request has
    tools. with_tools: the one for such requests.
    """

    def __init__(
        self,
        source: str | None,
        special_tokens: Mapping[str, str],
        variables: Mapping[str, Any] | None = None,
        tool_source: str | None = None,
    ) -> None:
        self.source: Final = source
        has_other = tool_source not in (None, source)
        self.with_tools: ChatTemplate = ChatTemplate(tool_source, special_tokens, variables) if has_other else self
        self._variables = {
            **special_tokens,
            **({"role_mapping": _SPEAKERS} if source is None else {}),
            **(variables or {}),
        }
        self._compiled: jinja2.Template | None = None
        # Told by the first chat request: completions need no template and go on.
        text = _TRANSCRIPT if source is None else source
        self._compile_error = compile_error(text)
        # The variables that it reads: some templates have no use for tools, or none for thinking.
        self.reads: frozenset[str] = frozenset()
        if self._compile_error is None:
            environment = _environment()
            self._compiled = environment.from_string(text)
            self.reads = frozenset(jinja2.meta.find_undeclared_variables(environment.parse(text)))

    @property
    def is_transcript(self) -> bool:
        """Whether a rendering is plain text, in which no special token stands."""
        return self.source is None

    def render(
        self,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        **kwargs: Any,
    ) -> str:
        """The prompt text. continue_final_message: the last message stays open, and the model writes on in it.

        kwargs reach the template as they are. Raises RequestError: INVALID_REQUEST when the
        template refuses the messages, BAD_MODEL when it does not compile.
        """
        plain = [_with_reasoning_names(message) for message in messages]
        if continue_final_message:
            if add_generation_prompt:
                raise _refused("continue_final_message and add_generation_prompt exclude each other")
            return self._render_open(plain, kwargs)
        return self._render(plain, {"add_generation_prompt": add_generation_prompt, **kwargs})

    def _render(self, messages: list[dict[str, Any]], variables: dict[str, Any]) -> str:
        template = self._usable()
        variables = {"tools": None, "documents": None, **self._variables, **variables}
        try:
            return template.render(messages=messages, **variables)
        except TypeError as error:
            # Most templates want a tool call's arguments as an object; the few that concatenate them want text.
            as_text = [_with_text_arguments(message) for message in messages]
            if as_text == messages:
                raise _refused(f"the model's chat template failed: {error}") from error
            return self._render(as_text, variables)
        except _TEMPLATE_ERRORS as error:
            raise _refused(f"the model's chat template refused the messages: {error}") from error

    def _render_open(self, messages: list[dict[str, Any]], variables: dict[str, Any]) -> str:
        """Renders up to the end of the last message's text, found by a tag behind it."""
        text = messages[-1].get("content") if messages else None
        if not isinstance(text, str) or not text.strip():
            raise _refused("continue_final_message needs a last message with text to continue")
        messages[-1]["content"] = text + _CONTINUE_TAG
        rendered = self._render(messages, {"add_generation_prompt": False, **variables})
        at = rendered.rfind(_CONTINUE_TAG.strip())
        if at < 0 or text.strip() not in rendered:
            raise _refused("the model's chat template drops the last message's text: it cannot be continued")
        if rendered.startswith(_CONTINUE_TAG, at):
            return rendered[:at]
        # The template trims its messages, the tag's own space included: so the continued text ends trimmed.
        return rendered[:at].rstrip()

    def _usable(self) -> jinja2.Template:
        if self._compiled is not None:
            return self._compiled
        raise RequestError(
            ErrorCode.BAD_MODEL,
            f"this model's chat template does not compile ({self._compile_error}): use /v1/completions instead",
        )


def load_template(tokenizer: Tokenizer, choice: TemplateChoice | None = None) -> ChatTemplate:
    """The operator's template, or those among the tokenizer's files, of which `tool_use` is for requests with tools."""
    choice = choice or TemplateChoice()
    templates = tokenizer.chat_templates if choice.source is None else {DEFAULT_TEMPLATE: choice.source}
    if not templates and choice.has_default:
        templates = {DEFAULT_TEMPLATE: CHATML}
    source, tool_source = templates.get(DEFAULT_TEMPLATE), templates.get(_TOOL_TEMPLATE)
    if source is None and templates:
        source = _NO_DEFAULT
    template = ChatTemplate(source, tokenizer.special_tokens, choice.variables, tool_source)
    unread = [name for name in choice.variables if name not in template.reads | template.with_tools.reads]
    if unread:
        log.warning("template.unread_variables", extra={"option": "--chat-template-args", "names": unread})
    return template


def compile_error(source: str) -> str | None:
    """Why a template does not compile; None when it does."""
    try:
        _environment().from_string(source)
    except jinja2.TemplateSyntaxError as error:
        return f"line {error.lineno}: {error.message}"
    except SyntaxError as error:
        # jinja2 leaves `break` outside a loop to Python.
        return error.msg
    return None


def _refused(message: str) -> RequestError:
    return RequestError(ErrorCode.INVALID_REQUEST, message, param="messages")


def _with_reasoning_names(message: Message) -> dict[str, Any]:
    """A copy without nulls, with its reasoning under each name that templates read."""
    plain = {name: value for name, value in message.items() if value is not None}
    reasoning = next((plain[name] for name in _REASONING_FIELDS if name in plain), None)
    if reasoning is None:
        return plain
    return {"thinking": reasoning, **plain, "reasoning_content": reasoning}


def _with_text_arguments(message: dict[str, Any]) -> dict[str, Any]:
    calls: object = message.get("tool_calls")
    if not isinstance(calls, list):
        return message
    changed: list[dict[str, Any]] = []
    for call in cast(list[dict[str, Any]], calls):
        function = dict(call["function"])
        if not isinstance(function.get("arguments"), str):
            function["arguments"] = json.dumps(function.get("arguments"), ensure_ascii=False)
        changed.append({**call, "function": function})
    return {**message, "tool_calls": changed}


class _GenerationBlock(jinja2.ext.Extension):
    """`{% generation %}` marks the assistant's part for training; to a server it is its own content."""

    tags = {"generation"}  # noqa: RUF012  # jinja2 declares it as a plain class attribute

    def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_content"), [], [], body).set_lineno(line)

    def _content(self, caller: Callable[[], str]) -> str:
        return caller()


class _Namespace(jinja2.utils.Namespace):
    """jinja2's, without the names through which a template could reach Python's internals."""

    def __setitem__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            raise jinja2.exceptions.SecurityError(f"a chat template cannot store {name!r} on a namespace")
        super().__setitem__(name, value)


class _Dict:
    """The `dict` of templates: makes dicts, and lends no attribute of the type."""

    def __call__(self, *pairs: Any, **values: Any) -> dict[str, Any]:
        return dict(*pairs, **values)

    def fromkeys(self, keys: Iterable[Any], value: Any = None) -> dict[Any, Any]:
        """As of dict itself."""
        return dict.fromkeys(keys, value)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlock, jinja2.ext.loopcontrols]
    )
    # Both registries are typed as a bare dict by jinja2.
    filters = cast(dict[str, Any], environment.filters)  # pyright: ignore[reportUnknownMemberType]
    variables = cast(dict[str, Any], environment.globals)  # pyright: ignore[reportUnknownMemberType]
    filters["tojson"] = _to_json
    variables |= {"raise_exception": _raise, "strftime_now": _strftime_now, "namespace": _Namespace, "dict": _Dict()}
    return environment


def _raise(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().astimezone().strftime(form)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # jinja2's own filter escapes for HTML, which models were never trained on.
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
