"""The same work for one thing after another, two at a time: in threads, or where it pays in processes, which share no lock."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from hpcddp.core.malloc import retain_freed_memory

Given = TypeVar("Given")
Made = TypeVar("Made")

AT_A_TIME = 2
FORKS = sys.platform == "linux"
"""Elsewhere a process begins with seconds of imports, or a fork is not safe."""


def nothing() -> None:
    """To be done meanwhile."""


def each(
    work: Callable[[Given], Made], of: Sequence[Given], processes: bool, meanwhile: Callable[[], None] = nothing
) -> list[Made]:
    """What the work makes of each, in their order; in processes it must be something that can be pickled.

    While processes are at it, this one does what is to be done meanwhile. Where one of them is killed, say for its memory, all is
    done here, one at a time.
    """
    if not (processes and FORKS):
        with ThreadPoolExecutor(AT_A_TIME) as threads:
            return list(threads.map(work, of))
    with contextlib.suppress(BrokenProcessPool), _forks(work) as forks:
        made = forks.map(_do, of)
        meanwhile()
        return list(made)
    return [work(given) for given in of]


def all_of(jobs: Sequence[Callable[[], Made]], processes: bool) -> list[Made]:
    """What each of the jobs makes, as above, but never in threads: without processes one at a time."""
    if processes and FORKS:
        return each(lambda i: jobs[i](), range(len(jobs)), processes)
    return [job() for job in jobs]


def _forks(work: Callable[[Any], Any]) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(AT_A_TIME, multiprocessing.get_context("fork"), _begin, (work,))


_works: list[Callable[[Any], Any]] = []
"""In a process of the pool: its work, which as a function within another could not be sent to it."""


def _begin(work: Callable[[Any], Any]) -> None:
    gc.freeze()  # what is there already is no garbage: to look for some in it takes a tenth of the time
    retain_freed_memory()  # page faults were a fourteenth of it
    _works.append(work)


def _do(given: Any) -> Any:
    return _works[-1](given)
