"""One decode step in parts, so that the host works while the device does: forward, sample, read."""

from typing import Any, NamedTuple

import mlx.core as mx
import mlx.nn as nn

from engine.batch import Group
from engine.sampling.greedy import likeliest_tokens
from engine.sampling.sampler import sample
from engine.sampling.split import SplitPlan, in_batch_order, sample_constrained, sample_free
from protocol.messages import MAX_DRAFT_TOKENS


class Masked(NamedTuple):
    """tokens: [B] uint32, the register that all rows read next. ahead: [C], those in grammars alone, if they are
    there before the others."""

    tokens: mx.array
    ahead: mx.array | None = None


def launch_forward(model: nn.Module, group: Group) -> mx.array:
    """Builds step n's logits [B, V] on the still unread token register."""
    logits = model(group.register[:, None], cache=group.caches)[:, -1, :]
    group.layout.advance(1)
    return logits


def launch_logits(logits: mx.array) -> None:
    """Sets the device to work on step n while the host still has to say what some rows may sample from it."""
    mx.async_eval(logits)


def launch_sample(logits: mx.array, group: Group) -> mx.array:
    """Samples step n and sets the device to work on it. Returns the register it will read next: [B] uint32."""
    sampled = sample(logits, group.plan, group.register)
    mx.async_eval(sampled.arrays)
    return sampled.tokens


def launch_masked(logits: mx.array, masked: mx.array, plan: SplitPlan, inputs: mx.array) -> Masked:
    """Samples step n of a group with grammars from logits [B, V] and, of the rows that follow them, masked [C, V].

    inputs: [B]. On a CPU these rows come first, for there the others' sampling takes as long as masks do.
    """
    constrained = sample_constrained(masked, plan, inputs)
    if plan.order is None:
        mx.async_eval(constrained.arrays)
        return Masked(constrained.tokens)
    comes_first = mx.default_device().type == mx.DeviceType.cpu
    if comes_first:
        mx.async_eval(constrained.arrays)
    free = sample_free(logits, plan, inputs)
    tokens = in_batch_order(free, constrained, plan)
    mx.async_eval([tokens, *free.arrays, *constrained.arrays])
    return Masked(tokens, constrained.tokens if comes_first else None)


def draft(model: nn.Module, caches: list[Any], unread: list[int], count: int, vocabulary_size: int) -> list[int]:
    """A draft model's greedy guesses after the tokens it has not read yet, of which there is at least one."""
    if len(unread) > MAX_DRAFT_TOKENS + 1:
        # Logits after each of so many would take more than is counted for them, and only the last are looked at.
        feed(model, caches, unread[:-1])
        unread = unread[-1:]
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
