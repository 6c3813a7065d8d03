"""The table of tests/parity/README.md: what each architecture's layers keep, and whether its rows share a batch."""

from collections import Counter
from pathlib import Path

from mlx_lm.models.cache import make_prompt_cache

from engine.cache.registry import NoKindError, kind_of
from engine.model.support import probe_batching
from tests.parity.architectures import ARCHITECTURES, random_model
from tests.parity.kinds import ALL, HELD

README = Path(__file__).with_name("README.md")
HEAD = """\
# What is held, and what batches

Which test holds which kind of cache to which behaviour; the kinds are those of `tests/parity/kinds.py`, each on a whole
model or, below `engine/cache`, on one layer beside solo twins.

{held}
## What batches

Made by `python -m tests.parity.regen_table` from the models that `tests/parity/architectures.py` builds, and compared
in `test_table.py`. Each is built from mlx-lm's own `ModelArgs` with random weights, windows of 8 tokens, 4 to 6 layers.
Rows of every model that batches equal their solo runs (mlx-lm's `generate_step`) token for token on CPU float32; the
column *oracle* says whether they are also held against mlx-lm's `BatchGenerator` at the same batch size and join order.

| model | its layers keep | served | oracle | why |
|---|---|---|---|---|
"""


def table() -> str:
    """The whole file."""
    return HEAD.format(held=held_lines()) + "".join(_line(name) for name in sorted(ARCHITECTURES))


def held_lines() -> str:
    """One line a behaviour and test."""
    head = "| | what | kinds | test |\n|---|---|---|---|\n"
    return head + "".join(
        f"| {held.code} | {held.words} | {'all' if held.kinds == ALL else ', '.join(held.kinds)} | `{held.test}` |\n"
        for held in HELD
    )


def _line(name: str) -> str:
    model = random_model(name)
    batching = probe_batching(model, 32).batching
    names = Counter(_kind_name(cache) for cache in make_prompt_cache(model))
    kinds = ", ".join(f"{count} {kind}" for kind, count in names.items())
    oracle = "yes" if ARCHITECTURES[name].has_oracle else "no"
    return f"| {name} | {kinds} | {batching.mode} | {oracle} | {batching.reason} |\n"


def _kind_name(cache: object) -> str:
    try:
        return kind_of(cache).name
    except NoKindError:
        return type(cache).__name__
