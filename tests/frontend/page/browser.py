"""Finding a Chromium, and pages of it that fail a test when a script fails or another host is asked for something."""

import asyncio
import os
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, ConsoleMessage, Page, Request, async_playwright

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_MAC_APPLICATIONS = (
    Path("/Applications/Chromium.app/Contents/MacOS/Chromium"),
    Path("/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"),
)
_LIMIT_MS = 20_000


def chromium_path() -> str:
    """Of an installed browser. Skips the test where there is none, but fails it in CI."""
    found = next((path for name in _NAMES if (path := shutil.which(name))), None)
    found = found or next((str(path) for path in _MAC_APPLICATIONS if path.is_file()), None)
    if found is not None:
        return found
    if os.environ.get("CI"):
        pytest.fail("no Chromium: in CI the page's tests must run, and .ci/run installs one")
    pytest.skip("no Chromium or Chrome on this machine: the page is not tested")


@asynccontextmanager
async def running_browser() -> AsyncIterator[Browser]:
    """A browser without a window."""
    path = chromium_path()
    # Chromium's own sandbox refuses to run as root, which containers do.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=arguments)
        try:
            yield browser
        finally:
            await browser.close()


@dataclass(slots=True, eq=False)
class Watch:
    """What went wrong in a page that its test does not see."""

    origin: str
    failures: list[str] = field(default_factory=list[str])

    def follow(self, page: Page) -> None:
        """Listens from now on. Lambdas, since Playwright hangs marks on a bound method's owner, which slots refuse."""
        page.on("pageerror", lambda error: self.failures.append(f"script: {error}"))
        page.on("console", lambda message: self._hear(message))
        page.on("request", lambda request: self._see(request))

    def _hear(self, message: ConsoleMessage) -> None:
        # A refused request is part of many tests; what the policy or a script refuses is of none.
        if message.type == "error" and not message.text.startswith("Failed to load resource"):
            self.failures.append(f"console: {message.text}")

    def _see(self, request: Request) -> None:
        if not request.url.startswith((f"{self.origin}/", "data:")):
            self.failures.append(f"asked {request.url}")


@asynccontextmanager
async def opened(browser: Browser, url: str, **options: Any) -> AsyncIterator[Page]:
    """The page at a URL in a browser profile of its own; further pages of its context are watched, too."""
    context = await browser.new_context(locale="en-GB", **options)
    context.set_default_timeout(_LIMIT_MS)
    watch = Watch(url)
    context.on("page", lambda page: watch.follow(page))
    try:
        page = await context.new_page()
        await page.goto(f"{url}/")
        yield page
    finally:
        await context.close()
    assert watch.failures == []


async def send(page: Page, text: str) -> None:
    """Writes a message and presses Enter."""
    await page.fill("#prompt", text)
    await page.press("#prompt", "Enter")


async def holds(page: Page, expression: str, argument: Any = None) -> None:
    """Waits until an expression, or a function of the argument, is true: Playwright's own wait needs `eval`."""
    deadline_s = time.monotonic() + _LIMIT_MS / 1000
    while not await page.evaluate(expression, argument):
        assert time.monotonic() < deadline_s, f"never true: {expression}"
        await asyncio.sleep(0.02)


async def answered(page: Page, count: int = 1) -> str:
    """The text of the last of that many answers, once none grows any more."""
    await holds(
        page, "count => document.querySelectorAll('.message.assistant[aria-busy=false]').length === count", count
    )
    return await page.locator(".message.assistant").last.locator(":scope > .markdown").inner_text()
