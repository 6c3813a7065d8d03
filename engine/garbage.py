"""Python's garbage collector in the engine: what stands when the model is ready is never looked through again."""

import gc


def leave_out_what_stands() -> None:
    """Collects what loading has left behind, then takes all that is alive out of every later collection.

    Else one in a while goes over hundreds of thousands of objects of modules and vocabularies, between two tokens.
    """
    gc.collect()
    gc.freeze()
