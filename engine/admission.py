"""Who may become a row, and when: validity of a Submit, the bounded queue, the cap on live rows."""

import math
from collections import deque
from itertools import islice
from typing import Final

import msgspec

from engine.errors import EngineError
from engine.row import Row
from engine.sampling.sampler import HONOURED_FIELDS
from protocol.codec import unpack_ids
from protocol.errors import ErrorCode, ProtocolError
from protocol.messages import ModelFacts, Submit
from protocol.sampling import Sampling

# Numbers of Sampling that the wire leaves without an upper bound.
_UNBOUNDED: Final = ("repetition_penalty", "presence_penalty", "frequency_penalty")
_NEUTRAL = msgspec.structs.asdict(Sampling())


class Admission:
    """FIFO from the queue into at most max_rows live rows."""

    def __init__(self, facts: ModelFacts) -> None:
        self._facts = facts
        self.waiting: deque[Row] = deque()

    def check(self, submit: Submit) -> None:
        """Raises EngineError, with the field as param, for a Submit that this engine cannot serve as asked."""
        self._check_supported(submit)
        self._check_sampling(submit.sampling)
        prompt = _ids(submit.prompt.ids, "prompt")
        generated = _ids(submit.generated, "generated")
        if not prompt:
            raise EngineError(ErrorCode.INVALID_REQUEST, "the prompt has no tokens", param="prompt")
        if len(prompt) + len(generated) >= self._facts.context_length:
            raise EngineError(
                ErrorCode.CONTEXT_LENGTH_EXCEEDED,
                f"the prompt has {len(prompt)} tokens, the context holds {self._facts.context_length}; shorten it",
                param="prompt",
            )
        highest = max(max(prompt), max(generated, default=0))
        if highest >= self._facts.vocabulary_size:
            raise EngineError(
                ErrorCode.INVALID_REQUEST,
                f"token id {highest} is outside the vocabulary of {self._facts.vocabulary_size}",
                param="prompt",
            )
        if len(self.waiting) >= self._facts.limits.max_waiting:
            raise EngineError(
                ErrorCode.QUEUE_FULL, f"{len(self.waiting)} requests are waiting; try again later", retry_after_s=1.0
            )

    def can_admit(self, live_rows: int) -> bool:
        """Whether the head of the queue may start. live_rows: prefilling, ready and decoding ones.

        The choices of one request start together, so that their prompt is prefilled once.
        """
        max_rows = self._facts.limits.max_rows
        if not self.waiting or live_rows >= max_rows:
            return False
        siblings = sum(row.is_sibling_of(self.waiting[0]) for row in islice(self.waiting, max_rows))
        return live_rows + siblings <= max_rows

    def admit(self) -> list[Row]:
        """Takes the head of the queue, and the siblings next to it."""
        head = self.waiting.popleft()
        admitted = [head]
        while self.waiting and len(admitted) < self._facts.limits.max_rows and self.waiting[0].is_sibling_of(head):
            admitted.append(self.waiting.popleft())
        return admitted

    def remove(self, ended: set[Row]) -> None:
        """Forgets rows that ended while they waited."""
        self.waiting = deque(row for row in self.waiting if row not in ended)

    def _check_supported(self, submit: Submit) -> None:
        if submit.model != self._facts.id:
            raise EngineError(
                ErrorCode.MODEL_NOT_FOUND, f"{submit.model} is not served here; {self._facts.id} is", param="model"
            )
        for name in ("grammar", "adapter"):
            if getattr(submit, name) is not None:
                raise EngineError(ErrorCode.UNSUPPORTED, f"{name} is not supported by this engine yet", param=name)
        if submit.logprobs is not None and submit.logprobs.of_prompt:
            raise EngineError(
                ErrorCode.UNSUPPORTED, "log-probabilities of the prompt are not supported yet", param="logprobs"
            )
        if submit.priority:
            raise EngineError(
                ErrorCode.UNSUPPORTED, f"priority {submit.priority}: only 0 is supported yet", param="priority"
            )
        for name, value in msgspec.structs.asdict(submit.sampling).items():
            if name not in HONOURED_FIELDS and not name.endswith("_context") and value != _NEUTRAL[name]:
                raise EngineError(
                    ErrorCode.UNSUPPORTED, f"{name} {value!r} is not supported by this engine yet", param=name
                )

    def _check_sampling(self, sampling: Sampling) -> None:
        """What the wire's bounds do not say: ids of this vocabulary, and numbers that are finite."""
        ids = {
            "logit_bias": max((each.id for each in sampling.logit_bias), default=0),
            "bad_words": max((id_ for word in sampling.bad_words for id_ in word), default=0),
            "allowed_ids": max(sampling.allowed_ids, default=0),
            "xtc_spared_ids": max(sampling.xtc_spared_ids, default=0),
        }
        for name, highest in ids.items():
            if highest >= self._facts.vocabulary_size:
                raise EngineError(
                    ErrorCode.INVALID_REQUEST,
                    f"{name}: token id {highest} is outside the vocabulary of {self._facts.vocabulary_size}",
                    param=name,
                )
        numbers = {name: getattr(sampling, name) for name in _UNBOUNDED}
        numbers["logit_bias"] = sum(each.bias for each in sampling.logit_bias)
        for name, number in numbers.items():
            if not math.isfinite(number):
                raise EngineError(ErrorCode.INVALID_REQUEST, f"{name} {number} is not a finite number", param=name)


def _ids(data: bytes, name: str) -> list[int]:
    try:
        return unpack_ids(data)
    except ProtocolError as error:
        raise EngineError(error.code, error.message, param=name) from error
