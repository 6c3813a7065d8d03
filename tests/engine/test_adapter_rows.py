"""Rows with different adapters in one engine: each as with its own alone, all at once."""

from collections import Counter
from pathlib import Path

import pytest

from tests.fakes.models import fresh_model, prompt_of, tiny_model  # isort: skip  # before MLX

import mlx.core as mx
from mlx_lm.generate import generate_step
from mlx_lm.tuner.utils import load_adapters

from protocol.errors import ErrorCode
from protocol.messages import SubmitId
from tests.fakes.adapters import build_adapter
from tests.fakes.loop_driver import LoopDriver

TOKENS = 24


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("adapters")
    return {name: build_adapter(root / name, "llama", seed) for seed, name in enumerate(("a", "b"))}


def alone(folder: Path | None, prompt: list[int]) -> list[int]:
    """What mlx-lm says with this adapter loaded, greedy."""
    model = tiny_model("llama") if folder is None else load_adapters(fresh_model("llama"), str(folder))
    model.eval()
    return [int(token) for token, _ in generate_step(mx.array(prompt), model, max_tokens=TOKENS)]


def driver(folders: dict[str, Path], **options: int) -> LoopDriver:
    """An engine with both adapters mounted by command."""
    made = LoopDriver(fresh_model("llama"), **options)
    for name, folder in folders.items():
        made.control("mount_adapter", f"{name}={folder}")
    made.turn()
    assert made.mailbox.answers == {f"mount_adapter {name}={folder}": None for name, folder in folders.items()}
    return made


def test_rows_of_three_sets_run_together_each_as_alone(folders: dict[str, Path]) -> None:
    """Two rows of each adapter and two of none, joining at once and later, long and short prompts."""
    run = driver(folders, chunk_tokens=16)
    rows: dict[str, tuple[str | None, list[int]]] = {}
    for index, (name, length) in enumerate([("a", 5), (None, 40), ("b", 9), ("a", 33), ("b", 4), (None, 3)]):
        rows[f"row{index}"] = (name, prompt_of(length, index))
    for index, (id_, (name, prompt)) in enumerate(rows.items()):
        run.submit(id_, prompt, adapter=name, max_tokens=TOKENS)
        run.turn(index % 3)
    run.run_until_idle()
    for id_, (name, prompt) in rows.items():
        assert run.tokens(id_) == alone(None if name is None else folders[name], prompt), id_


def test_nobody_waits_for_another_adapters_rows(folders: dict[str, Path]) -> None:
    """Every live row gets a token in each step; rows with one adapter share a forward."""
    run = driver(folders)
    for index, name in enumerate(["a", "b", None, "a", "b", None]):
        run.submit(f"row{index}", prompt_of(6, index), adapter=name, max_tokens=TOKENS)
    run.turn(3)
    assert sorted(len(group.rows) for group in run.loop._batch.groups) == [2, 2, 2]
    before = len(run.deltas)
    run.turn(4)
    told = Counter(delta.id for delta in run.deltas[before:])
    assert set(told.values()) == {4}
    assert len(told) == 6


def test_choices_of_one_request_share_the_prefill_of_their_adapter(folders: dict[str, Path]) -> None:
    """Forks keep the adapter."""
    run = driver(folders)
    for choice in range(3):
        run.submit(f"r/{choice}", prompt_of(8), group="r", choice=choice, adapter="b", max_tokens=TOKENS)
    run.run_until_idle()
    assert [run.tokens(f"r/{choice}") for choice in range(3)] == [alone(folders["b"], prompt_of(8))] * 3


def test_choices_with_different_adapters_share_no_prefill(folders: dict[str, Path]) -> None:
    """A client may group what it likes: one prompt under two adapters is two prompts."""
    run = driver(folders)
    for choice, name in enumerate(("a", "b", "a")):
        run.submit(f"r/{choice}", prompt_of(8), group="r", choice=choice, adapter=name, max_tokens=TOKENS)
    run.run_until_idle()
    said = [run.tokens(f"r/{choice}") for choice in range(3)]
    assert said == [alone(folders[name], prompt_of(8)) for name in ("a", "b", "a")]


def test_an_unknown_adapter_costs_its_own_request(folders: dict[str, Path]) -> None:
    """Told with those that are mounted; others do not notice."""
    run = driver(folders)
    run.submit("good", prompt_of(5), adapter="a")
    run.submit("bad", prompt_of(5), adapter="z")
    run.run_until_idle()
    error = run.mailbox.rejected[SubmitId("bad")]
    assert (error.code, error.param) == (ErrorCode.MODEL_NOT_FOUND, "adapters")
    assert "mounted: a, b" in error.message
    assert run.finish("good").reason == "length"


def test_unmounting_and_remounting_leave_running_rows_as_they_are(folders: dict[str, Path]) -> None:
    """A running row keeps what it began with; the next one gets what the name means then."""
    run = driver(folders)
    run.submit("old", prompt_of(7), adapter="a", max_tokens=TOKENS)
    run.turn(3)
    run.control("unmount_adapter", "a")
    run.turn()
    run.submit("refused", prompt_of(7), adapter="a")
    run.control("mount_adapter", f"a={folders['b']}")
    run.turn()
    run.submit("new", prompt_of(7), adapter="a", max_tokens=TOKENS)
    run.run_until_idle()
    assert run.tokens("old") == alone(folders["a"], prompt_of(7))
    assert run.tokens("new") == alone(folders["b"], prompt_of(7))


def test_a_command_that_fails_says_why_and_changes_nothing(folders: dict[str, Path]) -> None:
    """Each in its own words."""
    run = driver(folders)
    run.control("mount_adapter", "c=/nowhere")
    run.control("mount_adapter", "nameless")
    run.control("unmount_adapter", "z")
    run.turn()
    answers = [answer for answer in run.mailbox.answers.values() if answer is not None]
    assert len(answers) == 3
    assert "/nowhere" in answers[0]
    assert "NAME=FOLDER" in answers[1]
    assert "mounted: a, b" in answers[2]
    assert run.board.status().adapters == ("a", "b")
