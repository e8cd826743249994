"""What Python's garbage collector does while steps are timed."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import Literal


@contextlib.contextmanager
def collecting(policy: Literal["python", "frozen", "off"]) -> Iterator[None]:
    """`python`: as Python does; `frozen`: without the objects there are now; `off`: not at all. Restored afterwards."""
    if policy == "python":
        yield
        return
    was_enabled = gc.isenabled()
    gc.collect()
    if policy == "frozen":
        gc.freeze()
    else:
        gc.disable()
    try:
        yield
    finally:
        if policy == "frozen":
            gc.unfreeze()
        elif was_enabled:
            gc.enable()
