"""Reads the texts in goldens/parsers anew: `python -m tests.frontend.parsers.regen_parsers`.

Cases are added by hand, with a name and a text; what they are read as is written here, and looked at before commit.
"""

import json

from tests.frontend.parsers.golden_cases import cases, golden_files, load, told


def regenerated(content: dict[str, object], read: dict[str, list[list[str]]]) -> str:
    """A golden file's text: a case on several lines, a piece on one."""
    lines = ["{", *(f'  "{key}": {json.dumps(content[key])},' for key in ("tools", "reasoning")), '  "cases": [']
    blocks: list[str] = []
    for case in content["cases"]:  # type: ignore[attr-defined]  # JSON
        facts = {key: value for key, value in case.items() if key != "pieces"}
        head = ",\n".join(f'      "{key}": {json.dumps(value, ensure_ascii=False)}' for key, value in facts.items())
        pieces = ",\n".join(f"        {json.dumps(piece, ensure_ascii=False)}" for piece in read[case["name"]])
        blocks.append(f'    {{\n{head},\n      "pieces": [\n{pieces}\n      ]\n    }}')
    return "\n".join([*lines, ",\n".join(blocks), "  ]", "}"]) + "\n"


def main() -> None:
    """Rewrites every file."""
    for path in golden_files():
        read = {name: told(case.form, [case.text]) for name, case in cases(path).items()}
        path.write_text(regenerated(load(path), read), encoding="utf-8")


if __name__ == "__main__":
    main()
