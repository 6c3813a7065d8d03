"""What a frontend makes text with: the model's tokenizer and chat template, loaded together from one folder."""

from dataclasses import dataclass
from pathlib import Path

from frontend.text.template import ChatTemplate, TemplateChoice, load_template
from frontend.text.token_bytes import TokenBytes
from frontend.text.token_limits import TokenLimits
from frontend.text.tokenizer import Tokenizer, load_tokenizer
from protocol.messages import BosRule


@dataclass(frozen=True, slots=True)
class ModelText:
    """The text side of one model."""

    tokenizer: Tokenizer
    template: ChatTemplate
    token_bytes: TokenBytes
    limits: TokenLimits | None


def load_model_text(folder: Path, bos: BosRule, choice: TemplateChoice | None = None) -> ModelText:
    """Reads a tokenizer folder. choice: the operator's, about the template. Raises ProtocolError(BAD_MODEL)."""
    tokenizer = load_tokenizer(folder, bos)
    return ModelText(tokenizer, load_template(tokenizer, choice), TokenBytes(tokenizer), tokenizer.limits())
