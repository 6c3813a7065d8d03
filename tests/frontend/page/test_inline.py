"""What stands in a line of Markdown."""

import pytest
from playwright.async_api import Page

pytestmark = pytest.mark.asyncio(loop_scope="session")

HTML = (
    "text => { const place = document.createElement('p'); place.append(...inlineNodes(text)); return place.innerHTML; }"
)
LINK = '<a href="{0}" target="_blank" rel="noopener noreferrer nofollow" title="{0}">{1}</a>'

LINES = {
    "a *b* _c_ **d** __e__ ~~f~~ ***g***": (
        "a <em>b</em> <em>c</em> <strong>d</strong> <strong>e</strong> <del>f</del> <strong><em>g</em></strong>"
    ),
    "**a *b* c**": "<strong>a <em>b</em> c</strong>",
    "*a **b** c*": "<em>a <strong>b</strong> c</em>",
    "snake_case_name and 2 * 3 * 4": "snake_case_name and 2 * 3 * 4",
    "**not closed and *neither": "**not closed and *neither",
    "`a*b*c` and ``x`y``": "<code>a*b*c</code> and <code>x`y</code>",
    "`not closed": "`not closed",
    "**`**`**": "<strong><code>**</code></strong>",
    r"\*a\* \\ \q": r"*a* \ \q",
    "one\ntwo  \nthree": "one<br>two<br>three",
    "a < b & c > d": "a &lt; b &amp; c &gt; d",
    "[x](https://a.example/b)": LINK.format("https://a.example/b", "x"),
    '[x](https://a.example/b "a title")': LINK.format("https://a.example/b", "x"),
    "[**x**](<https://a.example/>)": LINK.format("https://a.example/", "<strong>x</strong>"),
    "[https://a.example](https://b.example/)": LINK.format("https://b.example/", "https://a.example"),
    "[x](/relative) [y] [z]()": "[x](/relative) [y] [z]()",
    "see https://a.example/x_(y), or (https://a.example).": (
        f"see {LINK.format('https://a.example/x_(y)', 'https://a.example/x_(y)')}, "
        f"or ({LINK.format('https://a.example/', 'https://a.example')})."
    ),
    "<https://a.example/> <mailto:a@b.example>": (
        f"{LINK.format('https://a.example/', 'https://a.example/')} "
        f"{LINK.format('mailto:a@b.example', 'mailto:a@b.example')}"
    ),
    "![alt](https://a.example/p.png)": LINK.format("https://a.example/p.png", "alt"),
    "🦊 *数える* é": "🦊 <em>数える</em> é",
}


@pytest.mark.parametrize("text", LINES)
async def test_line(functions: Page, text: str) -> None:
    """Emphasis, code, escapes, breaks and links; what does not close is text."""
    assert await functions.evaluate(HTML, text) == LINES[text]
