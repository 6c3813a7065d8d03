"""What the loop says of itself: a snapshot for the status board, a few times a second at most."""

import time
from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

from engine.mailbox import Mailbox
from engine.memory import Allocator
from engine.retire import Roster, Tally
from engine.status import LoopSnapshot, StatusBoard
from protocol.status import FrontendStatus, PrefixStatus, RowCounts, StepStatus

PUBLISH_EVERY_S: Final = 0.1
# Each may name itself in 4 kB: with more of them a status would not fit into its frame.
MAX_FRONTENDS_SHOWN: Final = 256


class Progress(NamedTuple):
    """Where the loop stands. waiting: rows of which nothing is computed. oldest_at: when the first of
    them came, in monotonic seconds.

    kv_bytes: of all live rows' caches; ledger_bytes: what all rows may take in the coming turn. kept_waiting: of the
    waiting rows, by memory alone.
    """

    waiting: int
    oldest_at: float | None
    decoding: int
    step: StepStatus
    kv_bytes: int
    ledger_bytes: int
    prefix: PrefixStatus
    kept_waiting: int = 0


class Reporter:
    """Publishes snapshots of one loop. Reads its parts, changes none."""

    def __init__(self, board: StatusBoard, mailbox: Mailbox, roster: Roster, tally: Tally) -> None:
        self._board = board
        self._mailbox = mailbox
        self._roster = roster
        self._tally = tally
        self._published_at = 0.0

    def is_due(self) -> bool:
        """Whether it is time for the next snapshot; an idle loop is always worth one."""
        return time.monotonic() - self._published_at >= PUBLISH_EVERY_S or not self._roster.rows

    def publish(self, progress: Progress, allocator: Allocator) -> None:
        """Puts a snapshot on the board."""
        now = self._published_at = time.monotonic()
        prefilling = len(self._roster.rows) - progress.waiting - progress.decoding
        self._board.publish(
            LoopSnapshot(
                rows=RowCounts(
                    waiting=progress.waiting,
                    prefilling=prefilling,
                    decoding=progress.decoding,
                    oldest_waiting_ms=0.0 if progress.oldest_at is None else (now - progress.oldest_at) * 1e3,
                    waiting_for_memory=progress.kept_waiting,
                ),
                step=progress.step,
                prompt_total=self._tally.prompt_tokens,
                generated_total=self._tally.generated_tokens,
                drafted_total=self._tally.drafted_tokens,
                accepted_total=self._tally.accepted_tokens,
                prefix=progress.prefix,
                memory=allocator.status(progress.kv_bytes, progress.ledger_bytes),
                counters=self._tally.counters(self._mailbox.malformed_frames, self._mailbox.stale_messages),
                frontends=tuple(self._frontends(now)),
            )
        )

    def _frontends(self, now: float) -> Iterator[FrontendStatus]:
        for identity, client in islice(self._mailbox.clients.items(), MAX_FRONTENDS_SHOWN):
            yield FrontendStatus(
                name=client.info.name,
                pid=client.info.pid,
                listens=client.info.listens,
                rows=len(self._roster.of_client(identity)),
                silent_s=now - client.heard_at,
                parsers=client.parsers,
            )
