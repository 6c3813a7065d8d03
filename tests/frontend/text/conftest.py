"""The two small tokenizers, built once a session: hypothesis runs hundreds of cases on each."""

import pytest

from frontend.text.tokenizer import Tokenizer
from tests.frontend.text import tokenizer_builds


@pytest.fixture(scope="session")
def byte_level(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """A byte-level BPE tokenizer."""
    return tokenizer_builds.byte_level_tokenizer(tmp_path_factory.mktemp("byte_level"))


@pytest.fixture(scope="session")
def metaspace(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """A metaspace tokenizer with byte fallback."""
    return tokenizer_builds.metaspace_tokenizer(tmp_path_factory.mktemp("metaspace"))


@pytest.fixture(params=["byte_level", "metaspace"])
def tokenizer(request: pytest.FixtureRequest, byte_level: Tokenizer, metaspace: Tokenizer) -> Tokenizer:
    """Each of the two in turn."""
    return byte_level if request.param == "byte_level" else metaspace
