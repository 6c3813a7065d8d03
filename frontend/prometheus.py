"""/metrics for Prometheus: this frontend's counts, and the engine's last status. Never asks the engine.

Owns the names: vLLM's, `vllm:`, where the meaning is the same, and `convoy:` for the rest.
"""

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Final

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from frontend.engine_client import SILENT_S
from frontend.parts import PARTS, FrontendParts
from protocol.status import Counters, EngineStatus, Histogram, MemoryStatus

_MODEL: Final = ("model_name",)
_LOOKUPS: Final = ("exact", "snapshot", "cut", "live", "unasked")
_OUTCOMES: Final = ("finished", "cancelled", "failed", "rejected")
_MEMORY: Final = tuple(name for name in MemoryStatus.__struct_fields__ if name.endswith("_bytes"))
_MS: Final = 1e-3


async def metrics(request: web.Request) -> web.Response:
    """The page, in the form that the scraper asks for."""
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    # Not the library's global registry: two applications in one process would meet there.
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Page(request.app[PARTS]))
    return web.Response(body=encode(registry), headers={"content-type": content_type})


class _Page(Collector):
    """All metrics of one moment."""

    def __init__(self, parts: FrontendParts) -> None:
        self._parts = parts

    def describe(self) -> Iterable[Metric]:
        """Nothing: names are not checked against other collectors, of which there are none."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Engine first. What an engine that is gone has said is not told: it is not so any more."""
        client = self._parts.client
        status, silent_s = client.status, client.silent_s
        is_heard = status is not None and silent_s is not None and silent_s <= SILENT_S
        yield _gauge("convoy:engine_up", "1 while the engine's heartbeat is heard.", is_heard)
        if status is not None and is_heard:
            yield from _engine(status)
        model = "" if client.facts is None else client.facts.id
        yield from _requests(self._parts, (model,))
        yield from _frontend(self._parts)


def _engine(status: EngineStatus) -> Iterator[Metric]:
    model = (status.model.id if status.model else "",)
    rows, step, tokens = status.rows, status.step, status.tokens
    running = rows.prefilling + rows.decoding
    yield _gauge("vllm:num_requests_running", "Rows that prefill or decode.", running, model)
    yield _gauge("vllm:num_requests_waiting", "Rows of which nothing is computed yet.", rows.waiting, model)
    yield _counter("vllm:num_preemptions", "Rows that gave way to memory.", status.counters.preemptions, model)
    yield _gauge("convoy:rows_waiting_for_memory", "Of the waiting rows.", rows.waiting_for_memory)
    budget_bytes = status.memory.budget_bytes
    # While the engine loads there is no budget, and no row to take of it.
    used = status.memory.ledger_bytes / budget_bytes if budget_bytes else 0.0
    yield _gauge("vllm:kv_cache_usage_perc", "What rows take of the budget, 1 is all.", used, model)
    yield _counter("vllm:prompt_tokens", "Prompt tokens computed.", tokens.prompt_total, model)
    yield _counter("vllm:generation_tokens", "Tokens generated.", tokens.generated_total, model)
    phase = GaugeMetricFamily("convoy:engine_phase", "1 for the phase that the engine is in.", labels=("phase",))
    phase.add_metric((status.phase,), 1)
    yield phase
    yield _gauge("convoy:engine_uptime_seconds", "Since the engine's start.", status.uptime_s)
    yield _counter("convoy:engine_restarts", "By the supervisor, since its start.", status.restarts)
    yield _gauge("convoy:rows_prefilling", "Rows that prefill, or wait to join.", rows.prefilling)
    yield _gauge("convoy:rows_decoding", "Rows in the batch.", rows.decoding)
    yield _gauge("convoy:queue_age_seconds", "Wait of the first waiting row.", rows.oldest_waiting_ms * _MS)
    yield _counter("convoy:steps", "Decode steps.", step.count)
    yield _gauge("convoy:step_age_seconds", "Age of the running turn, 0 when idle.", step.age_ms * _MS)
    yield _histogram("convoy:step_seconds", "Time of a decode step.", step.times_ms, scale=_MS)
    yield _histogram(
        "convoy:decode_gap_seconds",
        "Time between two tokens of running rows, prefill included.",
        step.gaps_ms,
        scale=_MS,
    )
    yield _labelled("convoy:submits", "What became of rows.", "outcome", _picked(status.counters, _OUTCOMES))
    yield _counter("convoy:malformed_frames", "Frames not understood.", status.counters.malformed_frames)
    memory = GaugeMetricFamily("convoy:memory_bytes", "As the device allocator counts.", labels=("kind",))
    for name, count in _picked(status.memory, _MEMORY).items():
        memory.add_metric((name.removesuffix("_bytes"),), count)
    yield memory
    yield from _prefixes(status, model)
    yield _gauge("convoy:frontends", "Frontends that hold a lease.", len(status.frontends))


def _prefixes(status: EngineStatus, model: tuple[str]) -> Iterator[Metric]:
    """vLLM counts tokens, too."""
    prefix = status.prefix
    yield _counter("vllm:prefix_cache_queries", "Tokens of prompts that looked.", prefix.queried_tokens, model)
    yield _counter("vllm:prefix_cache_hits", "Of them, those not computed again.", prefix.hit_tokens, model)
    found = {name: getattr(prefix, name) for name in _LOOKUPS}
    found["miss"] = prefix.misses
    yield _labelled("convoy:prefix_lookups", "Rows by what of their prompt was there.", "found", found)
    yield _gauge("convoy:prefix_entries", "Prefixes kept.", prefix.entries)
    yield _gauge("convoy:prefix_bytes", "Of their caches.", prefix.size_bytes)
    yield _gauge("convoy:prefix_limit_bytes", "Of live rows' caches and prefixes together.", prefix.limit_bytes)
    yield _counter("convoy:prefix_evictions", "Prefixes given up for room.", prefix.evictions)


def _requests(parts: FrontendParts, model: tuple[str]) -> Iterator[Metric]:
    """Under vLLM's names; of this frontend's requests alone."""
    counted = parts.client.metrics
    endings = CounterMetricFamily(
        "vllm:request_success", "Choices that have ended, by how.", labels=(*_MODEL, "finished_reason")
    )
    for reason, count in counted.endings.items():
        endings.add_metric((*model, reason), count)
    yield endings
    histograms = (
        ("time_to_first_token_seconds", "From the request to its first token.", counted.first_token_s),
        ("inter_token_latency_seconds", "From one token of a row to its next.", counted.between_tokens_s),
        ("request_time_per_output_token_seconds", "Mean over a row's tokens but the first.", counted.per_token_s),
        ("e2e_request_latency_seconds", "From the request to the end of its reply.", counted.request_s),
        ("request_queue_time_seconds", "A row's wait for its first chunk.", counted.queue_s),
        ("request_prefill_time_seconds", "From there to its first token.", counted.prefill_s),
        ("request_decode_time_seconds", "From there to its end.", counted.decode_s),
        ("request_prompt_tokens", "Tokens of a row's prompt.", counted.prompt_tokens),
        ("request_generation_tokens", "Tokens that a row generated.", counted.generated_tokens),
    )
    for name, about, tally in histograms:
        yield _histogram(f"vllm:{name}", about, tally.snapshot(), model)


def _frontend(parts: FrontendParts) -> Iterator[Metric]:
    http = CounterMetricFamily("convoy:http_requests", "Requests answered.", labels=("route", "status"))
    for key, count in parts.client.metrics.http.items():
        http.add_metric((key.route, str(key.status)), count)
    yield http
    cancels = {str(reason): count for reason, count in parts.client.cancels_sent().items()}
    yield _labelled("convoy:cancels_sent", "Rows ended from here.", "reason", cancels)
    yield _gauge("convoy:frontend_rows", "Live rows of this frontend.", parts.client.row_count)


def _picked(values: Counters | MemoryStatus, names: tuple[str, ...]) -> dict[str, int]:
    return {name: getattr(values, name) for name in names}


def _gauge(name: str, about: str, value: float, model: tuple[str, ...] = ()) -> Metric:
    family = GaugeMetricFamily(name, about, labels=_MODEL if model else ())
    family.add_metric(model, value)
    return family


def _counter(name: str, about: str, value: float, model: tuple[str, ...] = ()) -> Metric:
    family = CounterMetricFamily(name, about, labels=_MODEL if model else ())
    family.add_metric(model, value)
    return family


def _labelled(name: str, about: str, label: str, values: dict[str, int]) -> Metric:
    family = CounterMetricFamily(name, about, labels=(label,))
    for value, count in values.items():
        family.add_metric((value,), count)
    return family


def _histogram(name: str, about: str, found: Histogram, model: tuple[str, ...] = (), scale: float = 1.0) -> Metric:
    """scale: from the histogram's unit to the name's."""
    family = HistogramMetricFamily(name, about, labels=_MODEL if model else ())
    bounds = [repr(round(bound * scale, 9)) for bound in found.bounds]
    buckets = list(zip([*bounds, "+Inf"], map(float, accumulate(found.counts)), strict=False))
    if buckets:
        family.add_metric(model, buckets, found.sum * scale)
    return family
