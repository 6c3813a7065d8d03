"""B16: rows of very different lengths decode in groups, and the ledger's figure holds."""

import mlx.core as mx
import pytest

from tests.fakes.loop_driver import LoopDriver, facts_of
from tests.fakes.models import prompt_of, tiny_model
from tests.parity.oracle import solo_tokens

SHORT_ROWS = 7
_ARGS = tiny_model("llama").args
COLUMN_BYTES = (
    2
    * 4
    * _ARGS.num_hidden_layers
    * _ARGS.num_key_value_heads
    * (_ARGS.head_dim or _ARGS.hidden_size // _ARGS.num_attention_heads)
)


def _driver(weights_bytes: int) -> LoopDriver:
    facts = facts_of(tiny_model("llama"), context_length=8_192)
    return LoopDriver(tiny_model("llama"), facts, chunk_tokens=512, weights_bytes=weights_bytes)


def _group_sizes(driver: LoopDriver) -> list[int]:
    return sorted(len(group.rows) for group in driver.loop._batch.groups)


def test_a_long_row_beside_short_ones_has_a_group_of_its_own() -> None:
    """One row of 4,000 tokens beside seven of 100: measured memory stays under the ledger, tokens are unchanged."""
    driver = _driver(weights_bytes=1 << 16)
    mx.clear_cache()
    before_bytes = mx.get_active_memory()
    for index in range(SHORT_ROWS):
        driver.submit(str(index), prompt_of(100 + index, index), max_tokens=60)
    driver.turn(2)
    driver.submit("long", prompt_of(4_000), max_tokens=30)
    sizes: set[tuple[int, ...]] = set()
    assert driver.live_ids()
    while driver.live_ids():
        driver.turn()
        batch = driver.loop._batch
        sizes.add(tuple(_group_sizes(driver)))
        if len(batch) == SHORT_ROWS + 1:
            logits_bytes = 4 * len(batch) * driver.facts.vocabulary_size
            assert mx.get_active_memory() - before_bytes <= batch.ledger_bytes + 3 * logits_bytes
    assert (1, SHORT_ROWS) in sizes
    assert driver.tokens("long") == solo_tokens(tiny_model("llama"), prompt_of(4_000), 30)
    for index in range(SHORT_ROWS):
        assert driver.tokens(str(index)) == solo_tokens(tiny_model("llama"), prompt_of(100 + index, index), 60)


@pytest.mark.parametrize(("weights_bytes", "sizes"), [(1 << 30, [4]), (1 << 16, [1, 3])])
def test_the_cost_rule_decides(weights_bytes: int, sizes: list[int]) -> None:
    """Where the weights outweigh the padding, all rows share one group."""
    driver = _driver(weights_bytes)
    driver.submit("long", prompt_of(1_500), max_tokens=20)
    for index in range(3):
        driver.submit(str(index), prompt_of(30 + index, index), max_tokens=20)
    while len(driver.loop._batch) < 4:
        driver.turn()
    assert _group_sizes(driver) == sizes


def test_groups_merge_when_the_long_row_leaves() -> None:
    """Two groups whose rows have come to cost less together become one, and go on with their own words."""
    driver = _driver(weights_bytes=2_500 * COLUMN_BYTES)
    lengths = {"long": 2_000, "middle": 700, "short": 20, "shorter": 12}
    for index, (id_, length) in enumerate(lengths.items()):
        driver.submit(id_, prompt_of(length, index), max_tokens=12 if id_ == "long" else 40)
        driver.turn(2)
    seen: list[list[int]] = []
    while driver.live_ids():
        driver.turn()
        seen.append(_group_sizes(driver))
    assert [2, 2] in seen
    assert [3] in seen[seen.index([2, 2]) :]
    for index, (id_, length) in enumerate(lengths.items()):
        count = 12 if id_ == "long" else 40
        assert driver.tokens(id_) == solo_tokens(tiny_model("llama"), prompt_of(length, index), count)


def test_the_ledger_charges_the_width_of_the_group() -> None:
    """Rows x group width, and one layer twice: two rows in one group of 300 columns cost 512 columns each."""
    driver = _driver(weights_bytes=1 << 30)
    driver.submit("a", prompt_of(300), max_tokens=20)
    driver.submit("b", prompt_of(10, 1), max_tokens=20)
    while len(driver.loop._batch) < 2:
        driver.turn()
    batch = driver.loop._batch
    (group,) = batch.groups
    layer = group.layer_bytes(512)
    assert batch.ledger_bytes == 2 * sum(layer) + 2 * layer[0]
    assert batch.allocated_bytes <= batch.ledger_bytes
