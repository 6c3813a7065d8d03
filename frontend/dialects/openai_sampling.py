"""The sampling fields of both OpenAI dialects: OpenAI's names and ranges, vLLM's and mlx_lm.server's beside them.

What a client leaves out stays None here where the server has a default of its own.
"""

from collections.abc import Mapping
from typing import Final

from frontend.dialects.base import AskedSampling
from frontend.dialects.values import Above, Bounds, as_list, as_object, as_text, read_integer, read_number, shown, wrong
from frontend.errors import RequestError
from protocol.errors import ErrorCode
from protocol.sampling import TokenBias

MAX_TEMPERATURE: Final = 100
MAX_BIASES: Final = 16_384
MAX_BIAS: Final = 100
MAX_ALLOWED_IDS: Final = 65_536
# Each word is two sequences of the wire's 1,024: with and without a space before it.
MAX_BAD_WORDS: Final = 512
MAX_BAD_WORD_LENGTH: Final = 1_000
_FRACTION: Final = Bounds(0, 1)
_PENALTY: Final = Bounds(-2, 2)
_CONTEXT: Final = Bounds(0, 2**53)


def read_sampling(body: Mapping[str, object]) -> AskedSampling:
    """The client's wishes. Raises RequestError naming the field, its value and the range."""
    default = AskedSampling()
    return AskedSampling(
        temperature=read_number(body, "temperature", Bounds(0, MAX_TEMPERATURE)),
        top_k=_top_k(body),
        # 0 means the likeliest token alone to OpenAI and no limit to mlx_lm.server: it is refused, as in vLLM.
        top_p=read_number(body, "top_p", Above(0, 1)),
        min_p=read_number(body, "min_p", _FRACTION),
        xtc_probability=_number(body, "xtc_probability", _FRACTION, default.xtc_probability),
        xtc_threshold=_number(body, "xtc_threshold", Bounds(0, 0.5), default.xtc_threshold),
        repetition_penalty=_repetition_penalty(body),
        repetition_context=_context(body, "repetition_context_size", default.repetition_context),
        presence_penalty=_number(body, "presence_penalty", _PENALTY, default.presence_penalty),
        presence_context=_context(body, "presence_context_size", default.presence_context),
        frequency_penalty=_number(body, "frequency_penalty", _PENALTY, default.frequency_penalty),
        frequency_context=_context(body, "frequency_context_size", default.frequency_context),
        logit_bias=_biases(body.get("logit_bias")),
        bad_words=_bad_words(body.get("bad_words")),
        allowed_ids=read_token_ids(body, "allowed_token_ids", MAX_ALLOWED_IDS),
    )


def read_token_ids(body: Mapping[str, object], name: str, most: int) -> tuple[int, ...]:
    """A list of at most that many token ids, or none. Raises RequestError."""
    value = body.get(name)
    if value is None:
        return ()
    values = as_list(value, name)
    if len(values) > most:
        raise _too_many(name, len(values), "ids", most)
    return token_ids(values, name)


def token_ids(values: list[object], name: str) -> tuple[int, ...]:
    """Token ids. Raises RequestError for anything that is not an integer from 0 to 2**32 - 1."""
    ids: list[int] = []
    for index, value in enumerate(values):
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**32:
            raise wrong(f"{name}[{index}]", value, "a token id")
        ids.append(value)
    return tuple(ids)


def _number(body: Mapping[str, object], name: str, bounds: Bounds, default: float) -> float:
    value = read_number(body, name, bounds)
    return default if value is None else value


def _context(body: Mapping[str, object], name: str, default: int) -> int:
    value = read_integer(body, name, _CONTEXT)
    return default if value is None else value


def _top_k(body: Mapping[str, object]) -> int | None:
    """-1 is vLLM's word for off, 0 mlx_lm.server's."""
    top_k = read_integer(body, "top_k", Bounds(0, 2**53, off=-1))
    return 0 if top_k == -1 else top_k


def _repetition_penalty(body: Mapping[str, object]) -> float | None:
    """A factor: 1 is off, and so is mlx_lm.server's 0. Factors out of the range would end in infinities."""
    penalty = read_number(body, "repetition_penalty", Bounds(0.01, 100, off=0))
    return 1.0 if penalty == 0 else penalty


def _biases(value: object) -> tuple[TokenBias, ...]:
    """OpenAI's map of token ids, as strings, to what is added to their logits."""
    if value is None:
        return ()
    biases = as_object(value, "logit_bias")
    if len(biases) > MAX_BIASES:
        raise _too_many("logit_bias", len(biases), "tokens", MAX_BIASES)
    return tuple(TokenBias(id=_bias_id(key), bias=_bias(biases, key)) for key in biases)


def _bias_id(key: str) -> int:
    is_number = key.isascii() and key.isdecimal() and len(key) <= 10
    if not is_number or str(int(key)) != key or int(key) >= 2**32:
        raise RequestError(
            ErrorCode.INVALID_REQUEST, f"`logit_bias` must have token ids as its keys, not {shown(key)}", "logit_bias"
        )
    return int(key)


def _bias(biases: Mapping[str, object], key: str) -> float:
    try:
        value = read_number(biases, key, Bounds(-MAX_BIAS, MAX_BIAS))
    except RequestError:
        value = None
    if value is None:
        expected = f"a map of token ids to numbers from {-MAX_BIAS} to {MAX_BIAS}"
        raise wrong("logit_bias", {key: biases[key]}, expected)
    return value


def _bad_words(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    items = as_list(value, "bad_words", "an array of strings")
    if len(items) > MAX_BAD_WORDS:
        raise _too_many("bad_words", len(items), "words", MAX_BAD_WORDS)
    return tuple(dict.fromkeys(_bad_word(item, f"bad_words[{index}]") for index, item in enumerate(items)))


def _bad_word(value: object, where: str) -> str:
    word = as_text(value, where)
    if not word.strip() or len(word) > MAX_BAD_WORD_LENGTH:
        raise wrong(where, word, f"a string of 1 to {MAX_BAD_WORD_LENGTH} characters that is not blank")
    return word


def _too_many(name: str, count: int, what: str, most: int) -> RequestError:
    return RequestError(ErrorCode.INVALID_REQUEST, f"`{name}` has {count} {what}, at most {most} are taken", name)
