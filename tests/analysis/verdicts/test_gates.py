"""What gates say against runs, and pictures that could not be decoded."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.verdicts.findings import Findings, find
from hpcddp.core.attempt_records import DamagedFiles, replaced_words
from hpcddp.core.schema import encode
from tests.analysis.synthetic import PASSED, point
from tests.analysis.verdict_studies import measured

NAME = "n01440764/n01440764_18.JPEG (it is no picture)"


def found(folder: Path, **pictures: int) -> Findings:
    """Of two runs that each came upon so many of 10,000 pictures."""
    damaged = {split: DamagedFiles(pictures=many, read=10_000, first=(NAME,)) for split, many in pictures.items()}
    return find(load_study(measured(folder / "s", {point(1, 1): [1, 1]}, steps=20, end={"damaged": encode(damaged)})))


def test_few_damaged_pictures_are_a_note(tmp_path: Path) -> None:
    findings = found(tmp_path, train=9)
    (note,) = [each for each in findings.notes if "damaged" in each]
    assert note.startswith("9 of 10,000 train images that r2 of n01-g1-")
    assert f"are damaged (0.09 %, the first {NAME}). The next image of the batch replaced each. 1 more run" in note
    assert not findings.verdicts


def test_one_in_a_thousand_is_a_verdict(tmp_path: Path) -> None:
    """The worst split of the worst run stands for all; nothing of it stays a note."""
    findings = found(tmp_path, train=12, eval=40)
    (verdict,) = findings.verdicts
    assert (verdict.name, verdict.where, len(verdict.runs)) == ("damaged data", "in 2 runs", 2)
    assert verdict.evidence.startswith("40 of 10,000 eval images that r2 of ")
    assert "are damaged (0.4 %" in verdict.evidence
    assert not [each for each in findings.notes if "damaged" in each]


def test_status_says_how_many_were_replaced() -> None:
    damaged = {"train": DamagedFiles(pictures=3, read=900), "eval": DamagedFiles(pictures=1, read=50)}
    assert replaced_words(damaged) == "1 damaged eval picture, 3 damaged train pictures replaced"
    assert replaced_words({}) is None


@pytest.mark.parametrize("backend", ["slurm", "local"])
def test_a_hot_gpu_is_kept_off_where_slurm_places_jobs(tmp_path: Path, backend: str) -> None:
    hot = [*PASSED, {"name": "GPU clocks held", "passed": False, "evidence": "GPU 1 of r000 fell"}]
    study = measured(tmp_path / "s", {point(1, 1): [100]}, steps=20, gates=hot, launch={"backend": backend})
    (verdict,) = [each for each in find(load_study(study)).verdicts if each.name == "clock throttling"]
    assert ("slurm.exclude" in verdict.advice) == (backend == "slurm")
