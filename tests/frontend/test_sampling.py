"""Which default counts, and how words and ids reach the rows."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from frontend.dialects.base import AskedSampling, Constraint, Generation
from frontend.errors import RequestError
from frontend.sampling import check_tokens_left, resolve_sampling
from frontend.text.tokenizer import Tokenizer
from protocol.messages import Batching, BosRule, GenerationDefaults, Grammar, Limits, ModelFacts
from protocol.sampling import Sampling, TokenBias
from tests.frontend.text.tokenizer_builds import byte_level_tokenizer

NOTHING = GenerationDefaults()
FACTS = ModelFacts(
    id="m",
    path="x",
    context_length=100,
    vocabulary_size=341,
    eos_ids=(2, 5),
    bos=BosRule(),
    defaults=NOTHING,
    batching=Batching(mode="batch", reason=""),
    limits=Limits(max_rows=1, max_waiting=1, max_frame_bytes=1),
    dtype="float32",
    device="cpu",
)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder: Path = tmp_path_factory.mktemp("tokenizer")
    return byte_level_tokenizer(folder)


def test_nothing_said_anywhere_is_neutral(tokenizer: Tokenizer) -> None:
    """Greedy, everything off: what adds nothing to the engine's step."""
    assert resolve_sampling(AskedSampling(), NOTHING, FACTS, tokenizer) == Sampling()


def test_request_before_flag_before_model(tokenizer: Tokenizer) -> None:
    """Field by field; an off that was said is said."""
    names = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
    model = GenerationDefaults(temperature=0.6, top_k=20, top_p=0.95, min_p=0.1, repetition_penalty=1.1)
    facts = msgspec.structs.replace(FACTS, defaults=model)

    def resolved(asked: AskedSampling, flags: GenerationDefaults) -> tuple[float, ...]:
        sampling = resolve_sampling(asked, flags, facts, tokenizer)
        return tuple(getattr(sampling, name) for name in names)

    flags = GenerationDefaults(temperature=0.7, top_k=30, top_p=0.5, min_p=0.2)
    off = AskedSampling(temperature=0.0, top_k=0, top_p=1.0, min_p=0.0, repetition_penalty=1.0)
    assert resolved(AskedSampling(), NOTHING) == (0.6, 20, 0.95, 0.1, 1.1)
    assert resolved(AskedSampling(), flags) == (0.7, 30, 0.5, 0.2, 1.1)
    assert resolved(AskedSampling(), GenerationDefaults(temperature=0.0, top_k=0)) == (0.0, 0, 0.95, 0.1, 1.1)
    assert resolved(AskedSampling(temperature=1.0, top_p=0.8), flags) == (1.0, 30, 0.8, 0.2, 1.1)
    assert resolved(off, flags) == (0.0, 0, 1.0, 0.0, 1.0)


def test_the_rest_is_taken_over(tokenizer: Tokenizer) -> None:
    """Penalties, their contexts, bias, ids."""
    biases = (TokenBias(id=340, bias=-1.0),)
    asked = AskedSampling(
        repetition_context=1,
        presence_penalty=0.5,
        presence_context=2,
        frequency_penalty=0.25,
        frequency_context=3,
        logit_bias=biases,
        allowed_ids=(0, 340),
    )
    assert resolve_sampling(asked, NOTHING, FACTS, tokenizer) == Sampling(
        repetition_context=1,
        presence_penalty=0.5,
        presence_context=2,
        frequency_penalty=0.25,
        frequency_context=3,
        logit_bias=biases,
        allowed_ids=(0, 340),
    )


@pytest.mark.parametrize(("top_k", "expected"), [(340, 340), (341, 0), (10**9, 0)])
def test_a_top_k_of_the_whole_vocabulary_is_off(tokenizer: Tokenizer, top_k: int, expected: int) -> None:
    """mlx-lm's own filter would raise."""
    assert resolve_sampling(AskedSampling(top_k=top_k), NOTHING, FACTS, tokenizer).top_k == expected


def test_xtc_spares_ends_and_the_line_break(tokenizer: Tokenizer) -> None:
    """As mlx_lm.server; without XTC its other fields stay neutral."""
    newline = tokenizer.encode_rendered("\n")
    sampling = resolve_sampling(AskedSampling(xtc_probability=0.5), NOTHING, FACTS, tokenizer)
    assert (sampling.xtc_probability, sampling.xtc_threshold) == (0.5, 0.1)
    assert sampling.xtc_spared_ids == (2, 5, *newline)
    assert resolve_sampling(AskedSampling(xtc_threshold=0.3), NOTHING, FACTS, tokenizer) == Sampling()


def test_bad_words_at_the_beginning_and_behind_a_space(tokenizer: Tokenizer) -> None:
    """Once each; the spaced form is left out where it is a space and the word's own tokens."""
    found = resolve_sampling(AskedSampling(bad_words=("dog", " dog", "7")), NOTHING, FACTS, tokenizer).bad_words
    dog, spaced_dog, seven, spaced_seven = (
        tuple(tokenizer.encode_rendered(text)) for text in ("dog", " dog", "7", " 7")
    )
    assert len(spaced_dog) < len(dog)
    assert spaced_seven[1:] == seven
    assert found == (dog, spaced_dog, seven)


@pytest.mark.parametrize(
    ("asked", "param", "said"),
    [
        (AskedSampling(logit_bias=(TokenBias(id=341, bias=1.0),)), "logit_bias", "token id 341 .* 341 tokens"),
        (AskedSampling(allowed_ids=(1, 999)), "allowed_token_ids", "token id 999 .* 341 tokens"),
        (AskedSampling(bad_words=("漢" * 30,)), "bad_words", "is 90 tokens, at most 64"),
    ],
)
def test_what_the_model_cannot_take_is_refused(
    tokenizer: Tokenizer, asked: AskedSampling, param: str, said: str
) -> None:
    """By the client's own name of the field."""
    with pytest.raises(RequestError, match=said) as caught:
        resolve_sampling(asked, NOTHING, FACTS, tokenizer)
    assert (caught.value.status, caught.value.param) == (400, param)


def left(sampling: Sampling, **settings: Any) -> str:
    """What is said of tokens that no first step can take; empty when it can take some."""
    try:
        check_tokens_left(Generation(model=None, prompts=(), **settings), sampling, FACTS)
    except RequestError as error:
        return f"{error.status} {error.param}: {error.message}"
    return ""


@pytest.mark.parametrize(
    ("sampling", "settings", "said"),
    [
        (Sampling(), {"stop_ids": (3, 341)}, "`stop_token_ids`: token id 341 is outside the vocabulary of 341 tokens"),
        (Sampling(), {"stop_ids": (340,)}, ""),
        (Sampling(allowed_ids=(7, 8), bad_words=((7,),)), {}, ""),
        (Sampling(allowed_ids=(7, 8), bad_words=((7,), (8, 9))), {}, ""),
        (Sampling(allowed_ids=(7,), bad_words=((7,),)), {}, "`allowed_token_ids` and `bad_words` leave no token"),
        (Sampling(bad_words=tuple((id_,) for id_ in range(341))), {}, "`bad_words` leave no token"),
        (Sampling(bad_words=tuple((id_,) for id_ in range(340))), {}, ""),
        (Sampling(allowed_ids=(2, 5)), {}, ""),
        (Sampling(allowed_ids=(2, 5)), {"min_tokens": 1}, "`allowed_token_ids` and `min_tokens` leave no token"),
        (Sampling(allowed_ids=(2, 5)), {"min_tokens": 1, "ignore_eos": True}, ""),
        (Sampling(allowed_ids=(2, 9)), {"min_tokens": 1}, ""),
        (
            Sampling(allowed_ids=(2, 9), bad_words=((9,),)),
            {"min_tokens": 1},
            "`allowed_token_ids` and `bad_words` and `min_tokens` leave no token",
        ),
        (
            Sampling(allowed_ids=(9,)),
            {"min_tokens": 1, "stop_ids": (9,), "ignore_eos": True},
            "`allowed_token_ids` and `min_tokens` leave",
        ),
        (
            Sampling(allowed_ids=(2,)),
            {"min_tokens": 1, "constraint": Constraint("guided_regex", Grammar(kind="regex", text=""))},
            "",
        ),
    ],
)
def test_settings_that_leave_no_first_token_are_refused(
    sampling: Sampling, settings: dict[str, Any], said: str
) -> None:
    """By all of their names: the reply could only be garbage. Beside a grammar min_tokens yields."""
    found = left(sampling, **settings)
    assert said in found
    assert found.startswith(f"400 {said.split('`')[1]}: " if said else "")
    assert bool(found) == bool(said)
