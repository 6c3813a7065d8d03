"""How Python is set: the lock's turns, and garbage that is not looked through again."""

import gc
import sys
from pathlib import Path

import pytest

from frontend.interpreter import SWITCH_INTERVAL_S, set_turns, settle_garbage
from frontend.main import load_settled
from frontend.model_text import Parsers
from frontend.text.template import TemplateChoice
from protocol.messages import BosRule
from tests.fakes.processes import child
from tests.fakes.tokenizer_folder import build_tokenizer_folder

# Stands for all that main does once its settings are read.
SHOWS_TURNS = """
import sys
from frontend import main

async def shown(*_):
    sys.stderr.write(str(sys.getswitchinterval()))

main._serve = shown
sys.exit(main.main(sys.argv[1:]))
"""


@pytest.fixture(autouse=True)
def _as_before() -> object:
    before_s = sys.getswitchinterval()
    yield
    sys.setswitchinterval(before_s)
    gc.unfreeze()


def test_threads_give_way_sooner_than_by_themselves() -> None:
    """A tenth of what Python has, for each turn may delay each stream."""
    set_turns()
    assert sys.getswitchinterval() == pytest.approx(SWITCH_INTERVAL_S)
    assert SWITCH_INTERVAL_S <= 0.005 / 10


def test_the_process_is_set_so(runtime_dir: Path) -> None:
    """Before it serves."""
    flags = ["--runtime-dir", str(runtime_dir), "--port", "0", "--log-level", "error"]
    with child(["-c", SHOWS_TURNS, *flags]) as process:
        assert process.ended() == 0
        assert float(process.said()) == pytest.approx(SWITCH_INTERVAL_S)


def test_what_lives_is_not_looked_through_again() -> None:
    """A collection afterwards sees what was made afterwards, and only that."""
    kept = [[number] for number in range(1_000)]
    settle_garbage()
    seen = {id(found) for found in gc.get_objects()}
    younger = [[1]]
    assert seen.isdisjoint(map(id, kept))
    assert id(younger) in {id(found) for found in gc.get_objects()}


def test_a_loaded_model_is_settled(tmp_path: Path) -> None:
    """Its template and tables are of those that stay."""
    folder = build_tokenizer_folder(tmp_path)
    text = load_settled(TemplateChoice(), Parsers(), folder, BosRule())
    assert gc.get_freeze_count() > 1_000
    assert id(text.template) not in {id(found) for found in gc.get_objects()}
