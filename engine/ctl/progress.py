"""How far a long piece of work is: the call that tells it, and a rich bar that shows it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn


class ReportProgress(Protocol):
    """done and total are in one unit; total 0 when unknown."""

    def __call__(self, work: str, done: int, total: int) -> None:
        """Says that `work` is at `done` of `total`."""
        ...


@contextmanager
def progress_bar(console: Console) -> Iterator[ReportProgress]:
    """Bars on a terminal; one line at each beginning where the console is none."""
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bars:
        tasks = {}

        def report(work: str, done: int, total: int) -> None:
            if work not in tasks:
                tasks[work] = bars.add_task(work, total=None)
                if not console.is_terminal:
                    console.print(f"{work} …", highlight=False)
            bars.update(tasks[work], completed=done, total=total or None)

        yield report
