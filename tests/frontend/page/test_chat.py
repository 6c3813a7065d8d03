"""A chat through a real frontend: it streams, stops, is asked again, and survives what the engine does."""

from pathlib import Path

import pytest
from playwright.async_api import Browser

from tests.fakes.deadline import until
from tests.fakes.serving import serving
from tests.frontend.page.browser import answered, holds, opened, send

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_an_answer_streams_and_the_chat_goes_on(browser: Browser, runtime_dir: Path) -> None:
    """Text is on the page before the row has ended; the second question brings the first along; emoji are whole."""
    async with serving(runtime_dir, step_ms=10.0) as served, opened(browser, served.url) as page:
        await send(page, "!echo café 🦊 and 数える, one token after the other")
        await holds(page, "document.querySelector('.message.assistant.live > .markdown')?.textContent.length > 2")
        assert await answered(page) == "café 🦊 and 数える, one token after the other"
        assert "first after" in await page.inner_text(".message.assistant .facts")
        await send(page, "!echo again")
        assert await answered(page, 2) == "again"
        assert len(served.engine.submits()) == 2
        assert served.engine.cancels() == []


@pytest.mark.parametrize("way", ["button", "escape"])
async def test_stop_takes_the_row_out_of_the_engine(browser: Browser, runtime_dir: Path, way: str) -> None:
    """What was written stays and says that it was stopped; the engine hears one Cancel, and the next answer comes."""
    async with serving(runtime_dir) as served, opened(browser, served.url) as page:
        await send(page, "!count")
        await holds(page, "document.querySelector('.message.assistant > .markdown')?.textContent.length > 20")
        assert len(served.engine.rows.live()) == 1
        if way == "button":
            await page.click("#stop")
        else:
            await page.keyboard.press("Escape")
        await until(lambda: not served.engine.rows.live(), "the row is gone")
        assert [cancel.reason for cancel in served.engine.cancels()] == ["gone"]
        assert (await answered(page)).startswith("0 1 2")
        assert (await page.inner_text(".message.assistant .facts")).startswith("Stopped.")
        assert await page.evaluate("document.activeElement.id") == "prompt"
        await send(page, "!echo next")
        assert await answered(page, 2) == "next"


async def test_stop_before_the_first_token(browser: Browser, runtime_dir: Path) -> None:
    """A row that has said nothing yet is taken out too."""
    async with serving(runtime_dir) as served, opened(browser, served.url) as page:
        await send(page, "!silent")
        await until(lambda: len(served.engine.rows.live()) == 1, "the row is in")
        await page.keyboard.press("Escape")
        await until(lambda: not served.engine.rows.live(), "the row is gone")
        assert await answered(page) == ""


async def test_leaving_the_chat_stops_its_answer(browser: Browser, runtime_dir: Path) -> None:
    """A new chat, or a closed tab: nothing goes on for nobody, and what was there is kept."""
    async with (
        serving(runtime_dir) as served,
        opened(browser, served.url, viewport={"width": 1280, "height": 800}) as page,
    ):
        await send(page, "!count")
        await holds(page, "document.querySelector('.message.assistant > .markdown')?.textContent.length > 20")
        await page.click("#new-chat")
        await until(lambda: not served.engine.rows.live(), "the row is gone")
        assert await page.locator(".message").count() == 0
        await send(page, "!count")
        await until(lambda: len(served.engine.rows.live()) == 1, "the second row is in")
        await holds(page, "document.querySelector('.message.assistant > .markdown')?.textContent.length > 20")
        other = await page.context.new_page()
        await page.close()
        await until(lambda: not served.engine.rows.live(), "the second row is gone")
        await other.goto(served.url)
        assert await other.locator("#chat-list li").count() == 2
        await other.locator("#chat-list .open").first.click()
        assert (await answered(other)).startswith("0 1 2")


async def test_regenerate_asks_the_same_again(browser: Browser, runtime_dir: Path) -> None:
    """The last answer makes way for another; the conversation before it is what is sent."""
    async with serving(runtime_dir) as served, opened(browser, served.url) as page:
        await send(page, "!echo first")
        await answered(page)
        await send(page, "words")
        await answered(page, 2)
        await page.click(".message:last-child button:has-text('Regenerate')")
        await answered(page, 2)
        before, again = served.engine.submits()[1:]
        assert before.prompt == again.prompt
        assert await page.locator("button:has-text('Regenerate'):visible").count() == 1


async def test_a_second_message_waits_for_the_first_answer(browser: Browser, runtime_dir: Path) -> None:
    """Enter while an answer grows sends nothing and loses nothing."""
    async with serving(runtime_dir) as served, opened(browser, served.url) as page:
        await send(page, "!count")
        await page.wait_for_selector(".message.assistant.live")
        await send(page, "impatient")
        assert await page.input_value("#prompt") == "impatient"
        assert "on its way" in await page.inner_text("#toast")
        assert len(served.engine.submits()) == 1


async def test_what_the_engine_says_in_mid_stream(browser: Browser, runtime_dir: Path) -> None:
    """A row that fails leaves its text, the engine's words, and a way to try again."""
    async with serving(runtime_dir) as served, opened(browser, served.url) as page:
        await send(page, "!fail 3")
        assert await answered(page) == "fox fox fox"
        trouble = await page.inner_text(".trouble")
        assert "The answer broke off" in trouble or "Something went wrong" in trouble
        assert "Scripted failure after 3 tokens." in trouble
        await page.click("button:has-text('Try again')")
        await until(lambda: len(served.engine.submits()) == 2, "it is asked again")
        await answered(page)


async def test_tabs_stream_side_by_side(browser: Browser, runtime_dir: Path) -> None:
    """Two tabs of one browser have two rows in one batch."""
    async with serving(runtime_dir) as served, opened(browser, served.url) as page:
        other = await page.context.new_page()
        await other.goto(served.url)
        for tab in (page, other):
            await send(tab, "!count")
        await until(lambda: len(served.engine.rows.running) == 2, "both rows decode")
        await other.keyboard.press("Escape")
        await until(lambda: len(served.engine.rows.live()) == 1, "one is gone")
        assert await page.locator(".message.assistant.live").count() == 1
