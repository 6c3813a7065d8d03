"""Model names, prompt tokens and room: what becomes of a parsed request before it is sent."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from frontend.dialects.base import ChatPrompt, Generation, Prompt, TextPrompt, TokensPrompt
from frontend.errors import RequestError
from frontend.model_text import ModelText, load_model_text
from frontend.submission import (
    SubmitPlan,
    build_submits,
    check_choices,
    choice_seed,
    clamped,
    prompt_ids,
    resolve_model,
    served_models,
    wanted_tokens,
)
from protocol.codec import unpack_ids
from protocol.errors import ErrorCode
from protocol.messages import (
    Batching,
    BosRule,
    Epoch,
    GenerationDefaults,
    Limits,
    ModelFacts,
)
from protocol.sampling import Sampling
from tests.fakes.tokenizer_folder import build_tokenizer_folder


def make_facts(context_length: int = 100, aliases: tuple[str, ...] = ("alias", "default_model")) -> ModelFacts:
    return ModelFacts(
        id="org/model",
        aliases=aliases,
        path="x",
        context_length=context_length,
        vocabulary_size=400,
        eos_ids=(2,),
        bos=BosRule(),
        defaults=GenerationDefaults(),
        batching=Batching(mode="batch", reason=""),
        limits=Limits(max_rows=1, max_waiting=1, max_frame_bytes=1),
        dtype="float32",
        device="cpu",
    )


@pytest.fixture
def text(tmp_path: Path) -> ModelText:
    return load_model_text(build_tokenizer_folder(tmp_path), BosRule())


@pytest.mark.parametrize(
    ("name", "expected"),
    [(None, "org/model"), ("org/model", "org/model"), ("alias", "alias"), ("mine", "mine")],
)
def test_known_names_resolve(name: str | None, expected: str) -> None:
    """No name, the model's id, its aliases and every served name are taken, and answered with."""
    assert resolve_model(name, make_facts(), ["mine"]) == expected


@pytest.mark.parametrize("name", ["gpt-4", "", "MINE", "org/model/", "*"])
def test_unknown_name_is_404_naming_what_is_served(name: str) -> None:
    """Any other name is model_not_found, with the names that would do."""
    with pytest.raises(RequestError) as caught:
        resolve_model(name, make_facts(), ["mine"])
    assert (caught.value.code, caught.value.status, caught.value.param) == (ErrorCode.MODEL_NOT_FOUND, 404, "model")
    assert "`org/model`, `mine`" in caught.value.message


@pytest.mark.parametrize("facts", [make_facts(), make_facts(aliases=("*",))])
def test_star_takes_any_name(facts: ModelFacts) -> None:
    """With `*` among the served names, the frontend's or the engine's, any name is taken."""
    assert resolve_model("gpt-4", facts, ["*"] if "*" not in facts.aliases else []) == "gpt-4"


def test_listed_names() -> None:
    """The model's own name comes first, then the served ones; `*` is no name."""
    assert served_models(make_facts(), ["mine", "*", "org/model"]) == ["org/model", "mine"]


@pytest.mark.parametrize(("wanted", "expected"), [(None, None), (1, 1), (40, 40), (41, 40), (10**9, 40)])
def test_max_tokens_is_clamped_to_the_room(wanted: int | None, expected: int | None) -> None:
    """More than the room becomes the room; None stays."""
    assert clamped(wanted, 60, make_facts(100)) == expected


def test_prompt_that_fills_the_context_is_refused(text: ModelText) -> None:
    """Exactly the context is one token too many; the error names both numbers."""
    assert len(prompt_ids([TokensPrompt((1,) * 99)], text, make_facts(100))[0]) == 99
    for tokens in (100, 120):
        with pytest.raises(RequestError) as caught:
            prompt_ids([TokensPrompt((1,) * tokens)], text, make_facts(100))
        assert (caught.value.code, caught.value.status) == (ErrorCode.CONTEXT_LENGTH_EXCEEDED, 400)
        assert "context length is 100 tokens" in caught.value.message
        assert f"the prompt used {tokens} tokens" in caught.value.message


@pytest.mark.parametrize("prompt", [TextPrompt(""), TokensPrompt(())])
def test_empty_prompt_is_refused(prompt: Prompt, text: ModelText) -> None:
    """A prompt without a token has nothing to go on from."""
    with pytest.raises(RequestError) as caught:
        prompt_ids([prompt], text, make_facts())
    assert (caught.value.status, caught.value.param) == (400, "prompt")


def test_token_outside_the_vocabulary_is_refused(text: ModelText) -> None:
    """A token id that the model does not have is named."""
    with pytest.raises(RequestError, match="token id 400"):
        prompt_ids([TokensPrompt((1, 400))], text, make_facts())


def test_chat_is_rendered(text: ModelText) -> None:
    """A chat prompt is the template's text, with the special tokens as single ids."""
    [ids] = prompt_ids([ChatPrompt(({"role": "user", "content": "fox"},))], text, make_facts())
    rendered = text.tokenizer.decode(ids, skip_special_tokens=False)
    assert rendered == "<|im_start|>user\nfox<|im_end|>\n<|im_start|>assistant\n"
    assert ids.count(1) == 2


def make_plan(**fields: Any) -> SubmitPlan:
    defaults = {"facts": make_facts(), "sampling": Sampling(), "max_tokens": None, "deadline_ms": None}
    return SubmitPlan(**{"reply_id": "cmpl-1", "epoch": Epoch("e"), **defaults, **fields})


def test_one_submit_per_prompt() -> None:
    """Each prompt is a choice with its own id and group, and a seed of its own when the client gave none."""
    generation = Generation(model=None, prompts=(), stop_ids=(7,))
    sampling = Sampling(temperature=0.5)
    plan = make_plan(facts=make_facts(100), sampling=sampling, max_tokens=500, deadline_ms=9)
    one, two = build_submits(generation, [[1, 2], [3]], plan)
    assert (one.id, one.choice, one.group, unpack_ids(one.prompt.ids)) == ("cmpl-1/0", 0, "cmpl-1/0", [1, 2])
    assert (two.id, two.choice, two.group, unpack_ids(two.prompt.ids)) == ("cmpl-1/1", 1, "cmpl-1/1", [3])
    assert (one.max_tokens, two.max_tokens) == (98, 99)
    assert (one.model, one.epoch, one.deadline_ms, one.stop_ids) == ("org/model", "e", 9, (7,))
    assert one.sampling == sampling
    assert one.seed != two.seed


def test_choices_of_a_prompt_are_one_group() -> None:
    """Choice by choice, prompt after prompt: the index is prompt times n plus the choice."""
    submits = build_submits(Generation(model=None, prompts=(), choices=3), [[1, 2], [3]], make_plan())
    assert [submit.choice for submit in submits] == [0, 1, 2, 3, 4, 5]
    assert [submit.group for submit in submits] == ["cmpl-1/0"] * 3 + ["cmpl-1/1"] * 3
    assert [unpack_ids(submit.prompt.ids) for submit in submits] == [[1, 2]] * 3 + [[3]] * 3
    assert len({submit.id for submit in submits}) == len({submit.seed for submit in submits}) == 6


@pytest.mark.parametrize("seed", [0, 42, -1, 2**63 - 1, -(2**63)])
def test_given_seed_is_kept(seed: int) -> None:
    """It reaches choice 0 of every prompt; the others get their own, the same at each run, all within 63 bits."""
    generation = Generation(model=None, prompts=(), seed=seed, choices=4)
    seeds = [submit.seed for submit in build_submits(generation, [[1], [2]], make_plan())]
    assert seeds[0] == seed & (2**63 - 1)
    assert seeds[:4] == seeds[4:] == [submit.seed for submit in build_submits(generation, [[1]], make_plan())]
    assert len(set(seeds)) == 4
    assert all(0 <= each < 2**63 for each in seeds)


def test_choices_never_share_a_seed_with_a_neighbouring_request() -> None:
    """Requests seeded 0, 1, 2 … with many choices each: also what is left of the seeds in 32 bits differs."""
    seeds = [choice_seed(seed, number) for seed in range(100) for number in range(100)]
    assert len({(seed ^ (seed >> 32)) & 0xFFFFFFFF for seed in seeds}) == 10_000


@pytest.mark.parametrize(("choices", "prompts", "is_refused"), [(8, 1, False), (9, 1, True), (8, 129, True)])
def test_more_choices_than_rows_are_refused(choices: int, prompts: int, is_refused: bool) -> None:
    """`n` is at most the row cap, and all prompts' choices together have a bound."""
    facts = msgspec.structs.replace(make_facts(), limits=Limits(max_rows=8, max_waiting=1, max_frame_bytes=1))
    generation = Generation(model=None, prompts=(TokensPrompt((1,)),) * prompts, choices=choices)
    if not is_refused:
        check_choices(generation, facts)
        return
    with pytest.raises(RequestError, match=f"`n`.* at most {8 if prompts == 1 else 1_024} ") as caught:
        check_choices(generation, facts)
    assert (caught.value.status, caught.value.param) == (400, "n")


@pytest.mark.parametrize(
    ("asked", "flag", "least", "expected"),
    [(None, None, 0, None), (5, 9, 0, 5), (9, 5, 0, 9), (None, 9, 0, 9), (None, 9, 20, 20), (None, None, 20, None)],
)
def test_max_tokens_by_flag(asked: int | None, flag: int | None, least: int, expected: int | None) -> None:
    """Only where the request names none, and never below its min_tokens."""
    assert wanted_tokens(Generation(model=None, prompts=(), max_tokens=asked, min_tokens=least), flag) == expected
