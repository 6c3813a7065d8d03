"""From Submits to waiting rows: checked, refused or queued, cancelled, and started once their grammars are compiled.

Owns the answers to what is refused; who may run, and when, is admission.py's.
"""

import logging
import time
from typing import Final

from engine.admission import Admission
from engine.containment import Containment
from engine.errors import EngineError
from engine.parts import LoopParts
from engine.retire import Roster, finish_reason_of
from engine.row import Row, RowKey, make_row
from engine.sampling.grammar_text import refused
from protocol.errors import ErrorCode
from protocol.messages import Cancel, Submit

log = logging.getLogger(__name__)

# A compiler's thread cannot be stopped, but its limits end it in seconds; who waits for it is told this soon.
MAX_COMPILE_S: Final = 10.0


class Intake:
    """One per loop. Closed, it refuses every further Submit."""

    def __init__(self, parts: LoopParts, roster: Roster, admission: Admission, faults: Containment) -> None:
        self._parts = parts
        self._roster = roster
        self._admission = admission
        self._faults = faults
        self._is_closed = False

    def close(self) -> None:
        """From now on the engine is shutting down."""
        self._is_closed = True

    def queue(self, key: RowKey, submit: Submit) -> None:
        """The Submit becomes a waiting row, or is told why not."""
        self._roster.tally.submitted += 1
        with self._faults.handing([], lambda why: self._give_up(key, submit, why)):
            self._queue(key, submit)

    def _queue(self, key: RowKey, submit: Submit) -> None:
        try:
            if self._is_closed:
                raise EngineError(ErrorCode.SHUTTING_DOWN, "the engine is shutting down", retry_after_s=1.0)
            if key in self._roster.rows:
                raise EngineError(ErrorCode.DUPLICATE_ID, f"{key.id} is running already", param="id")
            self._admission.check(submit)
            adapter = self._parts.adapters.find(submit.adapter)
            compiling = None if submit.grammar is None else self._parts.grammars.start(submit.grammar)
        except EngineError as error:
            self._reject(key, error)
            return
        row = make_row(key, submit, self._parts.facts, time.monotonic())
        row.compiling = compiling
        row.adapter = adapter
        row.decodes_alone = self._parts.cache_plan.must_decode_alone(row.prompt_tokens + row.limit)
        self._roster.add(row)
        self._admission.queue(row)
        if row.emitted >= row.limit:
            self._roster.end(row, "length", time.monotonic())

    def _give_up(self, key: RowKey, submit: Submit, why: str) -> None:
        """Answers a Submit that met a fault: refused where it is no row yet. Its id may be that of an older row."""
        row = self._roster.rows.get(key)
        if row is not None and row.submit is submit:
            self._roster.fail(row, ErrorCode.INTERNAL, why, time.monotonic())
        else:
            self._reject(key, EngineError(ErrorCode.INTERNAL, why))

    def cancel(self, client: bytes, cancel: Cancel) -> None:
        """A Cancel may cross the row's own finish on the wire: then there is nothing to end."""
        row = self._roster.rows.get(RowKey(client, cancel.id))
        if row is not None:
            log.info("row.cancelled", extra={"id": row.key.id, "reason": cancel.reason})
            row.prefix.keep_tokens = cancel.keep_tokens
            self._roster.end(row, finish_reason_of(cancel), time.monotonic())

    def settle_grammars(self) -> None:
        """Rows whose grammars are compiled may start; those whose grammars are refused, or overdue, never ran."""
        for row in self._admission.compiled():
            with self._faults.ending([row], ErrorCode.INTERNAL):
                self._settle(row)
        for row in self._admission.overdue(time.monotonic() - MAX_COMPILE_S):
            self._withdraw(row, _overdue(row))

    def _settle(self, row: Row) -> None:
        try:
            row.follow_grammar(self._parts.grammars.tokenizer.eos_ids)
        except EngineError as error:
            self._withdraw(row, error)
            return
        if row.grammar is not None and row.grammar.is_satisfied:
            self._roster.end(row, "stop", time.monotonic())

    def _withdraw(self, row: Row, error: EngineError) -> None:
        self._roster.withdraw(row)
        self._reject(row.key, error)

    def _reject(self, key: RowKey, error: EngineError) -> None:
        self._roster.tally.rejected += 1
        log.info("row.rejected", extra={"id": key.id, "code": error.code, "why": error.message})
        self._parts.mailbox.reject(key.client, error, key.id)


def _overdue(row: Row) -> EngineError:
    if row.compiling is not None and row.compiling.running():
        return refused(f"the grammar does not compile within {MAX_COMPILE_S:.0f} s: make it simpler")
    return EngineError(
        ErrorCode.QUEUE_FULL, "the grammars of other requests are being compiled; try again later", retry_after_s=1.0
    )
