"""The operator's chat template and its variables, from settings."""

from pathlib import Path

import pytest

from frontend.settings import Settings
from frontend.template_choice import template_choice
from frontend.text.template import TemplateChoice
from protocol.errors import ErrorCode, ProtocolError

SOURCE = "{{ messages[0]['content'] }}"


def chosen(**settings: object) -> TemplateChoice:
    return template_choice(Settings(runtime_dir="/r", **settings))  # type: ignore[arg-type]  # of any field


def test_nothing_chosen_is_the_models_own() -> None:
    """The default choice changes nothing."""
    assert chosen() == TemplateChoice()


def test_a_template_comes_as_it_is_or_from_a_file(tmp_path: Path) -> None:
    """mlx_lm.server takes the text, others a file: what has a brace is text."""
    (tmp_path / "t.jinja").write_text(SOURCE)
    assert chosen(chat_template=SOURCE).source == SOURCE
    assert chosen(chat_template=str(tmp_path / "t.jinja")).source == SOURCE


def test_variables_are_a_json_object() -> None:
    """As mlx_lm.server's --chat-template-args."""
    assert chosen(chat_template_args='{"enable_thinking": false, "n": [1]}').variables == {
        "enable_thinking": False,
        "n": [1],
    }


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"chat_template": "/no/such/file"}, "--chat-template /no/such/file: cannot be read: No such file"),
        ({"chat_template": "{% for %}"}, "--chat-template {% for %}: does not compile: line 1: "),
        ({"chat_template_args": "[1]"}, "--chat-template-args [1]: not a JSON object"),
        ({"chat_template_args": "{"}, "--chat-template-args {: not a JSON object"),
        ({"chat_template_args": '{"messages": []}'}, "`messages` comes from each request"),
        ({"chat_template_args": '{"add_generation_prompt": true}'}, "`add_generation_prompt` comes from each request"),
    ],
)
def test_a_wrong_choice_is_refused_at_start(settings: dict[str, str], said: str) -> None:
    """One line naming option and value; no request has to find it out."""
    with pytest.raises(ProtocolError) as refused:
        chosen(**settings)
    assert refused.value.code == ErrorCode.BAD_SETTING
    assert said in refused.value.message
