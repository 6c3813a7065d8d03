"""The store of responses as handlers see it: its calls leave the event loop, and its failures become a request's.

Owns the one thread that touches the store.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

from aiohttp import web

from frontend.errors import HttpErrorCode, RequestError
from frontend.parts import PARTS
from frontend.response_store import Limits, ResponseStore, StoreUnavailableError
from frontend.settings import Settings
from protocol.endpoint import RuntimeFolder

# SQLite itself waits for a lock for less; a disk may take any time.
_CALL_LIMIT_S: Final = 10.0

Answer = TypeVar("Answer")


class ResponseShelf:
    """most_bytes: of what is kept; 0 when nothing is."""

    def __init__(self, store: ResponseStore, most_bytes: int) -> None:
        self.is_open = most_bytes > 0
        self._store = store
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="responses")

    async def call(self, work: Callable[[ResponseStore], Answer]) -> Answer:
        """What work does with the store. Raises RequestError when it cannot be used."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_CALL_LIMIT_S):
                return await loop.run_in_executor(self._thread, work, self._store)
        except StoreUnavailableError as error:
            raise RequestError(HttpErrorCode.RESPONSE_STORE_UNAVAILABLE, str(error)) from error
        except TimeoutError as error:
            raise RequestError(
                HttpErrorCode.RESPONSE_STORE_UNAVAILABLE,
                f"the store of responses did not answer within {_CALL_LIMIT_S:.0f} s",
            ) from error

    async def close(self) -> None:
        """Ends the store's connection and its thread."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._store.close)
        self._thread.shutdown(wait=False)


SHELF: Final = web.AppKey("shelf", ResponseShelf)


async def shelf_context(app: web.Application) -> AsyncIterator[None]:
    """The shelf for as long as the application serves."""
    app[SHELF] = shelf = _shelf(app[PARTS].settings)
    yield
    await shelf.close()


def _shelf(settings: Settings) -> ResponseShelf:
    folder = RuntimeFolder(Path(settings.runtime_dir).expanduser().absolute())
    limits = Limits(settings.response_store_bytes, settings.response_ttl_s)
    return ResponseShelf(ResponseStore(folder.responses_path, limits), limits.bytes)
