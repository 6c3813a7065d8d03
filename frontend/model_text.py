"""What a frontend makes text with, loaded together from one folder: a model's tokenizer, chat template and formats."""

from dataclasses import dataclass
from pathlib import Path

from frontend.parsers.registry import NO_FORMATS, NONE, ModelFormats, formats_of
from frontend.text.template import ChatTemplate, TemplateChoice, load_template
from frontend.text.token_bytes import TokenBytes
from frontend.text.token_limits import TokenLimits
from frontend.text.tokenizer import Tokenizer, load_tokenizer
from protocol.messages import BosRule


@dataclass(frozen=True, slots=True)
class Parsers:
    """The names of formats that are used in place of those that claim the template; `none` is none."""

    tools: str | None = None
    reasoning: str | None = None


@dataclass(frozen=True, slots=True)
class ModelText:
    """The text side of one model. are_tools_read: false where calls stay text, because the server was told so.

    is_parser_named: the server was told in which format calls are.
    """

    tokenizer: Tokenizer
    template: ChatTemplate
    token_bytes: TokenBytes
    limits: TokenLimits | None
    formats: ModelFormats = NO_FORMATS
    are_tools_read: bool = True
    is_parser_named: bool = False

    def encode_chat(self, rendered: str) -> list[int]:
        """Ids of a rendered chat: a template writes the special tokens that it wants, a transcript has none."""
        if self.template.is_transcript:
            return self.tokenizer.encode_text(rendered)
        return self.tokenizer.encode_rendered(rendered)


def load_model_text(
    folder: Path, bos: BosRule, choice: TemplateChoice | None = None, parsers: Parsers = Parsers()
) -> ModelText:
    """Reads a tokenizer folder. choice: the operator's, about the template.

    Raises ProtocolError: BAD_MODEL, or BAD_SETTING for formats that cannot be chosen.
    """
    tokenizer = load_tokenizer(folder, bos)
    template = load_template(tokenizer, choice)
    return ModelText(
        tokenizer,
        template,
        TokenBytes(tokenizer),
        tokenizer.limits(),
        formats_of(template.source, parsers.tools, parsers.reasoning),
        parsers.tools != NONE,
        parsers.tools not in (None, NONE),
    )
