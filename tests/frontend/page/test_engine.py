"""The live view of the engine."""

from pathlib import Path

import pytest
from playwright.async_api import Browser, Page

from tests.fakes.serving import serving
from tests.frontend.page.browser import holds, opened, send
from tests.frontend.page.scripted_server import ScriptedServer, stats

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def figures(page: Page) -> dict[str, str]:
    """The view's figures by name."""
    return await page.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll('.figure')]
            .map((found) => [found.classList[1], found.textContent]))"""
    )


async def counters(page: Page) -> dict[str, str]:
    """The list at its foot."""
    return await page.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll('#gauges dt')]
            .map((found) => [found.textContent, found.nextElementSibling.textContent]))"""
    )


async def test_every_figure_is_the_engines(page: Page, server: ScriptedServer) -> None:
    """Rows by state, speed, gap and the age of a turn, memory against its ceiling, queue, counters, restarts."""
    server.stats = stats(
        rows={"waiting": 3, "prefilling": 1, "decoding": 5, "waiting_for_memory": 2},
        step={"count": 9, "age_ms": 12.4, "last_ms": 24.6},
        tokens={"prompt_total": 120_345, "generated_total": 34_022, "generated_per_s": 187.3},
        memory={
            "active_bytes": 9_200_000_000,
            "cache_bytes": 1,
            "peak_bytes": 11_000_000_000,
            "weights_bytes": 6_000_000_000,
            "kv_bytes": 2_000_000_000,
            "budget_bytes": 10_000_000_000,
        },
        prefix={"limit_bytes": 9_000_000_000, "hits": 0, "misses": 0, "entries": 0, "size_bytes": 0},
    )
    await holds(page, "document.querySelector('.figure.rows').textContent === '6 of 8'")
    found = await figures(page)
    assert found == {
        "model": "scripted",
        "about": "bfloat16 · cpu · 8,192 tokens of context",
        "rows": "6 of 8",
        "queue": "5 decoding, 1 reading their prompt, 3 waiting for memory (at most 64)",
        "speed": "187",
        "gap": "idle",
        "age": "The running turn is 12 ms old",
        "memory": "9.2 GB of 16.0 GB",
        "parts": "Weights 6.0 GB, KV caches 2.0 GB, peak 11.0 GB",
    }
    kinds = await page.evaluate("[...document.querySelectorAll('.slots span')].map((slot) => slot.className)")
    assert kinds == ["decoding"] * 5 + ["prefilling"] + ["free"] * 2
    widths = await page.evaluate("[...document.querySelectorAll('.meter span')].map((part) => part.style.width)")
    assert widths == ["37.5%", "12.5%", "7.5%"]
    listed = await counters(page)
    assert listed["Phase"] == "ready"
    assert listed["Up for"] == "1 h 1 min"
    assert (listed["Restarts"], listed["Finished"], listed["Cancelled"], listed["Failed"]) == ("1", "7", "2", "1")


async def test_the_gap_is_that_since_the_last_look(page: Page, server: ScriptedServer) -> None:
    """Ten gaps of 40 ms count for nothing more once three of 130 ms have come; a new engine begins anew."""
    for finished, counts, sum_ms, told in (
        (11, [4, 6, 0], 400.0, "idle"),
        (12, [4, 6, 3], 790.0, "130 ms"),
        (13, [1, 0, 0], 5.0, "idle"),
    ):
        gaps = {"bounds": [10.0, 50.0], "counts": counts, "sum": sum_ms}
        server.stats = stats(
            step={"count": 9, "age_ms": 0.0, "last_ms": 25.0, "gaps_ms": gaps},
            counters={"finished": finished, "cancelled": 2, "failed": 1, "rejected": 0},
        )
        # Together: at the next look, a second later, the same figures would show no gap.
        is_seen = f"document.querySelector('#gauges dl').textContent.includes('Finished{finished}')"
        await holds(page, f"{is_seen} && document.querySelector('.figure.gap').textContent === '{told}'")
    label = await page.get_attribute(".spark >> nth=1", "aria-label")
    assert label is not None
    assert label.endswith("at most 130")


async def test_what_the_engine_does_not_tell_is_not_shown(page: Page, server: ScriptedServer) -> None:
    """No ceiling, no prefix cache: no invented figure; told, they are there."""
    await holds(page, "document.querySelector('.figure.rows').textContent === '0 of 8'")
    assert (await figures(page))["memory"] == "0"
    assert not await page.is_visible(".meter")
    prefix = {"hits": 3, "misses": 1, "queried_tokens": 1_000, "hit_tokens": 840, "entries": 2, "size_bytes": 1_500_000}
    server.stats = stats(prefix=prefix | {"limit_bytes": 9_000_000})
    await holds(page, "document.querySelector('#gauges dl').textContent.includes('Prefix hits')")
    listed = await counters(page)
    assert [listed[name] for name in ("Prefix hits", "Prompt reused", "Prefixes kept")] == [
        "3 of 4",
        "84 %",
        "2, 1.5 MB",
    ]


async def test_sparklines_keep_two_minutes(functions: Page) -> None:
    """The newest value is at the right edge, the oldest falls out, and a screen reader hears the figures."""
    points, label = await functions.evaluate(
        """() => {
            const spark = new Sparkline('Tokens a second', 'a second');
            for (let value = 0; value <= 200; value += 1) spark.push(value);
            return [spark.line.getAttribute('points').split(' '), spark.element.getAttribute('aria-label')];
        }"""
    )
    assert (len(points), points[0], points[-1]) == (120, "0,18.7", "119,2.0")
    assert label == "Tokens a second over the last two minutes: now 200 a second, at most 200"


async def test_a_stuck_step_and_a_silent_engine_stand_out(page: Page, server: ScriptedServer) -> None:
    """A turn older than it should be is said; figures of an engine that is not heard are greyed."""
    server.stats = stats(step={"count": 9, "age_ms": 8_400.0, "last_ms": 20.0})
    await page.wait_for_selector(".figure.age.wrong")
    assert (await figures(page))["age"] == "The running turn is 8.4 s old, longer than it should be"
    server.stats = {**stats("silent", "the engine was last heard 9 s ago"), "engine_silent_s": 9.0}
    await page.wait_for_selector("#gauges.stale")
    assert await page.inner_text("#gauges .wrong:not(.figure)") == "The engine was last heard 9 s ago."


async def test_no_engine_at_all(page: Page, server: ScriptedServer) -> None:
    """A frontend that never heard one says so, and the view stays whole."""
    await page.wait_for_selector("#show-engine[data-state=ready]")
    server.stats = {**stats("unreachable", "no engine"), "engine": None, "engine_silent_s": None, "limits": None}
    await page.wait_for_selector("#gauges.stale")
    assert await page.inner_text("#state") == "not running"


async def test_a_hidden_page_asks_nothing(page: Page, server: ScriptedServer) -> None:
    """Behind another tab the page leaves the server alone, and looks again as soon as it is seen."""
    await page.wait_for_selector("#show-engine[data-state=ready]")
    hide = """isHidden => {
        Object.defineProperty(document, 'hidden', { value: isHidden, configurable: true });
        document.dispatchEvent(new Event('visibilitychange'));
    }"""
    await page.evaluate(hide, True)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    await page.wait_for_timeout(1500)
    assert asked == []
    async with page.expect_request("**/stats"):
        await page.evaluate(hide, False)


async def test_it_is_alive_over_a_real_frontend(browser: Browser, runtime_dir: Path) -> None:
    """A running row shows up with the limits of the engine."""
    async with (
        serving(runtime_dir, max_rows=4) as served,
        opened(browser, served.url, viewport={"width": 1280, "height": 800}) as page,
    ):
        await send(page, "!count")
        await holds(page, "document.querySelector('.figure.rows').textContent === '1 of 4'")
        assert (await figures(page))["queue"] == "1 decoding, 0 reading their prompt, 0 waiting (at most 64)"
        await page.keyboard.press("Escape")
        await holds(page, "document.querySelector('.figure.rows').textContent === '0 of 4'")
