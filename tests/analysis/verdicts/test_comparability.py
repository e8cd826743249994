"""Baselines that are noisy, suspect or missing, and runs that met other hardware."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.verdicts.context import Verdict
from hpcddp.analysis.verdicts.findings import find
from hpcddp.core.point import OwnScript
from hpcddp.core.run_root import Study
from tests.analysis.synthetic import FAILED, MS, Recorded, point, write_run, write_runs, write_study
from tests.analysis.verdict_studies import measured

ONE, TWO, FOUR = point(1, 1), point(2, 1), point(4, 1)


def named(study: Study, name: str) -> list[Verdict]:
    return [verdict for verdict in find(load_study(study)).verdicts if verdict.name == name]


@pytest.mark.parametrize(
    ("layouts", "places"), [([(1, 1), (1, 2), (2, 2)], ["at 1x1", "at 1x2"]), ([(1, 1), (2, 1)], ["at 1x1"])]
)
def test_each_noisy_baseline_is_told(tmp_path: Path, layouts: list[tuple[int, int]], places: list[str]) -> None:
    """One GPU and the full node both differ by a fifth; a full node of one GPU is told once."""
    study = measured(tmp_path / "s", {point(*each): [90, 100, 110] for each in layouts}, steps=20)
    assert [verdict.where for verdict in named(study, "noisy baseline")] == places


@pytest.mark.parametrize("repeat", [1, 2])
def test_a_rejected_baseline_is_not_said_to_be_run_again(tmp_path: Path, repeat: int) -> None:
    """`hpcddp submit` alone runs nothing again that is done: what rejected it is named, and its folder."""
    study = write_study(tmp_path / "s", [ONE, TWO, FOUR], repeat)
    for each in (ONE, TWO, FOUR):
        write_runs(study, each, [100 * MS] * repeat, **({"gates": FAILED} if each is ONE else {}))
    (missing,) = named(study, "baseline missing")
    more = " (and 1 more run)" if repeat == 2 else ""
    assert missing.evidence.endswith(f"Run r1 of {ONE.label} was rejected{more}: check `equal steps`: rank 1 made 4 of 6 steps.")
    assert missing.advice.startswith("Fix the cause of the rejection. Then delete those runs' folders")
    assert missing.runs == tuple(f"r{run} of {ONE.label}" for run in range(1, repeat + 1))


def test_a_baseline_that_serves_as_none_is_run_again_or_was_never_run(tmp_path: Path) -> None:
    """To submit again would run nothing of one that met another GPU, and runs one that did not run."""
    study = write_study(tmp_path / "s", [ONE, TWO, FOUR])
    for each in (TWO, FOUR):
        write_run(study, each, Recorded(step_ns=100 * MS, gpu="V100"))
    (missing,) = named(study, "baseline missing")
    assert missing.advice.startswith("Run `hpcddp submit SWEEP.yaml` again.")
    write_run(study, ONE, Recorded(step_ns=100 * MS, gpu="A40"))
    (missing,) = named(study, "baseline missing")
    assert missing.evidence.endswith(f"r1 of {ONE.label} had another GPU or environment than the other points.")
    assert "delete those runs' folders" in missing.advice


@pytest.mark.dear
def test_gpus_that_come_with_other_software_are_told(tmp_path: Path) -> None:
    """A series of each, named by its GPU: what is faster is not said to be so by its version of torch."""
    study = write_study(tmp_path / "s", [ONE, TWO], repeat=2)
    for each in (ONE, TWO):
        for run, (gpu, torch) in enumerate((("V100", "2.3.0"), ("A100", "2.7.1")), start=1):
            write_run(study, each, Recorded(step_ns=100 * MS, gpu=gpu, env_id=torch, launch={"versions": {"torch": torch}}), run)
    (mixed,) = named(study, "mixed hardware")
    assert mixed.evidence.startswith("Runs of one workload had several GPU types (A100: 1x1 and 2x1; V100: 1x1 and 2x1).")
    assert [re.findall(r"\((GPU \w+)\)", text) for text in find(load_study(study)).sentences] == [["GPU V100"], ["GPU A100"]]


def above_perfect(folder: Path, base_ms: list[int], wide_ms: list[int]) -> list[Verdict]:
    """What is said of two GPUs and one, by the steps of their runs."""
    return named(measured(folder, {point(1, 1): base_ms, point(1, 2): wide_ms}, steps=20), "suspect baseline")


def test_a_point_above_perfect_scaling_makes_its_baseline_suspect(tmp_path: Path) -> None:
    (found,) = above_perfect(tmp_path / "s", [110], [100])
    assert (found.where, found.evidence) == ("at 1x1", "1x2 has 110 % efficiency against 1x1, which is superlinear (run r1).")
    assert found.advice.startswith("Check it for other jobs, low clocks")
    (sentence,) = find(load_study(Study(tmp_path / "s"))).sentences
    assert "a baseline that is slower than larger points" in sentence


@pytest.mark.parametrize(
    ("base_ms", "wide_ms"),
    [([104], [100]), ([100], [100]), ([98, 110, 112], [97, 100, 101])],
    ids=["by little", "perfect", "within the runs' range"],
)
def test_noise_is_not_above_perfect(tmp_path: Path, base_ms: list[int], wide_ms: list[int]) -> None:
    assert above_perfect(tmp_path / "s", base_ms, wide_ms) == []


def test_a_baseline_is_started_where_there_is_no_sweep(tmp_path: Path) -> None:
    points = [dataclasses.replace(point(1, gpus), script=OwnScript(name="train.py")) for gpus in (2, 4)]
    (missing,) = named(measured(tmp_path / "s", dict.fromkeys(points, (100,))), "baseline missing")
    assert missing.evidence.endswith("against one GPU are unknown. The study has no such run.")
    assert missing.advice.startswith("Start the script on one node with `torchrun --nproc-per-node 1`")
