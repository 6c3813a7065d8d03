"""What the page says of a server in trouble, and of one that is back."""

import asyncio
from pathlib import Path
from typing import get_args

import pytest
from playwright.async_api import Browser, Page

from protocol.status import Phase
from tests.fakes.fake_engine import FakeEngine
from tests.fakes.serving import serving
from tests.frontend.page.browser import answered, holds, opened, send
from tests.frontend.page.scripted_server import Answer, ScriptedServer, delta, said, stats

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_full_queue_in_words(browser: Browser, runtime_dir: Path) -> None:
    """429: the message stays, the page says why, and trying again works."""
    async with serving(runtime_dir, max_waiting=0) as served, opened(browser, served.url) as page:
        await send(page, "!echo let me in")
        await answered(page)
        assert "The server is full" in await page.inner_text(".trouble")
        assert await page.inner_text(".bubble") == "!echo let me in"
        served.engine.settings = type(served.engine.settings)(runtime_dir=str(runtime_dir))
        await page.click("button:has-text('Try again')")
        assert await answered(page) == "let me in"
        assert await page.locator(".trouble:visible").count() == 0


async def test_the_engine_goes_and_comes_back(browser: Browser, runtime_dir: Path) -> None:
    """A crash is told within seconds, a request meanwhile gets 503 in words, and a word says when all is well again."""
    async with serving(runtime_dir, {"engine_wait_s": 0.1}) as served, opened(browser, served.url) as page:
        await page.wait_for_selector("#show-engine[data-state=ready]")
        served.engine.stop(crash=True)
        await page.wait_for_selector("#banner.down")
        assert "engine" in await page.inner_text("#banner")
        await send(page, "!echo anybody?")
        await answered(page)
        assert "The engine is not ready" in await page.inner_text(".trouble")
        other = FakeEngine(served.engine.settings).start()
        try:
            await page.wait_for_selector("#banner.back")
            assert await page.inner_text("#banner") == "The engine is back."
            await page.click("button:has-text('Try again')")
            assert await answered(page) == "anybody?"
        finally:
            other.stop()


async def test_the_model_is_loading(browser: Browser, runtime_dir: Path) -> None:
    """The phase is told from the first look on, and the model's name comes with the end of it."""
    async with serving(runtime_dir, wait=False, load_s=1.5) as served, opened(browser, served.url) as page:
        await page.wait_for_selector("#banner.waiting")
        assert await page.inner_text("#banner") == "The model is being loaded."
        assert await page.inner_text("#state") == "loading the model"
        await page.wait_for_selector("#model:enabled")
        assert await page.input_value("#model") == "fake-model"
        assert await page.inner_text("#empty-title") == "Ask fake-model"
        await holds(page, "document.querySelector('#banner').textContent === 'The engine is back.'")


async def test_the_server_goes_and_comes_back(page: Page, server: ScriptedServer) -> None:
    """A frontend that does not answer: the page says so, keeps what was written, and goes on."""
    await page.wait_for_selector("#show-engine[data-state=ready]")
    await page.context.set_offline(True)
    await page.wait_for_selector("#banner.down")
    assert "The server does not answer." in await page.inner_text("#banner")
    await send(page, "hello?")
    await answered(page)
    assert "No answer from the server" in await page.inner_text(".trouble")
    await page.context.set_offline(False)
    await page.wait_for_selector("#banner.back")
    server.answers.append(said("hello!"))
    await page.click("button:has-text('Try again')")
    assert await answered(page) == "hello!"


@pytest.mark.parametrize("is_cut", [True, False])
async def test_a_stream_that_ends_too_early(page: Page, server: ScriptedServer, is_cut: bool) -> None:
    """A broken connection, or one closed without an end: the text stays and is not taken for whole."""
    rest = asyncio.Event()
    server.answers.append(Answer((delta(content="half an ans"), rest), is_cut=is_cut))
    await send(page, "speak")
    await page.wait_for_selector(".markdown >> text=half")
    rest.set()
    assert await answered(page) == "half an ans"
    assert "The answer broke off" in await page.inner_text(".trouble")


async def test_every_phase_has_words(functions: Page) -> None:
    """With the detail the server gives; a phase of tomorrow is one that does not serve."""
    words = {
        "silent": "The engine is silent. Because.",
        "draining": "The engine is stopping: it finishes what it has begun. Because.",
        "stopping": "The engine is stopping: it finishes what it has begun. Because.",
        "failed": "The engine has failed. Because.",
        "incompatible": "The engine and this server do not fit together. Because.",
        "starting": "The model is being loaded. Because.",
        "loading": "The model is being loaded. Because.",
        "warming": "The engine is warming up. Because.",
        "connecting": "The engine is there; connecting to it. Because.",
        "unreachable": "The engine is not running. Because.",
        "of tomorrow": "The engine is not running. Because.",
    }
    assert {*words} >= {*get_args(Phase)} - {"ready"}
    told = "phase => bannerText({ phase, detail: 'because' }).text"
    assert {phase: await functions.evaluate(told, phase) for phase in words} == words


async def test_a_phase_is_told_above_the_chat(page: Page, server: ScriptedServer) -> None:
    """And in the bar, as soon as the page has looked again."""
    server.stats = stats("failed", "no such model")
    await page.wait_for_selector("#banner.down")
    assert await page.inner_text("#banner") == "The engine has failed. No such model."
    assert await page.inner_text("#state") == "failed"


async def test_the_model_list_is_a_choice_that_is_kept(page: Page, server: ScriptedServer) -> None:
    """Every served name can be chosen, is sent, and is chosen again after a reload."""
    server.models = ("one", "two")
    await page.reload()
    await page.wait_for_selector("#model:enabled")
    await page.select_option("#model", "two")
    await page.reload()
    await page.wait_for_selector("#model:enabled")
    server.answers.append(said("x"))
    await send(page, "hello")
    await answered(page)
    assert server.heard[0]["model"] == "two"


async def test_the_address_for_other_programs(page: Page, server: ScriptedServer) -> None:
    """An empty chat tells where clients find the API."""
    assert await page.inner_text("#address") == f"{server.url}/v1"
