"""Work is done two at a time, in threads or processes, with the same result."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from hpcddp.analysis import analyze
from hpcddp.analysis.report import pipeline
from hpcddp.analysis.study import load
from hpcddp.analysis.util.parallel import map_in_parallel, run_jobs
from tests.analysis.synthetic import MS, point, write_runs, write_study


@pytest.mark.parametrize("processes", [True, False])
def test_results_are_in_the_order_of_what_was_given(processes: bool) -> None:
    """Of a function that could not be sent to a process."""
    offset = 7
    assert map_in_parallel(lambda number: number + offset, range(20), processes) == list(range(7, 27))


@pytest.mark.parametrize("processes", [True, False])
def test_an_error_is_that_of_the_work(processes: bool) -> None:
    """With its words."""
    with pytest.raises(ZeroDivisionError, match="by zero"):
        map_in_parallel(lambda number: 1 // number, [1, 0], processes)


def test_where_a_process_is_killed_the_work_is_done_here() -> None:
    """As by Slurm, for its memory."""
    here = os.getpid()
    assert map_in_parallel(lambda number: number if os.getpid() == here else os._exit(9), [1, 2, 3], True) == [1, 2, 3]


def test_there_are_processes() -> None:
    """Two at most, none of them this one."""
    others = set(map_in_parallel(lambda _: os.getpid(), range(10), True))
    assert len(others) <= 2
    assert os.getpid() not in others


@pytest.mark.parametrize("processes", [True, False])
def test_jobs_are_done_in_processes_or_here(processes: bool) -> None:
    """What they make is in their order; threads would change what they share, as matplotlib's settings."""
    jobs = [lambda place=place: (place, os.getpid(), threading.current_thread() is threading.main_thread()) for place in range(5)]
    places, owners, in_main = zip(*run_jobs(jobs, processes), strict=True)
    assert list(places) == list(range(5))
    assert (os.getpid() in owners) is not processes
    assert all(in_main)


def test_what_is_to_be_done_meanwhile_is_done_here() -> None:
    """While processes work; threads would share a lock with it."""
    done: list[int] = []
    map_in_parallel(str, range(3), True, lambda: done.append(os.getpid()))
    map_in_parallel(str, range(3), False, lambda: done.append(0))
    assert done == [os.getpid()]


@pytest.mark.dear
def test_a_report_is_the_same_whether_processes_make_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the last byte: they do where much is to be read."""
    points = [point(nodes, 2) for nodes in (1, 2)]
    study = write_study(tmp_path / "s", points)
    for each_point in points:
        write_runs(study, each_point, [8 * MS])
    forked: list[bool] = []

    def recording(jobs: Sequence[Callable[[], Any]], processes: bool) -> list[Any]:
        forked.append(processes)
        return run_jobs(jobs, processes)

    monkeypatch.setattr(pipeline, "run_jobs", recording)
    for much in (False, True):
        monkeypatch.setattr(load, "is_large", lambda files, size, much=much: much)
        analyze(study.folder, tmp_path / str(much))
    assert forked == [False, True]
    apart, here = (
        {file.relative_to(folder): file.read_bytes() for file in (folder / "s").rglob("*") if file.is_file()}
        for folder in (tmp_path / "True", tmp_path / "False")
    )
    assert apart == here
    assert Path("s/figures/scaling.pdf") in apart
