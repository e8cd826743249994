"""The same work for one thing after another, two at a time: in threads, or where it pays in processes, which share no lock."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

Given = TypeVar("Given")
Made = TypeVar("Made")

AT_A_TIME = 2


def each(work: Callable[[Given], Made], of: Sequence[Given], processes: bool) -> list[Made]:
    """What the work makes of each, in their order; in processes it must be something that can be pickled.

    Where one of the processes is killed, say for its memory, all is done here, one at a time.
    """
    if not processes or sys.platform != "linux":  # elsewhere a process begins with seconds of imports, or a fork is not safe
        with ThreadPoolExecutor(AT_A_TIME) as threads:
            return list(threads.map(work, of))
    try:
        with ProcessPoolExecutor(AT_A_TIME, multiprocessing.get_context("fork"), _works.append, (work,)) as forks:
            return list(forks.map(_do, of))
    except BrokenProcessPool:
        return [work(given) for given in of]


_works: list[Callable[[Any], Any]] = []
"""In a process of the pool: its work, which as a function within another could not be sent to it."""


def _do(given: Any) -> Any:
    return _works[-1](given)
