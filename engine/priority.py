"""A row's place among others that wait: higher priorities first, each in the order of arrival."""

from collections import deque

from engine.row import Row


def put_first(waiting: deque[Row], row: Row) -> None:
    """Puts the row before all that have its priority or a lower one."""
    place = next((at for at, other in enumerate(waiting) if other.submit.priority <= row.submit.priority), len(waiting))
    waiting.insert(place, row)


def queue_by_priority(waiting: deque[Row], row: Row) -> None:
    """Puts the row behind all that have its priority or a higher one."""
    place = len(waiting)
    while place and waiting[place - 1].submit.priority < row.submit.priority:
        place -= 1
    waiting.insert(place, row)
