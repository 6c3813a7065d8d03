"""What a GGUF file says of each of its tokens."""

from enum import IntEnum

from engine.ctl.failure import CommandError
from engine.ctl.gguf_metadata import Metadata


class TokenType(IntEnum):
    """As llama.cpp numbers them."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


def token_types(metadata: Metadata, tokens: list[str]) -> list[TokenType]:
    """One a token. Raises CommandError where there is another number of them, or one that is unknown."""
    types = metadata.get_list("tokenizer.ggml.token_type", int)
    if len(types) != len(tokens):
        raise CommandError(f"the GGUF file has {len(tokens)} tokens, but {len(types)} token types")
    try:
        return [TokenType(type_) for type_ in types]
    except ValueError as error:
        raise CommandError(f"the GGUF file has a token of an unknown type: {error}") from error
