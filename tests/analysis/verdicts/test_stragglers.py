"""What is said of ranks that hold the others up, without the communication hook: who, in which part, the cost, the advice."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.verdicts.context import Verdict
from hpcddp.analysis.verdicts.findings import Findings, find
from tests.analysis.synthetic import MS, Recorded, point, write_run, write_study
from tests.analysis.verdict_studies import write
from tests.analysis.verdicts.test_verdicts import BASE, IN_NODE

STILL = dataclasses.replace(BASE, layouts=IN_NODE, noise=0.0, run_effect=0.0, base_ms=96.0)


def found_in(folder: Path, **changes: Any) -> Findings:
    return find(load_study(write(dataclasses.replace(STILL, **changes), folder / "s")))


def only(found: Findings) -> Verdict:
    (verdict,) = found.verdicts
    return verdict


def test_a_slow_rank_is_told_by_its_own_time(tmp_path: Path) -> None:
    """100 ms a step, 10 more on rank 2: a tenth of them. The sentence knows it as well."""
    found = found_in(tmp_path, more=lambda each, rank, step: 0.1 * (rank == 2))
    verdict = only(found)
    assert verdict.where == "on rank 2 on r002"
    assert verdict.evidence.startswith("it needs 10.0 ms a step more than the median rank of r1 of")
    assert "most of it backward, and the others wait for it (9 % of the step, which would be up to 10 %" in verdict.evidence
    assert verdict.advice.startswith("compare that rank's GPU and cores")
    assert "held back most by waiting for one slow rank or node" in found.sentences[0]


def test_a_rank_whose_loader_is_slow_is_no_matter_of_its_gpu(tmp_path: Path) -> None:
    """It holds up three others for 96 ms of 196: without, twice as fast. It is not input-bound: the others hardly wait."""
    found = found_in(tmp_path, more=lambda each, rank, step: 0.96 * (rank == 3), more_in="data_wait")
    verdict = only(found)
    assert verdict.name == "straggler"
    assert "most of it waiting for its batch" in verdict.evidence
    assert "up to 96 % faster without" in verdict.evidence
    assert verdict.advice.startswith("its batches are late: compare how r003 reads the data")
    assert "measure.input=io" in verdict.advice


@pytest.mark.parametrize("backend", ["slurm", "hosts"])
def test_a_slow_node_is_left_out_in_the_words_of_its_backend(tmp_path: Path, backend: str) -> None:
    """Slurm has an option for that; without Slurm it would be advice for nobody."""
    two = point(2, 1)
    study = write_study(tmp_path / "s", [two])
    slow = {1: {"forward": 0.25, "backward": 0.55, "comm_exposed": 0.05}}
    shares = {"forward": 0.25, "backward": 0.45, "comm_exposed": 0.15}
    write_run(study, two, Recorded(step_ns=100 * MS, steps=40, shares=shares, shares_of_rank=slow, launch={"backend": backend}))
    verdict = next(each for each in find(load_study(study)).verdicts if each.name == "straggler")
    assert verdict.where == "on rank 1 on r001"
    assert ("--set slurm.exclude=r001" in verdict.advice) == (backend == "slurm")
    assert "leave r001 out" in verdict.advice or backend == "slurm"


def test_input_bound_tells_what_all_wait_for(tmp_path: Path) -> None:
    """Each rank's batch is late by 200 ms in one step of four, another one's each time: a quarter of that is the mean wait, but
    every step is as long as its longest."""
    more = lambda each, rank, step: 2.0 * (step % 4 == rank)  # noqa: E731
    verdict = only(found_in(tmp_path, more=more, more_in="data_wait", base_ms=96.0))
    assert verdict.name == "input-bound"
    assert verdict.numbers["faster_by"] == pytest.approx(2.0, rel=0.05)


def test_ranks_in_turn_are_no_matter_of_the_link(tmp_path: Path) -> None:
    """A third of the step is waiting; without the hook that was communication."""
    found = found_in(tmp_path, more=lambda each, rank, step: 0.8 * (step % 4 == rank))
    verdict = only(found)
    assert (verdict.name, verdict.where) == ("uneven ranks", "at 1x4")
    assert verdict.evidence.startswith("33 % of the step a rank waits for the slowest one of that step")
    assert "measure.gc=frozen" in verdict.advice
    assert "held back most by ranks that wait for each other in turn" in found.sentences[0]


def test_one_bad_run_of_three_is_no_straggler(tmp_path: Path) -> None:
    """The same rank on the same host is as fast as the others in the other two."""
    four = point(1, 4)
    study = write_study(tmp_path / "s", [four], repeat=3)
    slow = {1: {"forward": 0.25, "backward": 0.55, "comm_exposed": 0.05}}
    shares = {"forward": 0.25, "backward": 0.45, "comm_exposed": 0.15}
    for run in (1, 2, 3):
        write_run(study, four, Recorded(step_ns=100 * MS, steps=40, shares=shares, shares_of_rank=slow if run == 2 else {}), run)
    assert "straggler" not in [each.name for each in find(load_study(study)).verdicts]
