"""Copies a model folder with its weights as float32: on CPU a server that keeps float16 would measure its dtype."""

import argparse
import json
import shutil
from pathlib import Path

import engine.openblas  # noqa: F401  # before MLX

# isort: split
import mlx.core as mx


def float32_copy(source: Path, target: Path) -> Path:
    """Writes `target`, a folder like `source` with float32 weights, and returns it. Raises OSError."""
    target.mkdir(parents=True, exist_ok=True)
    for path in source.iterdir():
        if path.suffix == ".safetensors":
            weights: dict[str, mx.array] = mx.load(str(path))  # pyright: ignore[reportAssignmentType]  # safetensors
            mx.save_safetensors(
                str(target / path.name),
                {name: weight.astype(mx.float32) for name, weight in weights.items()},
                metadata={"format": "mlx"},
            )
        elif path.is_file():
            shutil.copyfile(path, target / path.name)
    config = json.loads((target / "config.json").read_text(encoding="utf-8"))
    config |= {"dtype": "float32", "torch_dtype": "float32"}
    (target / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    return target


def main() -> None:
    """Copies one folder from the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.float32_copy", description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    options = parser.parse_args()
    print(float32_copy(options.source, options.target))


if __name__ == "__main__":
    main()
