"""`engine-ctl adapter`: mounting, unmounting and listing adapters of the running engine."""

from pathlib import Path
from typing import Annotated, Final

import typer

from engine.ctl.failure import EXIT_USAGE, CommandError
from engine.ctl.runtime_option import RuntimeDir, runtime_folder

adapter_app: Final = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="LoRA adapters of a running engine.")


@adapter_app.command("add")
def add(
    name: Annotated[str, typer.Argument(help="what requests call it")],
    folder: Annotated[Path, typer.Argument(help="with adapter_config.json and adapters.safetensors")],
    runtime_dir: RuntimeDir = None,
) -> None:
    """Mount an adapter; running requests go on, new ones may name it."""
    from engine.ctl.operator import command

    if "=" in name:
        raise CommandError(f"{name}: a name has no `=`", EXIT_USAGE)
    command(runtime_folder(runtime_dir), "mount_adapter", f"{name}={folder.expanduser().absolute()}")
    print(f"{name} is mounted")


@adapter_app.command("remove")
def remove(
    name: Annotated[str, typer.Argument(help="of a mounted adapter")],
    runtime_dir: RuntimeDir = None,
) -> None:
    """Unmount an adapter; requests that run with it go on to their ends."""
    from engine.ctl.operator import command

    command(runtime_folder(runtime_dir), "unmount_adapter", name)
    print(f"{name} is unmounted")


@adapter_app.command("list")
def show(runtime_dir: RuntimeDir = None) -> None:
    """The mounted adapters, one a line."""
    import sys

    from engine.ctl.operator import engine_in

    names = engine_in(runtime_folder(runtime_dir)).adapters
    if not names:
        print("engine-ctl: no adapter is mounted", file=sys.stderr)
    for name in names:
        print(name)
