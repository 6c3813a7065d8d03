"""Times what each kind of cache costs: a join, a filter, a decode step; paired with mlx-lm's own, interleaved.

Owns the shapes and the ratios; `step` times a plain model's whole turn. `python -m bench.caches --help`.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from bench.step import Schedule, measured, ratios
from bench.step_runners import BareLoop, OurDecode, fixed_prompts

# isort: split
import mlx.core as mx
import numpy as np
from mlx import nn
from mlx.utils import tree_flatten
from mlx_lm.models.cache import ArraysCache, CacheList, KVCache, RotatingKVCache

from engine.cache.layout import Layout
from engine.cache.registry import kind_of
from engine.model.classes import model_classes

LAYERS: Final = 4
HEADS: Final = 4
HEAD_WIDTH: Final = 64
WINDOW: Final = 256
# Seven rows decode, the eighth joins; then the widest leaves.
LENGTHS: Final = (700, 120, 340, 90, 510, 260, 180)
JOINER_TOKENS: Final = 230
STEP_ROWS: Final = 8
_COMMON: Final[dict[str, Any]] = {
    "vocab_size": 8_192,
    "hidden_size": 128,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": 2,
    "intermediate_size": 384,
    "head_dim": 32,
    "max_position_embeddings": 32_768,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
}
MODELS: Final[dict[str, dict[str, Any]]] = {
    "llama": {},
    "gemma3_text": {"sliding_window": 64, "sliding_window_pattern": 4, "query_pre_attn_scalar": 32},
    "lfm2": {
        "norm_eps": 1e-5,
        "conv_bias": False,
        "conv_L_cache": 3,
        "block_dim": 128,
        "block_multiple_of": 32,
        "block_ffn_dim_multiplier": 1.0,
        "block_auto_adjust_ff_dim": False,
        "full_attn_idxs": [1, 3],
    },
    "falcon_h1": {"mamba_d_ssm": 128, "mamba_n_heads": 4, "mamba_d_head": 32, "mamba_d_state": 32},
    # Its arguments are nested. mlx-lm has no batched form of its caches: only the step is timed.
    "llama4": {
        "attention_bias": False,
        "attention_chunk_size": 64,
        "interleave_moe_layer_step": 2,
        "intermediate_size_mlp": 384,
        "num_experts_per_tok": 1,
        "num_local_experts": 4,
        "rope_scaling": None,
        "rope_theta": 100_000.0,
        "use_qk_norm": True,
    },
}
CACHES: Final[dict[str, Callable[[], Any]]] = {
    "plain": KVCache,
    "sliding window": lambda: RotatingKVCache(WINDOW),
    "recurrent": lambda: ArraysCache(2),
    "composite": lambda: CacheList(ArraysCache(2), KVCache()),
}


@dataclass(frozen=True, slots=True)
class Figures:
    """Medians over rounds: milliseconds of ours and of mlx-lm's extend and filter, 4 layers each.

    write_ms: of the join and the next token's write: mlx-lm's extend leaves no room, so there it copies all again.
    """

    kind: str
    join_ms: tuple[float, float]
    write_ms: tuple[float, float]
    keep_ms: tuple[float, float]

    @property
    def line(self) -> str:
        """For a person."""
        pairs = (("join", self.join_ms), ("join+write", self.write_ms), ("leave", self.keep_ms))
        words = [
            f"{name} {ours:7.2f} ms, mlx-lm {theirs:7.2f} ms x{ours / theirs:.2f}" for name, (ours, theirs) in pairs
        ]
        return f"{self.kind:<16} {'   '.join(words)}"


def compared(kind_name: str, rounds: int) -> Figures:
    """A join into seven rows and a leave of the widest of eight: ours and mlx-lm's, in turns."""
    found: tuple[list[_Times], list[_Times]] = ([], [])
    for turn in range(rounds + 1):
        sides = [(found[0], _ours), (found[1], _theirs)]
        for times, run in sides if turn % 2 else sides[::-1]:
            times.append(run(kind_name))
    # The first round warms up.
    pairs = [
        (statistics.median(own[part] for own in found[0][1:]), statistics.median(own[part] for own in found[1][1:]))
        for part in range(3)
    ]
    return Figures(kind_name, *pairs)


class _Times(NamedTuple):
    """Milliseconds of a join, of that with the next write, of a leave."""

    join: float
    write: float
    keep: float


def _ours(kind_name: str) -> _Times:
    make = CACHES[kind_name]
    kind = kind_of(make())
    running = Layout.side_by_side([Layout([0], length) for length in LENGTHS])
    batches = [kind.stack([_filled(make, length) for length in LENGTHS], running) for _ in range(LAYERS)]
    joiners = [_filled(make, JOINER_TOKENS) for _ in range(LAYERS)]
    _settle(batches + joiners)
    layout = Layout.side_by_side([running, Layout([0], JOINER_TOKENS)])
    keep = list(range(1, len(LENGTHS) + 1))
    kept = layout.kept(keep)
    rows = mx.array(keep)

    def join() -> None:
        for layer in range(LAYERS):
            batches[layer] = kind.stack([batches[layer], joiners[layer]], layout)

    def leave() -> None:
        for layer in range(LAYERS):
            batches[layer] = kind.keep(batches[layer], rows, kept)

    join_ms = _timed(join, batches)
    write_ms = _timed(lambda: _write_token(batches), batches)
    for used in (layout, kept):
        used.advance(1)
    return _Times(join_ms, join_ms + write_ms, _timed(leave, batches))


def _theirs(kind_name: str) -> _Times:
    make = CACHES[kind_name]
    batches = [type(make()).merge([_filled(make, length) for length in LENGTHS]) for _ in range(LAYERS)]
    joiners = [_filled(make, JOINER_TOKENS) for _ in range(LAYERS)]
    _settle(batches + joiners)

    def join() -> None:
        for batch, joiner in zip(batches, joiners, strict=True):
            batch.extend(type(joiner).merge([joiner]))

    def leave() -> None:
        for batch in batches:
            batch.filter(keep)

    keep = mx.array(list(range(1, len(LENGTHS) + 1)))
    join_ms = _timed(join, batches)
    write_ms = _timed(lambda: _write_token(batches), batches)
    return _Times(join_ms, join_ms + write_ms, _timed(leave, batches))


def _filled(make: Callable[[], Any], length: int) -> Any:
    """A solo cache that has taken a prompt of so many tokens."""
    cache = make()
    for part in cache.caches if isinstance(cache, CacheList) else (cache,):
        if isinstance(part, ArraysCache):
            part[0] = mx.random.normal((1, 3, 4 * HEAD_WIDTH))
            part[1] = mx.random.normal((1, HEADS, HEAD_WIDTH, HEAD_WIDTH))
        else:
            keys, values = (mx.random.normal((1, HEADS, length, HEAD_WIDTH)) for _ in range(2))
            part.update_and_fetch(keys, values)
    return cache


def _write_token(batches: list[Any]) -> None:
    """One token into every layer that has columns."""
    token = mx.ones((len(LENGTHS) + 1, HEADS, 1, HEAD_WIDTH))
    for batch in batches:
        for part in batch.caches if isinstance(batch, CacheList) else (batch,):
            if not isinstance(part, ArraysCache):
                part.update_and_fetch(token, token)


def _timed(work: Callable[[], object], touched: list[Any]) -> float:
    """Milliseconds of the work and of evaluating all caches in `touched` after it."""
    began_s = time.perf_counter()
    work()
    _settle(touched)
    return (time.perf_counter() - began_s) * 1e3


def _settle(caches: list[Any]) -> None:
    flat: Any = tree_flatten([cache.state for cache in caches])
    mx.eval([leaf for _, leaf in flat if isinstance(leaf, mx.array)])


def step_ratio(name: str, schedule: Schedule) -> tuple[float, float]:
    """Of a random 4-layer model with 8 rows: milliseconds of the bare loop, and our decode step over it."""
    model = random_layers(name)
    prompts = fixed_prompts(STEP_ROWS, _COMMON["vocab_size"])
    found = measured([make(model, prompts) for make in (BareLoop, OurDecode)], schedule, time.perf_counter)
    return statistics.median(found[BareLoop.name]), ratios(found)[OurDecode.name]


def random_layers(name: str) -> nn.Module:
    """One of MODELS, float32."""
    config: dict[str, Any] = _COMMON | {"model_type": name} | MODELS[name]
    if name == "llama4":
        config = {"model_type": name, "text_config": config}
    classes = model_classes(config)
    model: nn.Module = classes.model(classes.arguments.from_dict(config))
    random = np.random.default_rng(1)
    parameters: Any = tree_flatten(model.parameters())
    weights = [(key, mx.array(random.normal(0, 0.05, old.shape).astype(np.float32))) for key, old in parameters]
    model.load_weights(weights)
    mx.eval(model.parameters())
    return model


def main() -> None:
    """Times joins, leaves and steps of every kind and prints ratios over mlx-lm's."""
    parser = argparse.ArgumentParser(prog="python -m bench.caches", description=main.__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=16, help="decode steps in a block")
    options = parser.parse_args()
    for name in CACHES:
        print(compared(name, options.rounds).line, flush=True)
    for name in MODELS:
        bare_ms, ratio = step_ratio(name, Schedule(options.rounds, options.steps))
        print(f"{name:<16} step B={STEP_ROWS} bare {bare_ms:6.2f} ms   decode x{ratio:.3f}", flush=True)


if __name__ == "__main__":
    main()
