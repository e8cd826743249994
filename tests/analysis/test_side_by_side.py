"""Work is done two at a time, in threads or processes, with the same result."""

from __future__ import annotations

import os
import threading

import pytest

from hpcddp.analysis.side_by_side import all_of, each


@pytest.mark.parametrize("processes", [True, False])
def test_results_are_in_the_order_of_what_was_given(processes: bool) -> None:
    """Of a function that could not be sent to a process."""
    offset = 7
    assert each(lambda number: number + offset, range(20), processes) == list(range(7, 27))


@pytest.mark.parametrize("processes", [True, False])
def test_an_error_is_that_of_the_work(processes: bool) -> None:
    """With its words."""
    with pytest.raises(ZeroDivisionError, match="by zero"):
        each(lambda number: 1 // number, [1, 0], processes)


def test_where_a_process_is_killed_the_work_is_done_here() -> None:
    """As by Slurm, for its memory."""
    here = os.getpid()
    assert each(lambda number: number if os.getpid() == here else os._exit(9), [1, 2, 3], True) == [1, 2, 3]


def test_there_are_processes() -> None:
    """Two at most, none of them this one."""
    others = set(each(lambda _: os.getpid(), range(10), True))
    assert len(others) <= 2
    assert os.getpid() not in others


@pytest.mark.parametrize("processes", [True, False])
def test_jobs_are_done_in_processes_or_here(processes: bool) -> None:
    """What they make is in their order; threads would change what they share, as matplotlib's settings."""
    jobs = [lambda place=place: (place, os.getpid(), threading.current_thread() is threading.main_thread()) for place in range(5)]
    places, owners, in_main = zip(*all_of(jobs, processes), strict=True)
    assert list(places) == list(range(5))
    assert (os.getpid() in owners) is not processes
    assert all(in_main)


def test_what_is_to_be_done_meanwhile_is_done_here() -> None:
    """While processes work; threads would share a lock with it."""
    done: list[int] = []
    each(str, range(3), True, lambda: done.append(os.getpid()))
    each(str, range(3), False, lambda: done.append(0))
    assert done == [os.getpid()]
