"""What is shown of an answer: reasoning, tool calls, facts; and where the page stands while it grows."""

import asyncio
import json
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page

from tests.fakes.deadline import until
from tests.fakes.serving import serving
from tests.frontend.page.browser import answered, holds, opened, send
from tests.frontend.page.scripted_server import Answer, ScriptedServer, delta, finish, said

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_reasoning_is_apart_and_folds(page: Page, server: ScriptedServer) -> None:
    """It is told while it comes, closed until somebody opens it, and no part of the answer's text."""
    more, rest = asyncio.Event(), asyncio.Event()
    pieces = (
        delta(reasoning_content="First **weigh**"),
        more,
        delta(reasoning_content=" it."),
        rest,
        delta(content="42"),
    )
    server.answers.append(Answer((*pieces, finish("stop"))))
    await send(page, "why?")
    summary = page.locator(".reasoning summary")
    await summary.wait_for()
    assert (await summary.inner_text()).startswith("Thinking")
    assert not await page.is_visible(".reasoning .markdown")
    await summary.click()
    thoughts = "document.querySelector('.reasoning .markdown')"
    await holds(page, f"{thoughts}.innerHTML === '<p>First <strong>weigh</strong></p>'")
    more.set()
    await holds(page, f"{thoughts}.textContent === 'First weigh it.'")
    rest.set()
    assert await answered(page) == "42"
    assert (await summary.inner_text()).startswith("Thought for")
    await summary.press("Enter")
    await page.wait_for_selector(".reasoning .markdown", state="hidden")


async def test_tool_calls_are_shown_and_answered(page: Page, server: ScriptedServer) -> None:
    """Name and arguments as they come, then in order; a result given by hand goes back under the call's id."""
    rest = asyncio.Event()
    begun = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": ""}}
    server.answers.append(
        Answer(
            (
                delta(role="assistant", content=None, tool_calls=[begun]),
                delta(tool_calls=[{"index": 0, "function": {"arguments": '{"city": '}}]),
                rest,
                delta(tool_calls=[{"index": 0, "function": {"arguments": '"<b>Oslo</b>"}'}}]),
                finish("tool_calls"),
            )
        )
    )
    await send(page, "weather?")
    await holds(page, "document.querySelector('.call pre')?.textContent === '{\"city\": '")
    assert await page.inner_text(".call .label") == "Calls get_weather"
    rest.set()
    await answered(page)
    assert json.loads(await page.inner_text(".call pre")) == {"city": "<b>Oslo</b>"}
    server.answers.append(said("It rains."))
    await page.fill("[aria-label='Result of get_weather']", "rain")
    await page.click("button:has-text('Send result')")
    assert await answered(page, 2) == "It rains."
    assert server.heard[1]["messages"][-1] == {"role": "tool", "tool_call_id": "call_1", "content": "rain"}
    assert server.heard[1]["messages"][-2]["tool_calls"][0]["function"]["name"] == "get_weather"
    assert await page.locator(".results").count() == 0


async def test_a_call_that_the_server_reads(browser: Browser, runtime_dir: Path) -> None:
    """Tools among the further fields, a reply that calls one, a result by hand: through a real frontend."""
    tools = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
    async with serving(runtime_dir, context_length=4_096) as served, opened(browser, served.url) as page:
        await page.click("#show-settings")
        await page.fill("#extra", json.dumps({"tools": tools}))
        await send(page, '!echo Well: <tool_call> {"name": "weather", "arguments": {"city": "Oslo"}} </tool_call>')
        assert (await answered(page)).strip() == "Well:"
        assert await page.inner_text(".call .label") == "Calls weather"
        assert json.loads(await page.inner_text(".call pre")) == {"city": "Oslo"}
        await page.fill("[aria-label='Result of weather']", "rain")
        await page.click("button:has-text('Send result')")
        await until(lambda: len(served.engine.submits()) == 2, "the result goes back")
        await answered(page, 2)


async def test_hostile_answers_are_text(page: Page, server: ScriptedServer) -> None:
    """Content, reasoning, calls, errors, the model's name and a title of markup: nothing of it becomes any."""
    markup = "<img src=x onerror='document.title=\"hit\"'><script>document.title='hit'</script>"
    call = {"index": 0, "id": markup, "type": "function", "function": {"name": markup, "arguments": markup}}
    server.models = (markup,)
    server.answers.append(
        Answer(
            (delta(reasoning_content=markup), delta(content=markup), delta(tool_calls=[call]), finish("tool_calls")),
            headers={"x-convoy-ignored": "<b>field</b>"},
        )
    )
    await page.reload()
    await send(page, markup)
    await answered(page)
    await page.click(".reasoning summary")
    assert await page.locator("img, #messages script, #messages b").count() == 0
    assert await page.inner_text(".bubble") == markup
    assert await page.inner_text(".call pre") == markup
    assert await page.title() == f"{markup[:60]}… · Convoy"


async def test_facts_and_ignored_fields_are_told(page: Page, server: ScriptedServer) -> None:
    """Tokens, what was cut off, and which fields the server passed over."""
    pieces = (delta(content="a b"), finish("length", prompt_tokens=5, completion_tokens=2))
    server.answers.append(Answer(pieces, headers={"x-convoy-ignored": "top_q"}))
    await send(page, "hello")
    await answered(page)
    facts = await page.inner_text(".facts")
    assert facts.startswith("Cut off at the token limit. 2 tokens")
    assert "Ignored by the server: top_q" in await page.inner_text(".message.assistant")


async def test_it_stays_at_the_end_unless_somebody_reads_above(page: Page, server: ScriptedServer) -> None:
    """A growing answer scrolls along; who scrolled up is left there, and has a way back."""
    first, second = asyncio.Event(), asyncio.Event()
    lines = "".join(f"line {number}\n\n" for number in range(60))
    pieces = (delta(content=lines), first, delta(content=lines), second, delta(content=lines))
    server.answers.append(Answer((*pieces, finish("stop"))))
    gap = """() => {
        const { scrollHeight, scrollTop, clientHeight } = byId('scroller');
        return scrollHeight - scrollTop - clientHeight;
    }"""
    at_end = f"({gap})() < 4 && document.querySelectorAll('.markdown p').length"
    await send(page, "count")
    await holds(page, f"({at_end}) >= 60")
    first.set()
    await holds(page, f"({at_end}) >= 120")
    await page.evaluate("byId('scroller').scrollTop = 300")
    await page.wait_for_selector("#to-end:visible")
    second.set()
    await answered(page)
    assert await page.evaluate("byId('scroller').scrollTop") == 300
    await page.click("#to-end")
    assert await page.evaluate(gap) < 4
    assert not await page.is_visible("#to-end")


async def test_copy_gives_the_source(page: Page, server: ScriptedServer) -> None:
    """An answer is copied as the Markdown it is, code as it stands, and the button says so."""
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    server.answers.append(said("**bold**\n\n```py\nx = 1\n```"))
    await send(page, "code")
    await answered(page)
    for selector, expected in (
        (".foot button:has-text('Copy') >> nth=-1", "**bold**\n\n```py\nx = 1\n```"),
        (".code-head button", "x = 1"),
    ):
        await page.click(selector)
        await holds(page, "expected => navigator.clipboard.readText().then((text) => text === expected)", expected)
    assert await page.inner_text(".code-head button") == "Copied"


async def test_copy_works_without_the_clipboard_interface(page: Page, server: ScriptedServer) -> None:
    """Plain HTTP from another machine has none: the old way copies, and the focus stays."""
    server.answers.append(said("plain"))
    await send(page, "text")
    await answered(page)
    await page.evaluate(
        """() => {
            Object.defineProperty(navigator, 'clipboard', { value: undefined });
            document.addEventListener('copy', () => { window.copied = document.activeElement.value; });
        }"""
    )
    button = page.locator(".message.assistant .foot button").first
    await button.click()
    await holds(page, "window.copied === 'plain'")
    assert await button.inner_text() == "Copied"
