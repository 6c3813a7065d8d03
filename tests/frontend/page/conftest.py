"""One browser for all tests of the page; each test has a profile, and a server, of its own."""

from collections.abc import AsyncIterator

import pytest_asyncio
from playwright.async_api import Browser, Page

from tests.frontend.page.browser import opened, running_browser
from tests.frontend.page.scripted_server import ScriptedServer, scripted_server


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """Started once: it takes longer than most tests."""
    async with running_browser() as found:
        yield found


@pytest_asyncio.fixture(loop_scope="session")
async def server() -> AsyncIterator[ScriptedServer]:
    """The page and answers that the test writes."""
    async with scripted_server() as found:
        yield found


@pytest_asyncio.fixture(loop_scope="session")
async def page(browser: Browser, server: ScriptedServer) -> AsyncIterator[Page]:
    """The scripted server's page on a wide window."""
    async with opened(browser, server.url, viewport={"width": 1280, "height": 800}) as found:
        yield found


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def functions(browser: Browser) -> AsyncIterator[Page]:
    """A page whose functions are called and that nothing else is done with: one for all such tests."""
    async with scripted_server() as server, opened(browser, server.url) as found:
        yield found
