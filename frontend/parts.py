"""What the application hands to its handlers: made once in main, reached under one typed key."""

import time
from dataclasses import dataclass, field
from typing import Final

from aiohttp import web

from frontend.api_keys import ApiKeys
from frontend.engine_client import EngineClient
from frontend.settings import Settings


@dataclass(slots=True, eq=False)
class FrontendParts:
    """listens: the URLs it serves on. created: Unix seconds of the start.

    named_ignored_fields: unknown request fields that were logged already.
    """

    settings: Settings
    client: EngineClient
    listens: tuple[str, ...]
    keys: ApiKeys = field(default_factory=ApiKeys)
    started_s: float = field(default_factory=time.monotonic)
    created: int = field(default_factory=lambda: int(time.time()))
    requests_total: int = 0
    named_ignored_fields: set[str] = field(default_factory=set[str])


PARTS: Final = web.AppKey("parts", FrontendParts)
