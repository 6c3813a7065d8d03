"""The settings: what becomes of them in a request, and what is wrong with one before it is sent."""

import json

import pytest
from playwright.async_api import Page

from tests.frontend.page.browser import answered, send
from tests.frontend.page.scripted_server import ScriptedServer, said

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_left_alone_they_send_nothing(page: Page, server: ScriptedServer) -> None:
    """A request has the model, the messages and what streaming needs; all else is the server's choice."""
    server.answers.append(said("x"))
    await page.wait_for_selector("#model:enabled")
    await send(page, "hello")
    await answered(page)
    assert server.heard == [
        {
            "model": "scripted",
            "messages": [{"role": "user", "content": "hello"}],
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    ]


async def test_each_one_is_sent_as_its_field_and_kept(page: Page, server: ScriptedServer) -> None:
    """Numbers as numbers, stop strings a line each, the system prompt as a message, further fields as they are."""
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    await page.click("#show-settings")
    numbers = {"temperature": "0.7", "top_p": ".9", "top_k": "40", "min_p": "0.05", "max_tokens": "128", "seed": "-7"}
    for name, value in numbers.items():
        await page.fill(f"#{name}", value)
    await page.fill("#system", "be brief")
    await page.fill("#stop-strings", "END\n\n a b")
    await page.fill("#extra", json.dumps({"tools": tools, "top_k": 5}))
    await page.reload()
    assert await page.input_value("#temperature") == "0.7"
    server.answers.append(said("x"))
    await page.wait_for_selector("#model:enabled")
    await send(page, "hello")
    await answered(page)
    (body,) = server.heard
    assert body == {
        "model": "scripted",
        "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": 5,
        "min_p": 0.05,
        "max_tokens": 128,
        "seed": -7,
        "stop": ["END", " a b"],
        "tools": tools,
    }
    await page.click("#reset-settings")
    assert await page.input_value("#temperature") == ""
    assert await page.evaluate("localStorage.getItem(SETTINGS)") is None


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("extra", "{", "This is not JSON"),
        ("extra", "[1]", "must be a JSON object"),
        ("extra", '{"messages": []}', "The page sets messages itself"),
        ("extra", '{"n": 2}', "one answer at a time"),
        ("top_k", "1.5", "Top k must be a whole number."),
    ],
)
async def test_a_wrong_one_is_shown_and_nothing_is_sent(
    page: Page, server: ScriptedServer, field: str, value: str, words: str
) -> None:
    """The panel opens at the field, which says what is wrong; the message stays where it was written."""
    await page.click("#show-settings")
    await page.evaluate(
        "([name, value]) => { const { elements } = byId('settings-form'); elements[name].value = value; }",
        [field, value],
    )
    await page.click("#settings .close")
    await send(page, "hello")
    assert words in await page.inner_text("#settings .wrong")
    assert await page.evaluate("document.activeElement.name") == field
    assert await page.get_attribute(f"#{field}", "aria-invalid") == "true"
    assert await page.input_value("#prompt") == "hello"
    assert server.heard == []
    await page.fill(f"#{field}", "")
    assert await page.locator("#settings .wrong").count() == 0


async def test_the_key_is_sent_with_everything(page: Page, server: ScriptedServer) -> None:
    """A server that asks for a key is told apart from one that is gone; with the key all works, and it is kept."""
    server.key = "s3cret"
    await page.wait_for_selector("#banner button")
    assert "asks for an API key" in await page.inner_text("#banner")
    await send(page, "let me in")
    await answered(page)
    assert "asks for an API key" in await page.inner_text(".trouble")
    await page.click(".trouble button:has-text('Set the key')")
    assert await page.evaluate("document.activeElement.id") == "api-key"
    assert await page.get_attribute("#api-key", "type") == "password"
    await page.keyboard.type("s3cret")
    await page.wait_for_selector("#banner.back")
    assert await page.inner_text("#banner") == "The key was taken."
    server.answers.append(said("welcome"))
    await page.click(".trouble button:has-text('Try again')")
    assert await answered(page) == "welcome"
    await page.reload()
    await page.wait_for_selector("#show-engine[data-state=ready]")
