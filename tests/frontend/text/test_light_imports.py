"""The text side stays light: a frontend's memory is bounded."""

import subprocess
import sys

HEAVY = {"numpy", "transformers", "mlx", "mlx_lm", "torch", "huggingface_hub"}


def test_text_and_dialects_import_nothing_heavy() -> None:
    """In a fresh interpreter, none of the big packages is loaded."""
    program = (
        "import sys, frontend.text.pipeline, frontend.text.template;"
        "import frontend.dialects.openai_chat, frontend.dialects.openai_completions;"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert set(done.stdout.split()) & HEAVY == set()
