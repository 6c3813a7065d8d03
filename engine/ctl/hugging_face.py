"""Hugging Face ids to folders on disk, by huggingface_hub's own cache and progress bars."""

from pathlib import Path
from typing import Final

from engine.ctl.failure import CommandError

# The files mlx-lm's loader looks at; weights of other formats stay where they are.
_ALLOW_PATTERNS: Final = [
    "*.json",
    "model*.safetensors",
    "*.py",
    "tokenizer.model",
    "*.tiktoken",
    "tiktoken.model",
    "*.txt",
    "*.jsonl",
    "*.jinja",
]


def fetch_snapshot(repository: str) -> Path:
    """The folder of `owner/name`; a cached one also without network. Raises CommandError."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    try:
        return Path(snapshot_download(repository, allow_patterns=_ALLOW_PATTERNS))
    except HFValidationError as error:
        raise CommandError(f"{repository!r} is no Hugging Face id: {error}") from error
    except GatedRepoError as error:
        raise CommandError(f"model {repository} is gated: accept its terms and log in with `hf auth login`") from error
    except RepositoryNotFoundError as error:
        raise CommandError(f"no model {repository} on Hugging Face (a private one needs `hf auth login`)") from error
    except LocalEntryNotFoundError as error:
        raise CommandError(f"model {repository} is not in the cache, and Hugging Face cannot be reached") from error
    except (HfHubHTTPError, OSError) as error:
        raise CommandError(f"cannot fetch {repository}: {str(error).splitlines()[0]}") from error
