"""Hugging Face failures as one line each, with the download itself replaced."""

from pathlib import Path

import httpx2
import huggingface_hub
import pytest
from huggingface_hub import errors

from engine.ctl.failure import CommandError
from engine.ctl.hugging_face import fetch_snapshot

RESPONSE = httpx2.Response(404, request=httpx2.Request("GET", "https://example.org"))


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (errors.RepositoryNotFoundError("long\nstory", response=RESPONSE), "no model a/b on Hugging Face"),
        (errors.GatedRepoError("long\nstory", response=RESPONSE), "is gated"),
        (errors.LocalEntryNotFoundError("long\nstory"), "is not in the cache, and Hugging Face cannot be reached"),
        (errors.HFValidationError("bad name"), "no Hugging Face id"),
        (OSError(28, "No space left on device"), "No space left on device"),
    ],
)
def test_each_failure_is_one_clear_line(monkeypatch: pytest.MonkeyPatch, error: Exception, said: str) -> None:
    """Not found, gated, offline, misspelt, disk full."""

    def fail(*_: object, **__: object) -> str:
        raise error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(CommandError) as failure:
        fetch_snapshot("a/b")
    assert said in failure.value.message
    assert "\n" not in failure.value.message


def test_only_what_the_loader_reads_is_fetched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The same patterns as mlx-lm: no second copy of the weights in another format."""
    asked: dict[str, object] = {}
    monkeypatch.setattr(
        huggingface_hub, "snapshot_download", lambda name, **options: asked.update(options, name=name) or str(tmp_path)
    )
    assert fetch_snapshot("a/b") == tmp_path
    assert asked["name"] == "a/b"
    patterns = asked["allow_patterns"]
    assert isinstance(patterns, list)
    assert "model*.safetensors" in patterns
    assert "*.bin" not in patterns
