"""Who may become a row, and when: validity of a Submit, the bounded queue, the cap on live rows."""

import math
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice, takewhile
from typing import Final

import msgspec

from engine.errors import EngineError
from engine.memory_plan import MemoryPlan
from engine.priority import put_first, queue_by_priority
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
    """From the queue into at most max_rows live rows: by priority, then first in, first out."""

    def __init__(self, facts: ModelFacts, memory: MemoryPlan) -> None:
        self._facts = facts
        self._memory = memory
        self.waiting: deque[Row] = deque()
        self._compiling: list[Row] = []
        self._alone: Row | None = None

    def check(self, submit: Submit) -> None:
        """Raises EngineError, with the field as param, for a Submit that this engine cannot serve as asked."""
        self._check_supported(submit)
        self._check_sampling(submit.sampling)
        self._check_ids("stop_ids", submit.stop_ids)
        prompt = _ids(submit.prompt.ids, "prompt")
        generated = _ids(submit.generated, "generated")
        if not prompt:
            raise EngineError(ErrorCode.INVALID_REQUEST, "the prompt has no tokens", param="prompt")
        if len(prompt) + len(generated) >= self._facts.context_length:
            raise EngineError(
                ErrorCode.CONTEXT_LENGTH_EXCEEDED,
                f"the prompt has {len(prompt)} tokens, the context holds {self._facts.context_length}; "
                f"{self._facts.memory_limit or 'shorten it'}",
                param="prompt",
            )
        self._memory.check(submit, len(prompt) + len(generated))
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

    def queue(self, row: Row) -> None:
        """Puts a row behind its like. While its grammar compiles it keeps its place, and rows behind it may pass."""
        queue_by_priority(self.waiting, row)
        if row.compiling is not None:
            self._compiling.append(row)

    @property
    def compiling_rows(self) -> int:
        """How many of the waiting rows wait for their grammars."""
        return len(self._compiling)

    def compiled(self) -> list[Row]:
        """Rows whose grammar is compiled or refused since the last call: each is told once."""
        if not self._compiling:
            return []
        done = [row for row in self._compiling if row.compiling is None or row.compiling.done()]
        self._compiling = [row for row in self._compiling if row not in done]
        return done

    def overdue(self, before: float) -> list[Row]:
        """Rows that were submitted before then and whose grammars are not compiled. before: monotonic seconds."""
        return [row for row in self._compiling if row.submitted_at < before]

    def can_admit(self, live_rows: int) -> bool:
        """Whether a row of the queue may start. live_rows: prefilling, ready and decoding ones.

        The choices of one request start together, so that their prompt is prefilled once. A row that decodes alone
        starts when all others have finished, and those behind it when it has.
        """
        max_rows = self._facts.limits.max_rows
        if live_rows == 0:
            self._alone = None
        if self._alone is not None or not self.startable_rows or live_rows >= max_rows:
            return False
        startable = list(islice(self._startable(), max_rows))
        if startable[0].decodes_alone:
            return live_rows == 0
        return live_rows + sum(row.is_sibling_of(startable[0]) for row in startable) <= max_rows

    def next_family(self) -> list[Row]:
        """The first row that does not wait for its grammar, and the siblings next to it."""
        startable = islice(self._startable(), self._facts.limits.max_rows)
        head = next(startable)
        return [head] if head.decodes_alone else [head, *takewhile(head.is_sibling_of, startable)]

    def admit(self, rows: list[Row]) -> None:
        """Takes these of the next family out of the queue: they are live from now on."""
        if rows[0].decodes_alone:
            self._alone = rows[0]
        self.remove(set(rows))

    def put_back(self, row: Row) -> None:
        """A row that gave up its place: it is the next of its priority."""
        put_first(self.waiting, row)

    @property
    def startable_rows(self) -> int:
        """How many of the waiting rows wait for a place alone."""
        return len(self.waiting) - len(self._compiling)

    def _startable(self) -> Iterator[Row]:
        return (row for row in self.waiting if row.compiling is None)

    def remove(self, ended: set[Row]) -> None:
        """Forgets rows that ended while they waited. What nobody waits for any more is not compiled."""
        self.waiting = deque(row for row in self.waiting if row not in ended)
        gone = [row for row in self._compiling if row in ended]
        self._compiling = [row for row in self._compiling if row not in ended]
        for row in gone:
            if row.compiling is not None and not any(other.compiling is row.compiling for other in self._compiling):
                row.compiling.cancel()

    def _check_supported(self, submit: Submit) -> None:
        if submit.model != self._facts.id:
            raise EngineError(
                ErrorCode.MODEL_NOT_FOUND, f"{submit.model} is not served here; {self._facts.id} is", param="model"
            )
        for name, value in msgspec.structs.asdict(submit.sampling).items():
            if name not in HONOURED_FIELDS and not name.endswith("_context") and value != _NEUTRAL[name]:
                raise EngineError(
                    ErrorCode.UNSUPPORTED, f"{name} {value!r} is not supported by this engine yet", param=name
                )

    def _check_sampling(self, sampling: Sampling) -> None:
        """What the wire's bounds do not say: ids of this vocabulary, and numbers that are finite."""
        self._check_ids("logit_bias", [each.id for each in sampling.logit_bias])
        self._check_ids("bad_words", [id_ for word in sampling.bad_words for id_ in word])
        self._check_ids("allowed_ids", sampling.allowed_ids)
        self._check_ids("xtc_spared_ids", sampling.xtc_spared_ids)
        numbers = {name: getattr(sampling, name) for name in _UNBOUNDED}
        numbers["logit_bias"] = sum(each.bias for each in sampling.logit_bias)
        for name, number in numbers.items():
            if not math.isfinite(number):
                raise EngineError(ErrorCode.INVALID_REQUEST, f"{name} {number} is not a finite number", param=name)

    def _check_ids(self, name: str, ids: Sequence[int]) -> None:
        highest = max(ids, default=0)
        if highest >= self._facts.vocabulary_size:
            raise EngineError(
                ErrorCode.INVALID_REQUEST,
                f"{name}: token id {highest} is outside the vocabulary of {self._facts.vocabulary_size}",
                param=name,
            )


def _ids(data: bytes, name: str) -> list[int]:
    try:
        return unpack_ids(data)
    except ProtocolError as error:
        raise EngineError(error.code, error.message, param=name) from error
