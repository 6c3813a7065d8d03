"""What the page's sources may not hold: ways from text to markup or code, and addresses of others."""

import re
from pathlib import Path

from tests.structure.sources import ROOT, files

SVG_NAMESPACE = "http://www.w3.org/2000/svg"
TO_MARKUP = re.compile(
    r"\b(innerHTML|outerHTML|insertAdjacentHTML|srcdoc|DOMParser|createContextualFragment|setHTMLUnsafe)\b"
    r"|document\.write|\beval\(|\bFunction\(|\bimport\(|\bset(Timeout|Interval)\(['\"`]"
)


def page_sources() -> dict[Path, str]:
    """Every text of the page by its name."""
    names = [name for name in files() if name.suffix in (".js", ".css", ".html") and name.parts[0] == "frontend"]
    return {name: (ROOT / name).read_text(encoding="utf-8") for name in names}


def test_no_string_becomes_markup_or_code() -> None:
    """Model text can be anything: the page has no door for it."""
    sources = page_sources()
    assert len(sources) > 10
    assert {str(name): found[0] for name, text in sources.items() if (found := TO_MARKUP.search(text))} == {}


def test_no_source_names_another_host() -> None:
    """No font, no script, no picture, no counter comes from elsewhere; the SVG namespace is a name, not an address."""
    named = {
        f"{name}: {address}"
        for name, text in page_sources().items()
        for address in re.findall(r"""(?:https?:)?//[\w-]+\.[\w./-]+""", text)
        if address != SVG_NAMESPACE
    }
    assert named == set()


def test_every_script_is_strict_and_says_what_it_is() -> None:
    """Each begins with 'use strict' and a comment of at most four lines."""
    for name, text in page_sources().items():
        if name.suffix == ".js":
            lines = text.splitlines()
            comment = [line for line in lines[1:6] if line.startswith("// ")]
            assert (str(name), lines[0], 1 <= len(comment) <= 4) == (str(name), "'use strict';", True)


def test_the_patterns_would_match() -> None:
    """The tests above can fail."""
    assert TO_MARKUP.search("place.innerHTML = text")
    assert TO_MARKUP.search("setTimeout('hit()')")
