"""The board between the loop and the heartbeat."""

import msgspec
import pytest

from engine.report import MAX_FRONTENDS_SHOWN
from engine.status import LoopSnapshot, StatusBoard
from protocol.codec import decode_status, decode_to_engine, encode
from protocol.errors import ProtocolError
from protocol.messages import Batching, ClientInfo, Epoch, Hello
from protocol.status import Counters, FrontendStatus, Histogram, MemoryStatus, ModelStatus, RowCounts, StepStatus


class Clock:
    """Seconds, moved by hand."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def make_board() -> tuple[StatusBoard, Clock]:
    clock = Clock()
    return StatusBoard(Epoch("e1"), restarts=3, clock=clock), clock


def test_a_status_of_many_wordy_clients_fits_into_a_frame() -> None:
    """A9: whatever clients say of themselves, the heartbeat can send it."""
    longest = "\U0001f600" * 256
    info = ClientInfo(name=longest, pid=2**53, listens=(longest,) * 16)
    frontend = FrontendStatus(name=info.name, pid=info.pid, listens=info.listens, rows=2**53)
    board, _ = make_board()
    board.publish(LoopSnapshot(frontends=(frontend,) * MAX_FRONTENDS_SHOWN))
    assert len(decode_status(encode(board.status())).frontends) == MAX_FRONTENDS_SHOWN
    hello = Hello(epoch="e1", protocol_version=1, client=msgspec.structs.replace(info, listens=(longest,) * 17))
    with pytest.raises(ProtocolError, match="length <= 16"):
        decode_to_engine(encode(hello))


def test_a_fresh_board_says_starting() -> None:
    """Before anything is known the picture is complete and travels."""
    board, clock = make_board()
    clock.now_s += 2.5
    status = decode_status(encode(board.status()))
    assert (status.phase, status.epoch, status.restarts, status.uptime_s) == ("starting", "e1", 3, 2.5)
    assert status.model is None
    assert status.step.age_ms == 0.0


def test_what_is_written_is_in_the_next_picture() -> None:
    """Phase, model and the loop's numbers all show."""
    board, _ = make_board()
    model = ModelStatus(id="m", path="p", dtype="float32", device="cpu", context_length=10, max_rows=4)
    batching = Batching(mode="serial", reason="why")
    snapshot = LoopSnapshot(
        rows=RowCounts(waiting=1, prefilling=2, decoding=3),
        step=StepStatus(count=7, last_ms=1.5, gaps_ms=Histogram(bounds=(1.0,), counts=(2, 3), sum=9.0)),
        prompt_total=11,
        generated_total=13,
        memory=MemoryStatus(kv_bytes=17),
        counters=Counters(submitted=6),
    )
    board.set_phase("ready", "detail")
    board.set_model(model, batching)
    board.publish(snapshot)
    status = board.status()
    assert (status.phase, status.phase_detail, status.model, status.batching) == ("ready", "detail", model, batching)
    assert (status.rows, status.memory, status.counters) == (snapshot.rows, snapshot.memory, snapshot.counters)
    assert status.step == snapshot.step
    assert (status.tokens.prompt_total, status.tokens.generated_total) == (11, 13)


def test_a_turn_has_an_age_only_while_it_runs() -> None:
    """Age grows from turn_began on and is 0 when idle."""
    board, clock = make_board()
    clock.now_s += 5
    ages = [board.turn_age_s]
    board.turn_began()
    clock.now_s += 2
    ages += [board.turn_age_s, board.status().step.age_ms]
    board.turn_ended()
    clock.now_s += 2
    ages.append(board.turn_age_s)
    assert ages == [0.0, 2.0, 2_000.0, 0.0]


def test_a_new_turn_starts_its_age_anew() -> None:
    """Two turns without a pause between them are not one long turn."""
    board, clock = make_board()
    board.turn_began()
    clock.now_s += 2
    board.turn_began()
    clock.now_s += 1
    assert board.turn_age_s == 1.0


def rates(totals: list[int], interval_s: float) -> list[float]:
    """Tokens per second seen by a reader that reads at a fixed interval."""
    board, clock = make_board()
    seen: list[float] = []
    for total in totals:
        board.publish(LoopSnapshot(generated_total=total))
        seen.append(round(board.status().tokens.generated_per_s, 6))
        clock.now_s += interval_s
    return seen


def test_tokens_per_second_are_over_the_window() -> None:
    """A steady stream shows its rate; three seconds after its end the rate is 0."""
    steady = [10 * step for step in range(20)]
    seen = rates(steady + [steady[-1]] * 14, 0.25)
    assert seen[0] == 0.0
    assert seen[1:20] == [40.0] * 19
    assert 0.0 < seen[25] < 40.0
    assert seen[32:] == [0.0, 0.0]


def test_a_slow_reader_still_gets_a_rate() -> None:
    """Readings further apart than the window are compared with the one before."""
    assert rates([0, 50, 150], 10.0) == [0.0, 5.0, 10.0]


def test_two_readings_at_one_instant_do_not_divide_by_zero() -> None:
    """A clock that stands still gives rate 0."""
    assert rates([0, 5], 0.0) == [0.0, 0.0]


def test_a_snapshot_is_frozen() -> None:
    """The heartbeat reads what the loop wrote, never what it is writing."""
    defaults = LoopSnapshot()
    assert defaults.rows == RowCounts()
    assert msgspec.structs.asdict(defaults.counters) == msgspec.structs.asdict(Counters())
