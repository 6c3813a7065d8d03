"""What a frontend makes text with, loaded together from one folder: a model's tokenizer, chat template and formats."""

import logging
from dataclasses import dataclass
from pathlib import Path

from frontend.parsers.base import ToolFormat
from frontend.parsers.registry import NO_FORMATS, NONE, Declared, ModelFormats, formats_of
from frontend.parsers.tools.hermes import HERMES
from frontend.text.template import ChatTemplate, TemplateChoice, load_template
from frontend.text.token_bytes import TokenBytes
from frontend.text.token_limits import TokenLimits
from frontend.text.tokenizer import Tokenizer, load_tokenizer
from protocol.messages import BosRule, ParserNames

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Parsers:
    """The names of formats that are used in place of those that claim the template; `none` is none."""

    tools: str | None = None
    reasoning: str | None = None


@dataclass(frozen=True, slots=True)
class ModelText:
    """The text side of one model. are_tools_read: false where calls stay text, because the server was told so.

    is_parser_named: the server was told in which format calls are. unread_parser: the tool_parser_type of the model's
    files that is not known here.
    """

    tokenizer: Tokenizer
    template: ChatTemplate
    token_bytes: TokenBytes
    limits: TokenLimits | None
    formats: ModelFormats = NO_FORMATS
    unread_parser: str | None = None
    are_tools_read: bool = True
    is_parser_named: bool = False

    def encode_chat(self, rendered: str) -> list[int]:
        """Ids of a rendered chat: a template writes the special tokens that it wants, a transcript has none."""
        if self.template.is_transcript:
            return self.tokenizer.encode_text(rendered)
        return self.tokenizer.encode_rendered(rendered)

    @property
    def has_tools(self) -> bool:
        """Whether the template tells a model of tools by itself."""
        return "tools" in self.template.with_tools.reads

    @property
    def call_format(self) -> ToolFormat | None:
        """How calls are read; None where they stay text, or their format is not known.

        Where the template has no tools the prompt tells Hermes' form, also to a model that has one of its own.
        """
        if self.formats.tools is not None and (self.has_tools or self.is_parser_named):
            return self.formats.tools
        return HERMES if self.are_tools_read and not self.has_tools else None

    @property
    def parsers(self) -> ParserNames:
        """The formats that replies are read in, as they are shown."""
        calls, reasoning = self.call_format, self.formats.reasoning
        return ParserNames(tools=calls and calls.name, reasoning=reasoning and reasoning.name)


def load_model_text(
    folder: Path, bos: BosRule, choice: TemplateChoice | None = None, parsers: Parsers = Parsers()
) -> ModelText:
    """Reads a tokenizer folder. choice: the operator's, about the template.

    Raises ProtocolError: BAD_MODEL, or BAD_SETTING for formats that cannot be chosen.
    """
    tokenizer = load_tokenizer(folder, bos)
    template = load_template(tokenizer, choice)
    declared = Declared(template.with_tools.source, template.source, tokenizer.tool_parser_type)
    formats = formats_of(declared, parsers.tools, parsers.reasoning)
    unread = None if declared.readable else declared.tool_parser
    if unread is not None:
        read_as = None if formats.tools is None else formats.tools.name
        log.warning("model.tool_parser_type_unknown", extra={"tool_parser_type": unread, "read_as": read_as})
    return ModelText(
        tokenizer,
        template,
        TokenBytes(tokenizer),
        tokenizer.limits(),
        formats,
        unread,
        parsers.tools != NONE,
        parsers.tools not in (None, NONE),
    )
