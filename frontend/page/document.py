"""The page's document: this folder's sources put into one response, and the headers that fence it in.

Owns the order index.html declares and the policy; what the page does is its scripts'.
"""

import base64
import hashlib
import re
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from aiohttp import ETag, web

FOLDER: Final = Path(__file__).parent
_LINK: Final = re.compile(r'<link rel="stylesheet" href="(?P<name>[a-z_]+\.css)">')
_SCRIPT: Final = re.compile(r'<script src="(?P<name>[a-z_]+\.js)"></script>')


class Document(NamedTuple):
    """One whole answer. etag: of the body. policy: the Content-Security-Policy that lets these very sources run."""

    body: bytes
    etag: str
    policy: str


@cache
def document() -> Document:
    """index.html with each style sheet and script it names in its place."""
    hashes: dict[str, list[str]] = {"style": [], "script": []}

    def inlined(element: str, name: str) -> str:
        content = "\n" + (FOLDER / name).read_text(encoding="utf-8")
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        hashes[element].append(f"'sha256-{digest}'")
        return f"<{element}>{content}</{element}>"

    text = (FOLDER / "index.html").read_text(encoding="utf-8")
    text = _LINK.sub(lambda match: inlined("style", match["name"]), text)
    text = _SCRIPT.sub(lambda match: inlined("script", match["name"]), text)
    body = text.encode()
    return Document(body, hashlib.sha256(body).hexdigest()[:32], _policy(hashes["style"], hashes["script"]))


def _policy(styles: list[str], scripts: list[str]) -> str:
    """Nothing but these sources runs, nothing is asked of another host, and no string becomes markup."""
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src {' '.join(scripts)}",
            f"style-src {' '.join(styles)}",
            "connect-src 'self'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        ]
    )


async def page(request: web.Request) -> web.Response:
    """The document, or 304 to who has it already."""
    found = document()
    headers = {
        "etag": f'"{found.etag}"',
        "cache-control": "no-cache",
        "content-security-policy": found.policy,
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
    }
    if any(tag in (ETag(found.etag), ETag(found.etag, is_weak=True), ETag("*")) for tag in request.if_none_match or ()):
        return web.Response(status=304, headers=headers)
    return web.Response(body=found.body, headers=headers, content_type="text/html", charset="utf-8")
