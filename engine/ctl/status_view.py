"""`engine-ctl status`: the engine's pushed status joined with the supervisor's state, as JSON or for people."""

from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import zmq
from rich.console import Console
from rich.table import Column, Table

from engine.ctl.failure import CommandError
from engine.ctl.state import FrontendState, SupervisorState, read_state
from protocol.codec import decode_status
from protocol.endpoint import RuntimeFolder, connect_status
from protocol.errors import ProtocolError
from protocol.messages import Batching, ParserNames
from protocol.status import (
    Counters,
    EngineStatus,
    FrontendStatus,
    MemoryStatus,
    ModelStatus,
    PrefixStatus,
    RowCounts,
    StepStatus,
    TokenStatus,
)

LONGEST_WAIT_MS = 2_000


class FrontendView(msgspec.Struct, frozen=True, kw_only=True):
    """One frontend as both sides know it. restarts None: not supervised here. silent_s None: not connected.

    parsers: the formats in which it reads replies; None while it has no model.
    """

    port: int | None
    url: str | None
    pid: int | None
    restarts: int | None
    rows: int = 0
    silent_s: float | None = None
    parsers: ParserNames | None = None


class StatusView(msgspec.Struct, frozen=True, kw_only=True):
    """What is shown. pid None: no engine is heard, only its supervisor."""

    phase: str
    phase_detail: str = ""
    pid: int | None = None
    uptime_s: float = 0.0
    restarts: int = 0
    model: ModelStatus | None = None
    batching: Batching | None = None
    rows: RowCounts = RowCounts()
    tokens_per_s: float = 0.0
    kv_bytes: int = 0
    step: StepStatus = StepStatus()
    tokens: TokenStatus = TokenStatus()
    memory: MemoryStatus = MemoryStatus()
    counters: Counters = Counters()
    frontends: tuple[FrontendView, ...] = ()
    adapters: tuple[str, ...] = ()
    prefix: PrefixStatus = PrefixStatus()
    supervisor_pid: int | None = None


def read_status(folder: RuntimeFolder, wait_ms: int = LONGEST_WAIT_MS) -> StatusView | None:
    """The present view, waiting at most wait_ms for the engine; None when nothing runs. Raises CommandError."""
    state = read_state(folder)
    # Without its socket there is no engine to wait for.
    is_bound = Path(folder.status_address.removeprefix("ipc://")).exists()
    status = hear_engine(folder, wait_ms) if is_bound or state else None
    return None if state is None and status is None else join_views(status, state)


def join_views(status: EngineStatus | None, state: SupervisorState | None) -> StatusView:
    """One picture of both halves; either may be missing, not both."""
    supervised = state.frontends if state else ()
    if status is None:
        assert state is not None
        return StatusView(
            phase="starting",
            phase_detail="the engine is not heard; its supervisor starts it",
            restarts=state.engine_restarts,
            model=ModelStatus(id=state.model_id, path=state.model_path),
            frontends=tuple(_frontend_view(frontend, None) for frontend in supervised),
            supervisor_pid=state.pid,
        )
    connected = {frontend.pid: frontend for frontend in status.frontends}
    views = [_frontend_view(frontend, connected.pop(frontend.pid or 0, None)) for frontend in supervised]
    # A restarted frontend's predecessor keeps its lease for a while: it is the same frontend, not one more.
    urls = {frontend.url for frontend in supervised}
    strangers = [frontend for frontend in connected.values() if urls.isdisjoint(frontend.listens)]
    views += [_frontend_view(None, frontend) for frontend in strangers]
    model = status.model or (ModelStatus(id=state.model_id, path=state.model_path) if state else None)
    return StatusView(
        phase=status.phase,
        phase_detail=status.phase_detail,
        pid=status.pid,
        uptime_s=status.uptime_s,
        restarts=state.engine_restarts if state else status.restarts,
        model=model,
        batching=status.batching,
        rows=status.rows,
        tokens_per_s=status.tokens.generated_per_s,
        kv_bytes=status.memory.kv_bytes,
        step=status.step,
        tokens=status.tokens,
        memory=status.memory,
        counters=status.counters,
        frontends=tuple(views),
        adapters=status.adapters,
        prefix=status.prefix,
        supervisor_pid=state.pid if state else None,
    )


def show_status(view: StatusView, console: Console) -> None:
    """Prints the view for people."""
    facts = Table.grid(padding=(0, 2))
    for name, value in _facts(view):
        facts.add_row(name, value)
    console.print(facts, highlight=False)
    # Cut addresses would all look alike, so on a narrow terminal the other columns give way.
    address = Column("frontend", no_wrap=True)
    columns = (address, "pid", "restarts", "rows", "heard", "tool parser", "reasoning parser")
    frontends = Table(*columns, box=None, padding=(0, 2, 0, 0))
    for frontend in view.frontends:
        heard = "not connected" if frontend.silent_s is None else f"{frontend.silent_s:.1f} s ago"
        restarts = "-" if frontend.restarts is None else str(frontend.restarts)
        parsers = ("-", "-") if frontend.parsers is None else (frontend.parsers.tools, frontend.parsers.reasoning)
        names = [name or "none" for name in parsers]
        frontends.add_row(frontend.url or "?", str(frontend.pid or "-"), restarts, str(frontend.rows), heard, *names)
    console.print(frontends, highlight=False)


def _facts(view: StatusView) -> list[tuple[str, str]]:
    facts = [("phase", f"{view.phase}  {view.phase_detail}".rstrip())]
    if view.model:
        facts.append(("model", f"{view.model.id}  {view.model.dtype} {view.model.device}".rstrip()))
        facts.append(("", view.model.path))
    facts.append(("engine", f"pid {view.pid or '-'}, up {_duration(view.uptime_s)}, restarts {view.restarts}"))
    if view.batching:
        facts.append(("batching", f"{view.batching.mode}: {view.batching.reason}"))
    rows = view.rows
    facts.append(("rows", f"{rows.waiting} waiting, {rows.prefilling} prefilling, {rows.decoding} decoding"))
    facts.append(("tokens", f"{view.tokens_per_s:.1f} per second, {view.tokens.generated_total} since start"))
    facts.append(("memory", _memory(view)))
    facts.append(("prefixes", _prefixes(view.prefix)))
    facts.append(("step", f"{view.step.count} done, running for {view.step.age_ms:.0f} ms"))
    return facts


def hear_engine(folder: RuntimeFolder, wait_ms: int = LONGEST_WAIT_MS) -> EngineStatus | None:
    """The engine's own status; None when it is not heard within wait_ms. Raises CommandError for one not understood."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        with connect_status(context.socket(zmq.SUB), folder) as socket:
            return decode_status(socket.recv()) if socket.poll(wait_ms) else None
    except ProtocolError as error:
        raise CommandError(f"the engine's status cannot be read (another version?): {error.message}") from error
    finally:
        context.term()


def _frontend_view(supervised: FrontendState | None, connected: FrontendStatus | None) -> FrontendView:
    url = supervised.url if supervised else (connected.listens[0] if connected and connected.listens else None)
    return FrontendView(
        port=supervised.port if supervised else _port_of(url),
        url=url,
        pid=supervised.pid if supervised else (connected.pid if connected else None),
        restarts=supervised.restarts if supervised else None,
        rows=connected.rows if connected else 0,
        silent_s=connected.silent_s if connected else None,
        parsers=connected.parsers if connected else None,
    )


def _port_of(url: str | None) -> int | None:
    try:
        return urlsplit(url).port if url else None
    except ValueError:
        return None


def _duration(seconds: float) -> str:
    minutes, rest_s = divmod(int(seconds), 60)
    hours, rest_minutes = divmod(minutes, 60)
    return f"{hours} h {rest_minutes} min" if hours else f"{rest_minutes} min {rest_s} s" if minutes else f"{rest_s} s"


def _memory(view: StatusView) -> str:
    memory = view.memory
    budget = (
        f" (budgeted {size_text(memory.ledger_bytes)} of {size_text(memory.budget_bytes)})"
        if memory.budget_bytes
        else ""
    )
    held_up = f"; {view.rows.waiting_for_memory} wait for memory" if view.rows.waiting_for_memory else ""
    gave_way = f"; preemptions: {view.counters.preemptions}" if view.counters.preemptions else ""
    return f"{size_text(view.kv_bytes)} KV{budget}, {size_text(memory.weights_bytes)} weights{held_up}{gave_way}"


def _prefixes(prefix: PrefixStatus) -> str:
    if not prefix.limit_bytes or (prefix.reason and not prefix.entries):
        return f"none are kept: {prefix.reason}" if prefix.reason else "none are kept"
    share = prefix.hit_tokens / prefix.queried_tokens if prefix.queried_tokens else 0.0
    most = size_text(prefix.limit_bytes)
    return (
        f"{prefix.entries} kept, {size_text(prefix.size_bytes)} (at most {most} with the rows' KV); "
        f"{prefix.hits} of {prefix.hits + prefix.misses} prompts began with one, {share:.0%} of their tokens"
    )


def size_text(count_bytes: int) -> str:
    """Bytes in a person's words."""
    return f"{count_bytes / 1e9:.2f} GB" if count_bytes >= 1e9 else f"{count_bytes / 1e6:.1f} MB"
