"""The page before axe-core, the rules that accessibility audits go by."""

from typing import Any

import pytest
from playwright.async_api import Browser

from tests.clients.node_packages import node_modules
from tests.frontend.page.browser import answered, send
from tests.frontend.page.scripted_server import Answer, ScriptedServer, delta, finish, refused

pytestmark = pytest.mark.asyncio(loop_scope="session")

CALL = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TEXT = "# Heading\n\ntext `code` [link](https://a.example/)\n\n```py\nx\n```\n\n|a|b|\n|-|-|\n|1|2|\n\n- one\n\n> two"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
async def test_no_rule_is_broken(browser: Browser, server: ScriptedServer, scheme: str, width: int) -> None:
    """With everything on the page that it can show, each panel open in turn, in both colours and both widths."""
    script = node_modules() / "axe-core" / "axe.min.js"
    pieces = (delta(reasoning_content="hm"), delta(content=TEXT), delta(tool_calls=[CALL]), finish("tool_calls"))
    server.answers.extend([Answer(pieces), refused(429, "queue_full", "full")])
    # The page's own policy would not let the audit in.
    context = await browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True, reduced_motion="reduce"
    )
    try:
        page = await context.new_page()
        await page.goto(server.url)
        await send(page, "hello")
        await answered(page)
        await page.locator(".reasoning summary").click()
        await send(page, "again")
        await page.wait_for_selector(".trouble:visible")
        await page.add_script_tag(path=script)
        broken: dict[str, Any] = {}
        for panel in ("none", "settings", "engine", "chats"):
            if panel != "none" and await page.get_attribute(f"#show-{panel}", "aria-expanded") == "false":
                await page.click(f"#show-{panel}")
            found = await page.evaluate(
                "axe.run().then(({ violations }) => violations.map(({ id, nodes }) => [id, nodes[0].html]))"
            )
            broken |= {f"{panel}: {rule}": node for rule, node in found}
            await page.keyboard.press("Escape")
        assert broken == {}
    finally:
        await context.close()
