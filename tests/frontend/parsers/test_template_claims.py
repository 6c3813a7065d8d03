"""Which formats a model's template is read with: each template is claimed by its own, and by no other."""

import pytest

from frontend.parsers.registry import REASONING_FORMATS, TOOL_FORMATS, Declared, formats_of
from frontend.text.template import ChatTemplate
from tests.frontend.parsers.generated_calls import templates

TEMPLATES = templates()
# Where it is not the format of the template's own name.
REASONING = {
    **dict.fromkeys(("deepseek_v3", "deepseek_v31", "deepseek_v32", "glm45", "glm47", "kimi_k2", "lfm2"), "think"),
    **dict.fromkeys(("minicpm5", "minimax_m2", "qwen3_coder", "hermes", "nemotron", "olmo3"), "think"),
    "seed_oss": "seed",
    "hunyuan_a13b": "think",
    "phi4_mini": None,
    "pythonic": None,
    "llama3_json": None,
    "function_gemma": None,
}
# Which of the template's variables has opened reasoning by the prompt's end.
OPENED_IF_ON = ("deepseek_v31", "deepseek_v32", "kimi", "kimi_k3", "longcat", "minicpm5", "qwen3_coder", "solar")
OPENED_ALWAYS = ("deepseek_v3", "minimax_m2")


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_is_claimed_by_its_formats(name: str) -> None:
    """By one at most of each kind, or formats_of would refuse it."""
    found = formats_of(Declared(TEMPLATES[name]))
    tools = None if found.tools is None else found.tools.name
    reasoning = None if found.reasoning is None else found.reasoning.name
    assert (name if name in TOOL_FORMATS else None, REASONING.get(name, name)) == (tools, reasoning)


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_says_whether_it_has_opened_reasoning(name: str) -> None:
    """By the end of what it renders, with thinking on and off."""
    found = formats_of(Declared(TEMPLATES[name])).reasoning
    template = ChatTemplate(TEMPLATES[name], {})
    opened = [
        found is not None and found.is_open_after(template.render([{"role": "user", "content": "x"}], thinking=is_on))
        for is_on in (True, False)
    ]
    assert [name in OPENED_IF_ON + OPENED_ALWAYS, name in OPENED_ALWAYS] == opened


def test_every_template_is_named_after_a_format() -> None:
    """And so is tested for it."""
    assert set(TEMPLATES) <= {*TOOL_FORMATS, *REASONING_FORMATS}
