"""How Python is set for a process whose event loop must never wait long: its lock's turns, its garbage.

Owns what counts for the whole process; called once by main, and after each load of a model's text.
"""

import gc
import sys
from typing import Final

# A thread that makes a prompt of a long conversation keeps the interpreter lock for so long, while the loop waits.
SWITCH_INTERVAL_S: Final = 0.0005


def set_turns() -> None:
    """Lets threads give way to the loop ten times as often as Python does by itself."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)


def settle_garbage() -> None:
    """Takes all that lives now out of later collections: each would hold the loop for 25 ms, and find none of it dead.

    What is frozen is still freed by its reference count.
    """
    gc.freeze()
