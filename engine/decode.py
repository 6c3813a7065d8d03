"""One decode step in parts, so that the host works while the device does: forward, sample, read."""

from typing import Any

import mlx.core as mx
import mlx.nn as nn

from engine.batch import Group
from engine.sampling.greedy import likeliest_tokens
from engine.sampling.sampler import sample
from engine.sampling.split import Split, SplitPlan, sample_constrained


def launch_forward(model: nn.Module, group: Group) -> mx.array:
    """Builds step n's logits [B, V] on the still unread token register."""
    logits = model(group.register[:, None], cache=group.caches)[:, -1, :]
    group.layout.advance(1)
    return logits


def launch_split(split: Split) -> None:
    """Sets the device to work on step n while the host still has to say what some rows may sample from it."""
    mx.async_eval(split.arrays)


def launch_sample(logits: mx.array, group: Group) -> mx.array:
    """Samples step n and sets the device to work on it. Returns the register it will read next: [B] uint32."""
    sampled = sample(logits, group.plan, group.register)
    mx.async_eval(sampled.arrays)
    return sampled.tokens


def launch_masked(split: Split, masked: mx.array, plan: SplitPlan, inputs: mx.array) -> mx.array:
    """Samples the rest of step n from masked [C, V]. Returns the register that all rows read next: [B] uint32."""
    sampled = sample_constrained(split, masked, plan, inputs)
    mx.async_eval(sampled.arrays)
    return sampled.tokens


def draft(model: nn.Module, caches: list[Any], unread: list[int], count: int, vocabulary_size: int) -> list[int]:
    """A draft model's greedy guesses after the tokens it has not read yet, of which there is at least one."""
    register = mx.array(unread, dtype=mx.uint32)[None]
    guesses: list[mx.array] = []
    for _ in range(count):
        guess = mx.argmax(model(register, cache=caches)[:, -1, :vocabulary_size], axis=-1)
        mx.async_eval(guess)
        guesses.append(guess)
        register = guess[None]
    return read(mx.concatenate(guesses))


def feed(model: nn.Module, caches: list[Any], tokens: list[int]) -> None:
    """Has a draft model read tokens, and waits for it."""
    model(mx.array(tokens, dtype=mx.uint32)[None], cache=caches)
    mx.eval([cache.state for cache in caches])


def verify(model: nn.Module, group: Group, tokens: list[int]) -> list[int]:
    """What the model says after each of these tokens of the group's one row; its caches then hold them all."""
    logits = model(mx.array(tokens, dtype=mx.uint32)[None], cache=group.caches)
    return read(likeliest_tokens(logits[0]))


def read(register: mx.array) -> list[int]:
    """Waits for a register's tokens: the one place where a step waits for the device."""
    mx.eval(register)
    return register.tolist()  # pyright: ignore[reportReturnType]  # one axis of uint32
