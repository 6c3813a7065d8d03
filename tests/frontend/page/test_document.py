"""GET / and what stands around the page."""

import base64
import hashlib
import re
from pathlib import Path

from frontend.page.document import FOLDER, document
from tests.fakes.serving import serving

LARGEST_BYTES = 100_000


async def test_the_page_is_served_with_its_fences(runtime_dir: Path) -> None:
    """HTML that is asked for anew each time, is never framed or sniffed, and needs no engine."""
    async with serving(runtime_dir, wait=False, load_s=60) as served, served.session.get(served.url + "/") as response:
        body = await response.read()
        headers = response.headers
        assert (response.status, response.content_type, response.charset) == (200, "text/html", "utf-8")
        assert body == document().body
        assert headers["cache-control"] == "no-cache"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert "frame-ancestors 'none'" in headers["content-security-policy"]


async def test_who_has_it_is_told_so(runtime_dir: Path) -> None:
    """The etag in If-None-Match, weak or strong or among others, gets 304 without a body; another one the page."""
    async with serving(runtime_dir, wait=False) as served:
        etag = f'"{document().etag}"'
        for given, expected in ((etag, 304), (f"W/{etag}", 304), (f'"x", {etag}', 304), ("*", 304), ('"x"', 200)):
            async with served.session.get(served.url + "/", headers={"if-none-match": given}) as response:
                assert (given, response.status, response.headers["etag"]) == (given, expected, etag)
                assert (await response.read() == b"") == (expected == 304)


async def test_head_and_options(runtime_dir: Path) -> None:
    """HEAD has GET's headers and no body; OPTIONS names the methods."""
    async with serving(runtime_dir, wait=False) as served:
        async with served.session.head(served.url + "/") as response:
            assert (response.status, await response.read()) == (200, b"")
            assert int(response.headers["content-length"]) == len(document().body)
        async with served.session.options(served.url + "/") as response:
            assert (response.status, response.headers["allow"]) == (204, "GET, HEAD, OPTIONS")


async def test_only_the_page_itself_is_open_where_a_key_is_asked_for(runtime_dir: Path) -> None:
    """It is where a person types the key; what it then asks for needs the key. A strange host name is still refused."""
    async with serving(runtime_dir, wait=False, keys=("secret",)) as served:
        for path, expected in (("/", 200), ("/stats", 401), ("/v1/models", 401)):
            async with served.session.get(served.url + path) as response:
                assert (path, response.status) == (path, expected)
    async with (
        serving(runtime_dir, wait=False) as served,
        served.session.get(served.url + "/", headers={"host": "rebound.example.com"}) as response,
    ):
        assert response.status == 403


def test_the_policy_names_every_source_and_nothing_else() -> None:
    """Each inlined script and style is allowed by its hash; nothing is loaded from anywhere, nothing else runs."""
    found = document()
    text = found.body.decode()
    for element in ("script", "style"):
        contents = re.findall(rf"<{element}>(.*?)</{element}>", text, flags=re.DOTALL)
        digests = [base64.b64encode(hashlib.sha256(content.encode()).digest()).decode() for content in contents]
        allowed = f"{element}-src " + " ".join(f"'sha256-{digest}'" for digest in digests)
        assert len(contents) >= 2
        assert allowed in found.policy.split("; ")
    assert found.policy.startswith("default-src 'none'; ")
    assert "unsafe" not in found.policy
    assert "http" not in found.policy


def test_every_source_is_in_the_document() -> None:
    """Each style sheet and script of the folder is in its place, and none is left to be fetched."""
    text = document().body.decode()
    sources = [path for path in FOLDER.iterdir() if path.suffix in (".js", ".css")]
    assert len(sources) > 10
    assert [path.name for path in sources if path.read_text(encoding="utf-8") not in text] == []
    assert re.findall(r'<script src|rel="stylesheet"', text) == []


def test_the_page_is_small() -> None:
    """All of it in one answer of at most the 100 kB that the README promises."""
    assert 10_000 < len(document().body) <= LARGEST_BYTES
