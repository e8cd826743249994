"""Waiting for what must come, without timing it."""

import time
from collections.abc import Callable
from typing import Any

PATIENCE_S = 180.0
"""Only something broken takes this long."""


def wait_for(condition: Callable[[], Any]) -> Any:
    """The first true answer."""
    deadline = time.monotonic() + PATIENCE_S
    while not (result := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)
    return result
