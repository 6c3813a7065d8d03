"""What tests wait for in a server's /stats: counts of rows, idleness, one Cancel and the end of its row."""

import asyncio
from typing import Any

from tests.e2e.cluster import cancels_of, wait_stats


async def rows_are(url: str, **expected: int) -> dict[str, Any]:
    """Until the engine has these row counts."""

    def are_seen(found: dict[str, Any]) -> bool:
        return all(found["engine"]["rows"][state] == count for state, count in expected.items())

    return await asyncio.to_thread(wait_stats, url, are_seen, f"rows are {expected}")


async def no_row(url: str) -> None:
    """Until every row has left the engine."""
    await asyncio.to_thread(wait_stats, url, _is_idle, "every row has left the engine")


async def one_cancel(url: str, before: dict[str, Any]) -> None:
    """Until the row that was left is gone, with exactly one Cancel of this frontend. before: its /stats until then."""

    def is_gone(found: dict[str, Any]) -> bool:
        # The engine tells of its rows now and then: without the Cancel they may be those before this one.
        return cancels_of(found) > cancels_of(before) and _is_idle(found)

    found = await asyncio.to_thread(wait_stats, url, is_gone, "the row is gone")
    assert cancels_of(found) == cancels_of(before) + 1


def one_cancel_here(url: str, before: dict[str, Any]) -> None:
    """The same of the frontend alone, whatever rows of others the engine has; for tests that are not async."""
    found = wait_stats(url, lambda seen: seen["frontend"]["rows"] == 0, "the row is gone")
    assert cancels_of(found) == cancels_of(before) + 1


def _is_idle(found: dict[str, Any]) -> bool:
    return not any(found["engine"]["rows"].values())
