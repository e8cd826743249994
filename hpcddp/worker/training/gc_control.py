"""What Python's garbage collector does while steps are timed."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import Literal


@contextlib.contextmanager
def collecting(policy: Literal["python", "frozen", "off"]) -> Iterator[None]:
    """As Python does; without looking at the objects there are now; or not at all. Afterwards it is as it was before."""
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
