"""Blocks of Markdown in the page: what they become, while they grow, and what hostile ones do not become."""

import pytest
from playwright.async_api import Page

pytestmark = pytest.mark.asyncio(loop_scope="session")

HTML = "text => { const place = document.createElement('div'); renderMarkdown(place, text); return place.innerHTML; }"

BLOCKS = {
    "a paragraph\nof two lines\n\nand another": "<p>a paragraph<br>of two lines</p><p>and another</p>",
    "## A heading ##\ntext": '<p class="heading level2" role="heading" aria-level="3">A heading</p><p>text</p>',
    "# C#": '<p class="heading level1" role="heading" aria-level="2">C#</p>',
    "a\n\n---\n\nb": "<p>a</p><hr><p>b</p>",
    "> quoted\n> > deeper": "<blockquote><p>quoted</p><blockquote><p>deeper</p></blockquote></blockquote>",
    "- one\n- two\n  - inner\n- three": (
        '<ul><li class=""><p>one</p></li><li class=""><p>two</p><ul><li class=""><p>inner</p></li></ul></li>'
        '<li class=""><p>three</p></li></ul>'
    ),
    "3. c\n4. d": '<ol start="3"><li class=""><p>c</p></li><li class=""><p>d</p></li></ol>',
    "1. one\n\n   more\n\n2. two": (
        '<ol><li class="loose"><p>one</p><p>more</p></li><li class="loose"><p>two</p></li></ol>'
    ),
    "- a\n1. b": '<ul><li class=""><p>a</p></li></ul><ol><li class=""><p>b</p></li></ol>',
    "It was in 1984.\n1984. was a year": "<p>It was in 1984.<br>1984. was a year</p>",
    "| a | b |\n|--:|:-:|\n| `x|y` | z \\| w |": (
        '<div class="table" tabindex="0" role="group" aria-label="Table"><table><thead><tr><th class="right">a</th>'
        '<th class="center">b</th></tr></thead><tbody><tr><td class="right"><code>x|y</code></td>'
        '<td class="center">z | w</td></tr></tbody></table></div>'
    ),
    "a | b, and no table": "<p>a | b, and no table</p>",
}


@pytest.mark.parametrize("text", BLOCKS)
async def test_block(functions: Page, text: str) -> None:
    """Each kind of block, as GitHub's Markdown has it."""
    assert await functions.evaluate(HTML, text) == BLOCKS[text]


@pytest.mark.parametrize(
    ("text", "language", "code"),
    [
        ("```python\nx = 1\n\ny = 2\n```\nafter", "python", "x = 1\n\ny = 2"),
        ("~~~\n```\nnot the end\n~~~", "text", "```\nnot the end"),
        ("````md\n```\ninner\n```\n````", "md", "```\ninner\n```"),
        ("```js\nstill open <b>", "js", "still open <b>"),
        ("  ```\n    indented\n  ```", "text", "  indented"),
    ],
)
async def test_code_block(functions: Page, text: str, language: str, code: str) -> None:
    """Fenced code is kept as it is, under its language, also while it is not closed."""
    found = await functions.evaluate(
        "text => { const place = document.createElement('div'); renderMarkdown(place, text);"
        " return [place.querySelector('.code-head span').textContent, place.querySelector('pre').textContent]; }",
        text,
    )
    assert found == [language, code]


async def test_a_growing_text_ends_as_the_whole_one(functions: Page) -> None:
    """Given a character more at a time, every text ends in the same elements as when it is given whole."""
    texts = [*BLOCKS, "```py\na\n```\n\nb `c` **d *e* f** [g](https://h.example/)\n\n- x\n\n  ```\n  y\n  ```"]
    differing = await functions.evaluate(
        """texts => texts.filter((text) => {
            const [grown, whole] = [document.createElement('div'), document.createElement('div')];
            for (let end = 1; end <= text.length; end += 1) renderMarkdown(grown, text.slice(0, end));
            renderMarkdown(whole, text);
            return grown.innerHTML !== whole.innerHTML;
        })""",
        texts,
    )
    assert differing == []


async def test_finished_blocks_are_left_alone(functions: Page) -> None:
    """What a reader has selected stays: only the block that grows is made again."""
    is_same = await functions.evaluate(
        """() => {
            const place = document.createElement('div');
            renderMarkdown(place, '# one\\n\\ntwo\\n\\nthr');
            const [first, second] = place.children;
            renderMarkdown(place, '# one\\n\\ntwo\\n\\nthree');
            return place.children[0] === first && place.children[1] === second && place.children.length === 3;
        }"""
    )
    assert is_same is True


HOSTILE = (
    "<script>hit()</script>",
    "<img src=x onerror=hit()>",
    "[a](javascript:hit())",
    "[a](JaVaScRiPt:hit())",
    "[a](\tjavascript:hit())",
    "[a](data:text/html,<script>hit()</script>)",
    "[a](vbscript:hit)",
    "![a](javascript:hit())",
    "![a](https://evil.example/pixel.png)",
    "<javascript:hit()>",
    '[a](https://x.example/"onmouseover="hit()")',
    '```"><img src=x onerror=hit()>\n<script>hit()</script>\n```',
    "`<svg onload=hit()>`",
    "| <script>hit()</script> | b |\n|---|---|\n| <img src=x onerror=hit()> | <iframe src=javascript:hit()> |",
    "> <details open ontoggle=hit()>",
    "# <body onload=hit()>",
    "- <a href=javascript:hit()>x</a>",
    "&lt;script&gt;hit()&lt;/script&gt;",
)


async def test_hostile_text_stays_text(functions: Page) -> None:
    """No script, no handler, no foreign address, no picture: in the page, with the policy there and without a hit."""
    found = await functions.evaluate(
        """texts => {
            window.hits = 0;
            window.hit = () => { window.hits += 1; };
            const place = document.createElement('div');
            document.body.append(place);
            renderMarkdown(place, texts.join('\\n\\n'));
            const links = [...place.querySelectorAll('a')];
            for (const link of links) link.dispatchEvent(new MouseEvent('mouseover', { bubbles: true }));
            const all = [...place.querySelectorAll('*')];
            const names = all.flatMap((element) => element.getAttributeNames());
            return {
                tags: [...new Set(all.map((element) => element.localName))].sort(),
                handlers: names.filter((name) => name.startsWith('on')).length,
                schemes: [...new Set(links.map((link) => link.protocol))],
                targets: [...new Set(links.map((link) => link.rel))],
                text: place.textContent,
            };
        }""",
        list(HOSTILE),
    )
    allowed = {"a", "blockquote", "br", "button", "code", "div", "li", "p", "pre", "span", "table", "tbody", "td", "th"}
    assert set(found["tags"]) - allowed == {"thead", "tr", "ul"}
    assert found["handlers"] == 0
    assert set(found["schemes"]) <= {"https:"}
    assert found["targets"] == ["noopener noreferrer nofollow"]
    assert "<script>hit()</script>" in found["text"]
    assert await functions.evaluate("window.hits") == 0


@pytest.mark.parametrize(
    "unit",
    [">", "- ", "  - ", "[", "![", "*a", "**a ", "_a _", "`", "``a", "| a ", "<", "#", "\\", "a](", "http://a.", "~~"],
)
async def test_no_text_takes_long_or_nests_deep(functions: Page, unit: str) -> None:
    """A hundred thousand characters of one mark, in a line and in lines of their own."""
    deepest, spent_ms = await functions.evaluate(
        """unit => {
            const depth = (node) => 1 + Math.max(0, ...[...node.children].slice(0, 50).map(depth));
            const began = performance.now();
            const depths = [unit.repeat(100000 / unit.length), `${unit}x\\n`.repeat(2000)].map((text) => {
                const place = document.createElement('div');
                renderMarkdown(place, text);
                return depth(place);
            });
            return [Math.max(...depths), performance.now() - began];
        }""",
        unit,
    )
    assert deepest < 40
    assert spent_ms < 8_000
