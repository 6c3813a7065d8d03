"""What README.md says, as far as it can be compared with the code."""

import re

import msgspec
import typer.main

from engine.ctl.app import app
from engine.ctl.pull import PACKAGED_MODELS
from engine.ctl.serve import DRAIN_S
from engine.ctl.settings import ServeSettings
from frontend.app import ROUTES
from tests.structure.sources import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_flag_table_and_help_name_the_same_flags() -> None:
    """Neither has a flag that the other lacks."""
    documented = set(re.findall(r"^\| `(--[a-z-]+)` \|", README, flags=re.MULTILINE))
    documented |= set(re.findall(r"\(also `(--[a-z-]+)`\)", README))
    serve = typer.main.get_group(app).commands["serve"]
    offered = {name for parameter in serve.params for name in parameter.opts if name.startswith("--")}
    assert documented == offered - {"--help"}


def test_flag_table_has_the_codes_defaults() -> None:
    """Each default that the table spells out."""
    defaults = dict(re.findall(r"^\| `--([a-z-]+)` \| `([^`]+)` \|", README, flags=re.MULTILINE))
    settings = ServeSettings()
    in_code = {name: getattr(settings, name.replace("-", "_")) for name in defaults}
    assert defaults == {
        name: str(value[0]) if isinstance(value, tuple) else str(value) for name, value in in_code.items()
    }
    fields = {field.name.replace("_", "-"): getattr(settings, field.name) for field in msgspec.structs.fields(settings)}
    unset = {name for name, value in fields.items() if value is None or value is False or value == ()}
    assert set(fields) - set(defaults) == {"runtime-dir"} | unset


def test_every_command_in_it_exists() -> None:
    """Each `engine-ctl X` and each `make X`."""
    commands = set(typer.main.get_group(app).commands)
    assert set(re.findall(r"engine-ctl (serve|status|flush|pull|adapter|\w+(?= --))", README)) == commands
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert set(re.findall(r"`?make ([a-z]+)\b", README)) - targets == set()


def test_every_path_in_it_is_routed() -> None:
    """No example asks for a page that is not there."""
    routed = {path for route in ROUTES for path in route.paths}
    named = set(
        re.findall(
            r"(?<![\w.])/(?:v1/[a-z/]+[a-z]|livez|readyz|health|stats|metrics|tokenize|detokenize|apply-template|openapi\.json)\b",
            README,
        )
    )
    assert named - routed == set()
    assert {"/livez", "/readyz", "/health", "/stats", "/v1/models"} <= named


def test_numbers_are_the_codes() -> None:
    """Grace time and download size."""
    assert f"running requests get {DRAIN_S:.0f} seconds" in README
    assert all(f"({model.download_bytes / 1e6:.0f} MB)" in README for model in PACKAGED_MODELS)


def test_every_link_to_a_file_leads_to_one() -> None:
    """Relative links only; addresses are not followed."""
    links = [link for link in re.findall(r"\]\(([^)]+)\)", README) if "://" not in link]
    assert links != []
    assert [link for link in links if not (ROOT / link).is_file()] == []
