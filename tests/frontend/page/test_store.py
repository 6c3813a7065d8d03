"""What the browser keeps, and two tabs that keep the same chat."""

import pytest
from playwright.async_api import Browser, Page

from tests.frontend.page.browser import answered, opened, send
from tests.frontend.page.scripted_server import ScriptedServer, said

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_chat_survives_a_reload(page: Page, server: ScriptedServer) -> None:
    """The conversation is there again, is named in the list, and goes on with all that was said."""
    server.answers.extend([said("first answer"), said("second answer")])
    await send(page, "first question")
    assert await answered(page) == "first answer"
    await page.reload()
    assert await answered(page) == "first answer"
    assert await page.locator("#chat-list .open").all_inner_texts() == ["first question"]
    await send(page, "second question")
    await answered(page, 2)
    said_before = [(message["role"], message["content"]) for message in server.heard[1]["messages"]]
    assert said_before == [("user", "first question"), ("assistant", "first answer"), ("user", "second question")]


async def test_chats_are_apart_and_can_be_deleted(page: Page, server: ScriptedServer) -> None:
    """A new chat begins empty, the old one opens again, and a deleted one comes back when that was a slip."""
    server.answers.extend([said("alpha"), said("beta")])
    await send(page, "one")
    await answered(page)
    await page.click("#new-chat")
    assert await page.is_visible("#empty")
    await send(page, "two")
    assert await answered(page) == "beta"
    assert [len(body["messages"]) for body in server.heard] == [1, 1]
    await page.click("#chat-list .open >> text=one")
    await page.wait_for_selector(".message.assistant >> text=alpha")
    await page.go_back()
    await page.wait_for_selector(".message.assistant >> text=beta")
    assert await page.locator(".message").count() == 2
    await page.click("[aria-label='Delete the chat two']")
    assert await page.locator("#chat-list .open").all_inner_texts() == ["one"]
    assert await page.is_visible("#empty")
    await page.click("#toast button")
    assert await page.locator("#chat-list .open").all_inner_texts() == ["two", "one"]


async def test_a_second_tab_sees_the_first(page: Page, server: ScriptedServer) -> None:
    """A new tab begins a chat of its own, lists the other's, and follows it when it is opened there."""
    server.answers.extend([said("alpha"), said("gamma")])
    await send(page, "one")
    await answered(page)
    other = await page.context.new_page()
    await other.goto(server.url)
    assert await other.is_visible("#empty")
    await other.click("#chat-list .open >> text=one")
    assert await answered(other) == "alpha"
    await send(page, "more")
    await answered(page, 2)
    assert await answered(other, 2) == "gamma"


async def test_two_tabs_never_write_over_each_other(page: Page, server: ScriptedServer) -> None:
    """Both go on with one chat at once: what either wrote is kept, the later one's in a copy, and it is told."""
    server.answers.append(said("alpha"))
    await send(page, "one")
    await answered(page)
    # A revision that this tab has not seen, as when another writes in the same moment.
    await page.evaluate(
        """() => {
            const key = CHAT + location.hash.slice(1);
            const chat = JSON.parse(localStorage.getItem(key));
            chat.messages.push({ role: 'user', content: 'from another tab' });
            localStorage.setItem(key, JSON.stringify({ ...chat, revision: 'another' }));
        }"""
    )
    before = await page.evaluate("location.hash")
    server.answers.append(said("beta"))
    await send(page, "two")
    await answered(page, 2)
    assert "as a copy" in await page.inner_text("#toast")
    assert await page.evaluate("location.hash") != before
    kept = await page.evaluate(
        """() => Object.keys(localStorage).filter((key) => key.startsWith(CHAT))
            .map((key) => JSON.parse(localStorage.getItem(key)).messages.map((message) => message.content))"""
    )
    assert sorted(kept) == [["one", "alpha", "from another tab"], ["one", "alpha", "two", "beta"]]


async def test_broken_storage_breaks_nothing(page: Page, server: ScriptedServer) -> None:
    """What is no chat, no setting and no JSON is passed over, and the page works."""
    await page.evaluate(
        """() => {
            const messages = '[null, 3, {"role": "assistant", "content": "old"}, {"role": "user"}]';
            localStorage.setItem(CHAT + 'a', `{"messages": ${messages}}`);
            localStorage.setItem(TITLE + 'a', '{');
            localStorage.setItem(CHAT + 'b', '[]');
            localStorage.setItem(SETTINGS, '[1');
            localStorage.setItem(PANELS, '"x"');
            localStorage.setItem(THEME, 'pink');
        }"""
    )
    server.answers.append(said("fine"))
    for name, count in (("a", 1), ("b", 0), ("nowhere", 0)):
        await page.goto(f"{server.url}/#{name}")
        await page.reload()
        assert (name, await page.locator(".message").count()) == (name, count)
    await send(page, "still there?")
    assert await answered(page) == "fine"


async def test_a_full_browser_says_so(page: Page, server: ScriptedServer) -> None:
    """The chat goes on, and the person learns that it is not kept."""
    await page.evaluate(
        "() => { Storage.prototype.setItem = () => { throw new DOMException('full', 'QuotaExceededError'); }; }"
    )
    server.answers.append(said("fine"))
    await send(page, "one")
    assert await answered(page) == "fine"
    assert "no room left" in await page.inner_text("#toast")


async def test_without_storage_it_lasts_as_long_as_the_tab(browser: Browser, server: ScriptedServer) -> None:
    """A browser that forbids storage gets a working page that says what it does not keep."""
    async with opened(browser, server.url, viewport={"width": 1280, "height": 800}) as page:
        await page.add_init_script(
            "Object.defineProperty(window, 'localStorage', { get() { throw new DOMException('', 'SecurityError'); } });"
        )
        await page.reload()
        assert await page.inner_text("#kept") == "This browser keeps nothing: chats end with the tab."
        server.answers.append(said("fine"))
        await send(page, "one")
        assert await answered(page) == "fine"
        assert await page.locator("#chat-list .open").all_inner_texts() == ["one"]
