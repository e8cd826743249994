"""Does the same work for several items, two at a time: in threads, or where it pays in processes, which share no lock."""

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

Item = TypeVar("Item")
Result = TypeVar("Result")

AT_A_TIME = 2
FORKS = sys.platform == "linux"
"""Elsewhere a process begins with seconds of imports, or a fork is not safe."""

FORK = multiprocessing.get_context("fork" if FORKS else None)


def do_nothing() -> None:
    """The default of `meanwhile`."""


def map_in_parallel(
    work: Callable[[Item], Result], items: Sequence[Item], processes: bool, meanwhile: Callable[[], None] = do_nothing
) -> list[Result]:
    """Returns the results in the order of the items; in processes, results must be picklable, while the work need not be.

    While the processes work, this one calls `meanwhile`. If one of them is killed, say for its memory, this process does all the
    work, one item after another.
    """
    if not (processes and FORKS):
        with ThreadPoolExecutor(AT_A_TIME) as threads:
            return list(threads.map(work, items))
    with contextlib.suppress(BrokenProcessPool), ProcessPoolExecutor(AT_A_TIME, FORK, _begin, (work,)) as forks:
        results = forks.map(_do, items)
        meanwhile()
        return list(results)
    return [work(item) for item in items]


def run_jobs(jobs: Sequence[Callable[[], Result]], processes: bool) -> list[Result]:
    """Returns what the jobs return, in their order: in processes, or one after another, never in threads."""
    if processes and FORKS:
        return map_in_parallel(lambda i: jobs[i](), range(len(jobs)), processes)
    return [job() for job in jobs]


_works: list[Callable[[Any], Any]] = []
"""The work of a process of the pool, inherited by fork: a nested function cannot be pickled."""


def _begin(work: Callable[[Any], Any]) -> None:
    gc.freeze()  # what exists already is no garbage; searching it takes a tenth of the time
    retain_freed_memory()  # page faults were a fourteenth of it
    _works.append(work)


def _do(item: Any) -> Any:
    return _works[-1](item)
