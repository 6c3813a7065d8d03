"""/metrics over real HTTP, read by Prometheus's own parser."""

import asyncio
import re
from pathlib import Path
from typing import Any

from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families

from frontend.prometheus import _engine
from protocol.status import Counters, EngineStatus, MemoryStatus, PrefixStatus, RowCounts
from tests.fakes.deadline import until
from tests.fakes.serving import Served, serving

COMPLETIONS = "/v1/completions"
README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


async def page(served: Served, **headers: str) -> str:
    async with served.session.get(served.url + "/metrics", headers=headers) as response:
        assert response.status == 200
        return await response.text()


async def samples(served: Served) -> dict[tuple[str, ...], float]:
    """Each sample by its name and the values of its labels, in the labels' order."""
    found: dict[tuple[str, ...], float] = {}
    for family in text_string_to_metric_families(await page(served)):
        for sample in family.samples:
            found[(sample.name, *(value for _, value in sorted(sample.labels.items())))] = sample.value
    return found


async def test_what_requests_did(runtime_dir: Path) -> None:
    """Endings, tokens, latencies and routes of three requests, one cut by a stop string, one refused."""
    async with serving(runtime_dir) as served:
        bodies: list[dict[str, Any]] = [
            {"prompt": "!echo fox fox"},
            {"prompt": "!count", "max_tokens": 5},
            {"prompt": "!count", "stop": " 3"},
            {"prompt": 7},
        ]
        for body in bodies:
            await served.answer(COMPLETIONS, body)
        await served.get("/nowhere/at/all")
        await until(lambda: served.parts.client.metrics.endings["stop"] == 1, "ends are told")
        found = await samples(served)
        model = "fake-model"
        assert found["vllm:request_success_total", "length", model] == 1
        assert found["vllm:request_success_total", "stop", model] == 1
        assert found["vllm:request_success_total", "abort", model] == 0
        assert found["convoy:cancels_sent_total", "stop"] == 1
        assert found["convoy:http_requests_total", COMPLETIONS, "200"] == 3
        assert found["convoy:http_requests_total", COMPLETIONS, "400"] == 1
        assert found["convoy:http_requests_total", "unknown", "404"] == 1
        assert found["vllm:time_to_first_token_seconds_count", model] == 3
        assert found["vllm:e2e_request_latency_seconds_bucket", "+Inf", model] == 3
        assert found["vllm:inter_token_latency_seconds_count", model] >= 8
        assert found["vllm:request_generation_tokens_sum", model] >= 5
        assert not [name for name, *_ in found if name.endswith("_created")]


async def test_what_the_engine_says(runtime_dir: Path) -> None:
    """Rows in every state, from the pushed status."""
    async with serving(runtime_dir, max_rows=1, status_ms=20) as served:
        running = await served.post(COMPLETIONS, {"prompt": "!count", "stream": True})
        queued = asyncio.create_task(served.post(COMPLETIONS, {"prompt": "!count"}))
        # One row alone waits, too, until it is begun.
        await until(lambda: rows_now(served) == RowCounts(waiting=1, decoding=1), "a row runs, and one waits")
        found = await samples(served)
        assert found["vllm:num_requests_running", "fake-model"] == 1
        assert found["vllm:num_requests_waiting", "fake-model"] == 1
        assert found["convoy:engine_up",] == 1
        assert found["convoy:engine_phase", "ready"] == 1
        assert found["convoy:memory_bytes", "kv"] == 0
        assert found["convoy:frontend_rows",] == 2
        queued.cancel()
        running.close()


def test_what_memory_does() -> None:
    """How often rows gave way and their part of the budget, under vLLM's names, and who waits for room."""
    status = EngineStatus(
        epoch="e",
        protocol_version=1,
        pid=1,
        phase="ready",
        rows=RowCounts(waiting=5, waiting_for_memory=3),
        counters=Counters(preemptions=9),
        memory=MemoryStatus(ledger_bytes=70, budget_bytes=80),
    )
    found = {(each.name, *each.labels.values()): each.value for metric in _engine(status) for each in metric.samples}
    assert found["vllm:num_preemptions_total", ""] == 9
    assert found["convoy:rows_waiting_for_memory",] == 3
    assert [found["convoy:memory_bytes", kind] for kind in ("ledger", "budget")] == [70, 80]
    assert found["vllm:kv_cache_usage_perc", ""] == 70 / 80


async def test_what_of_prompts_was_there(runtime_dir: Path) -> None:
    """Tokens under vLLM's names, rows by how they found it, and what is kept."""
    async with serving(runtime_dir, status_ms=20) as served:
        served.engine.prefix = PrefixStatus(
            entries=4,
            size_bytes=40,
            limit_bytes=90,
            evictions=5,
            queried_tokens=900,
            hit_tokens=800,
            exact=1,
            snapshot=2,
            cut=3,
            live=6,
            misses=7,
            unasked=8,
        )
        await until(lambda: kept_prefixes(served) == 4, "the status has come")
        found = await samples(served)
    assert found["vllm:prefix_cache_queries_total", "fake-model"] == 900
    assert found["vllm:prefix_cache_hits_total", "fake-model"] == 800
    kinds = {"exact": 1, "snapshot": 2, "cut": 3, "live": 6, "miss": 7, "unasked": 8}
    assert {kind: found["convoy:prefix_lookups_total", kind] for kind in kinds} == kinds
    held = {name: found[f"convoy:prefix_{name}",] for name in ("entries", "bytes", "limit_bytes", "evictions_total")}
    assert held == {"entries": 4, "bytes": 40, "limit_bytes": 90, "evictions_total": 5}


def kept_prefixes(served: Served) -> int:
    """As the last status says."""
    status = served.parts.client.status
    return 0 if status is None else status.prefix.entries


def rows_now(served: Served) -> RowCounts | None:
    """As the last status says."""
    status = served.parts.client.status
    return None if status is None else status.rows


async def test_without_an_engine_its_numbers_are_absent(runtime_dir: Path) -> None:
    """A gauge that stands still would look like life; the frontend's own are told as before."""
    async with serving(runtime_dir) as served:
        served.engine.is_silent = True
        served.parts.client._heard_at_s -= 60
        found = await samples(served)
        assert found["convoy:engine_up",] == 0
        assert [name for name, *_ in found if name.startswith(("vllm:num", "convoy:step", "convoy:memory"))] == []
        assert ("convoy:frontend_rows",) in found


async def test_both_forms_are_spoken(runtime_dir: Path) -> None:
    """OpenMetrics for whoever asks for it, else the plain text form; both parse."""
    async with serving(runtime_dir) as served:
        await served.answer(COMPLETIONS, {"prompt": "!echo x"})
        for accept, kind in (("application/openmetrics-text; version=1.0.0", "openmetrics"), ("*/*", "text/plain")):
            async with served.session.get(served.url + "/metrics", headers={"accept": accept}) as response:
                assert kind in response.headers["content-type"]
                text = await response.text()
            families = openmetrics_families(text) if kind == "openmetrics" else text_string_to_metric_families(text)
            assert "vllm:e2e_request_latency_seconds" in {family.name for family in families}


async def test_every_metric_is_in_the_readme(runtime_dir: Path) -> None:
    """And every one in it is on the page."""
    async with serving(runtime_dir) as served:
        await served.answer(COMPLETIONS, {"prompt": "!count", "stop": " 3"})
        names = set[str]()
        for family in text_string_to_metric_families(await page(served)):
            names.add(f"{family.name}_total" if family.type == "counter" else family.name)
    table = README.partition("### Metrics for Prometheus")[2].partition("\n## ")[0]
    assert set(re.findall(r"`((?:vllm|convoy):[a-z0-9_]+)`", table)) == names
