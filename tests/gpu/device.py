"""Which GPUs the tests run on: the machine's, or a stand-in for two.

This process itself must not start CUDA: the ranks are forked from it, and a forked process cannot use CUDA that its parent has
begun. So `python -m tests.gpu` counts the GPUs in a process of its own and says their number here.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

COUNT_VARIABLE = "HPCDDP_TEST_GPUS"
"""How many GPUs of the machine the tests run on; not set: on the stand-in."""

FACTS_VARIABLE = "HPCDDP_TEST_GPU_FACTS"
"""facts() of the machine, as JSON."""

STAND_IN_GPUS = 2

STAND_IN = {"stand_in": True, "gpus": [{"name": "stand-in"}] * STAND_IN_GPUS}


def is_real() -> bool:
    return COUNT_VARIABLE in os.environ


def gpu_count() -> int:
    """How many ranks a test has: one for each GPU."""
    return int(os.environ.get(COUNT_VARIABLE, STAND_IN_GPUS))


def machine_facts() -> dict[str, Any]:
    """What a line of the results says of the machine."""
    return dict(json.loads(os.environ[FACTS_VARIABLE])) if FACTS_VARIABLE in os.environ else STAND_IN


def on_device(function: Callable[..., Any], *arguments: Any) -> Any:
    """Calls it in a rank, which has the machine's GPUs or the stand-in's from here on."""
    if not is_real():
        from tests.gpu import standin

        standin.install(gpu_count())
    return function(*arguments)
