"""The page by keyboard, for screen readers, on a phone, by day and by night."""

import asyncio

import pytest
from playwright.async_api import Browser, Page

from tests.frontend.page.browser import answered, holds, opened, send
from tests.frontend.page.scripted_server import Answer, ScriptedServer, delta, said

pytestmark = pytest.mark.asyncio(loop_scope="session")

PHONE = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}
FOCUSED = "document.activeElement.id || document.activeElement.className"


async def test_writing_and_sending_by_keyboard(page: Page, server: ScriptedServer) -> None:
    """The field has the focus from the start; Shift+Enter begins a line, Enter and Ctrl+Enter send, spaces do not."""
    assert await page.evaluate(FOCUSED) == "prompt"
    server.answers.extend([said("a"), said("b")])
    await page.keyboard.type("  ")
    await page.keyboard.press("Enter")
    assert server.heard == []
    await page.fill("#prompt", "one")
    await page.keyboard.press("Shift+Enter")
    await page.keyboard.type("two")
    await page.keyboard.press("Enter")
    await answered(page)
    await page.keyboard.type("three")
    await page.keyboard.press("Control+Enter")
    await answered(page, 2)
    assert [body["messages"][-1]["content"] for body in server.heard] == ["one\ntwo", "three"]
    assert await page.evaluate(FOCUSED) == "prompt"


async def test_enter_of_an_input_method_sends_nothing(page: Page, server: ScriptedServer) -> None:
    """While a word is being composed, Enter chooses it."""
    await page.fill("#prompt", "数")
    await page.evaluate(
        "byId('prompt').dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', isComposing: true, bubbles: true }))"
    )
    assert await page.input_value("#prompt") == "数"
    assert server.heard == []


async def test_tab_goes_through_everything_in_order(page: Page) -> None:
    """From the skip link along the bar, the chats, the message field and the engine; each stop has a name."""
    await page.wait_for_selector("#model:enabled")
    await page.focus(".skip")
    stops: list[str] = []
    for _ in range(11):
        stops.append(await page.evaluate(FOCUSED))
        await page.keyboard.press("Tab")
    assert stops == [
        "skip",
        "show-chats",
        "model",
        "show-engine",
        "show-settings",
        "theme",
        "icon close",
        "new-chat",
        "copy-address",
        "prompt",
        "icon close",
    ]
    await page.focus(".skip")
    await page.keyboard.press("Enter")
    assert await page.evaluate(FOCUSED) == "prompt"


async def test_everything_to_press_or_fill_has_a_name(page: Page, server: ScriptedServer) -> None:
    """What a screen reader says of each control: never nothing, also in an answer with code, calls and an error."""
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    server.answers.append(Answer((delta(reasoning_content="hm", content="```\nx\n```", tool_calls=[call]),)))
    await send(page, "hello")
    await answered(page)
    await page.click("#show-settings")
    nameless = await page.evaluate(
        """() => [...document.querySelectorAll('button, input, select, textarea, summary, a, [role=img]')].filter(
        (element) => {
            const label = element.labels?.[0]?.textContent ?? '';
            return !(element.getAttribute('aria-label') || label.trim() || element.textContent.trim());
        }).map((element) => element.outerHTML)"""
    )
    assert nameless == []
    assert await page.get_attribute("html", "lang") == "en"
    assert await page.locator("h1").count() == 1


async def test_a_screen_reader_hears_the_answer_once(page: Page, server: ScriptedServer) -> None:
    """The growing text is not read out piece by piece: its end is, and so is trouble."""
    rest = asyncio.Event()
    server.answers.append(Answer((delta(content="half "), rest, delta(content="and whole"), b"data: [DONE]\n\n")))
    await send(page, "hello")
    await page.wait_for_selector(".message.assistant[aria-busy=true]")
    assert await page.inner_text("#announcer") == "Answering."
    assert await page.get_attribute("#log", "aria-live") == "off"
    rest.set()
    await answered(page)
    assert await page.inner_text("#announcer") == "Answer: half and whole"


async def test_panels_open_and_close(page: Page) -> None:
    """Engine and settings share a side; what was open is open after a reload; the buttons say so."""
    assert await page.is_visible("#engine")
    await page.click("#show-settings")
    assert (await page.is_visible("#engine"), await page.is_visible("#settings")) == (False, True)
    assert await page.get_attribute("#show-settings", "aria-expanded") == "true"
    await page.click("#chats .close")
    assert await page.evaluate(FOCUSED) == "show-chats"
    await page.reload()
    assert (await page.is_visible("#chats"), await page.is_visible("#settings")) == (False, True)


async def test_on_a_phone(browser: Browser, server: ScriptedServer) -> None:
    """Nothing is wider than the window; a panel covers the chat, takes the focus and gives it back on Escape."""
    async with opened(browser, server.url, **PHONE) as page:
        wide = "x".ljust(400, "x")
        server.answers.append(said(f"{wide}\n\n```\n{wide}\n```\n\n| a | b |\n|---|---|\n| {wide} | {wide} |"))
        assert not await page.is_visible("#chats")
        await send(page, wide)
        await answered(page)
        for panel in (None, "engine", "settings", "chats"):
            if panel is not None:
                await page.click(f"#show-{panel}")
                assert await page.evaluate(f"byId('{panel}').contains(document.activeElement)")
                assert await page.evaluate("document.querySelector('main').inert") is True
            assert await page.evaluate("document.documentElement.scrollWidth") == 360
            assert await page.evaluate("byId('scroller').scrollWidth <= byId('scroller').clientWidth")
            if panel is not None:
                await page.keyboard.press("Escape")
                assert not await page.is_visible(f"#{panel}")
                assert await page.evaluate(FOCUSED) == f"show-{panel}"
        await page.click("#show-chats")
        await page.touchscreen.tap(350, 400)
        assert not await page.is_visible("#chats")


async def test_escape_closes_a_panel_before_it_stops_an_answer(browser: Browser, server: ScriptedServer) -> None:
    """One thing a press."""
    async with opened(browser, server.url, **PHONE) as page:
        server.answers.append(Answer((delta(content="a"), asyncio.Event())))
        await send(page, "hello")
        await page.wait_for_selector(".message.assistant.live")
        await page.click("#show-engine")
        await page.keyboard.press("Escape")
        assert await page.locator(".message.assistant.live").count() == 1
        await page.keyboard.press("Escape")
        assert await page.locator(".message.assistant.live").count() == 0


@pytest.mark.parametrize(("system", "paper"), [("light", "rgb(251, 251, 249)"), ("dark", "rgb(20, 22, 23)")])
async def test_colours_follow_the_system_until_chosen(
    browser: Browser, server: ScriptedServer, system: str, paper: str
) -> None:
    """The button goes from the system's to light to dark; a choice is kept and shown in other tabs."""
    colour = "getComputedStyle(document.body).backgroundColor"
    async with opened(browser, server.url, color_scheme=system) as page:
        assert await page.evaluate(colour) == paper
        await page.click("#theme")
        assert await page.evaluate(colour) == "rgb(251, 251, 249)"
        other = await page.context.new_page()
        await other.goto(server.url)
        await page.click("#theme")
        assert await page.get_attribute("#theme", "aria-label") == "Colours: dark"
        await holds(other, f"{colour} === 'rgb(20, 22, 23)'")
        await page.reload()
        assert await page.evaluate(colour) == "rgb(20, 22, 23)"
        await page.click("#theme")
        assert await page.evaluate(colour) == paper


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_text_can_be_read(browser: Browser, server: ScriptedServer, scheme: str) -> None:
    """Each ink on each ground it is used on has a contrast of at least 4.5, as WCAG AA asks."""
    grounds = ("paper", "sheet", "soft", "accent-soft", "bad-soft")
    pairs = [
        *((ink, ground) for ink in ("ink", "quiet") for ground in grounds),
        ("accent", "paper"), ("accent", "accent-soft"), ("bad", "paper"), ("bad", "bad-soft"), ("bad", "sheet"),
        ("warn", "warn-soft"), ("on-accent", "accent"), ("paper", "ink"),
    ]  # fmt: skip
    async with opened(browser, server.url, color_scheme=scheme) as page:
        weak = await page.evaluate(
            """pairs => {
                const probe = document.body.appendChild(document.createElement('i'));
                const light = (name) => {
                    probe.style.color = `var(--${name})`;
                    const [r, g, b] = getComputedStyle(probe).color.match(/[\\d.]+/g).map((part) => {
                        const share = part / 255;
                        return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
                    });
                    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
                };
                return pairs.map(([ink, ground]) => {
                    const [low, high] = [light(ink), light(ground)].sort((a, b) => a - b);
                    return [ink, ground, (high + 0.05) / (low + 0.05)];
                }).filter(([, , contrast]) => contrast < 4.5);
            }""",
            pairs,
        )
        assert weak == []
