"""What a study says does not depend on which file was written first, which rank was slow, or which run came first."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.verdicts.findings import Findings, find
from tests.analysis.synthetic import Recorded, point, write_run, write_study

POINTS = [point(1, 1), point(1, 2), point(2, 2), point(4, 2)]
RUNS = 6
STEPS = 5

TIMES = st.lists(st.integers(10**6, 10**8), min_size=RUNS * STEPS, max_size=RUNS * STEPS)


def recorded(times: Sequence[int], order: Sequence[int]) -> Recorded:
    """Steps that last so long; of the ranks one is slowest, the others each a bit faster, in that order."""
    return Recorded(step_ns=lambda rank, step: times[step - 1] + 1000 * order[rank], steps=STEPS)


def findings(times: list[int], shuffle: Random) -> Findings:
    """The study with its files written, its runs numbered and its ranks' times dealt out in an order of `shuffle`."""
    with tempfile.TemporaryDirectory() as folder:
        study = write_study(Path(folder) / "s", shuffle.sample(POINTS, len(POINTS)), repeat=RUNS)
        for each in shuffle.sample(POINTS, len(POINTS)):
            for run, number in enumerate(shuffle.sample(range(1, RUNS + 1), RUNS)):
                write_run(study, each, recorded(times[run * STEPS :], shuffle.sample(range(each.ranks), each.ranks)), number)
        return find(load_study(study))


@pytest.mark.dear
@settings(max_examples=5, deadline=None)
@given(times=TIMES, shuffle=st.randoms(use_true_random=False))
def test_files_ranks_and_runs_may_come_in_any_order(times: list[int], shuffle: Random) -> None:
    """Points, intervals, parts of the step, laws and what they imply are the same to the last bit."""
    first, second = findings(times, Random(0)), findings(times, shuffle)
    assert second.scaling.equals(first.scaling)
    assert second.laws.equals(first.laws)
    assert second.implied == first.implied
    assert sorted(second.outliers["percent"]) == sorted(first.outliers["percent"])
