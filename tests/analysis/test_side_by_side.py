"""Work is done two at a time, in threads or processes, with the same result."""

from __future__ import annotations

import os

import pytest

from hpcddp.analysis.records.side_by_side import each


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
