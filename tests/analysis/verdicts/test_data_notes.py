"""Digits that stand in for another data set are told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.verdicts.findings import find
from hpcddp.core.point import Data
from tests.analysis.synthetic import MS, point, write_runs, write_study


def notes_of(folder: Path, samples: int | None, **workload: Any) -> list[str]:
    """What is said of two runs' data; `samples`: of the training set, as the runs found it."""
    each = point(1, 1, **workload)
    study = write_study(folder / "s", [each], repeat=2)
    launch = {"data": {"name": each.workload.data.name, "samples": samples}}
    write_runs(study, each, [MS, MS], steps=20, launch=launch)
    return [note for note in find(load_study(study)).notes if "handwritten digits" in note]


@pytest.mark.parametrize(
    ("data", "samples", "meant"),
    [
        (Data(name="digits"), 1498, "CIFAR-10"),
        (Data(name="digits"), None, "CIFAR-10"),
        (Data(name="bigmnist", copies=3, variants=("plain", "rotated")), 6 * 1498, "MNIST"),
    ],
)
def test_a_stand_in_is_told(tmp_path: Path, data: Data, samples: int | None, meant: str) -> None:
    """With how many runs, and what they say nothing of."""
    (note,) = notes_of(tmp_path, samples, data=data)
    assert note.startswith(f"2 runs trained on scikit-learn's 1,797 handwritten digits in the shape of {meant}'s images")
    assert f"not on {meant}" in note


@pytest.mark.parametrize(
    ("data", "samples"),
    [(Data(name="bigmnist", copies=3, variants=("plain",)), 180_000), (Data(name="bigmnist"), None), (Data(name="mnist"), 1498)],
)
def test_data_that_are_what_they_are_called(tmp_path: Path, data: Data, samples: int | None) -> None:
    """Nothing is said of them."""
    assert notes_of(tmp_path, samples, data=data) == []


@pytest.mark.parametrize(
    ("files", "words"),
    [(["data_batch_1.bin"], "(data_batch_1.bin)"), (["a.bin", "b.bin", "c.bin"], "(a.bin and 2 more)"), ([], None), (None, None)],
)
def test_files_that_are_not_the_official_ones_are_named(tmp_path: Path, files: list[str] | None, words: str | None) -> None:
    """With how many runs read them; nothing is said of official ones, nor of files that nobody checked."""
    each = point(1, 1, data=Data(name="cifar10"))
    study = write_study(tmp_path / "s", [each], repeat=2)
    write_runs(study, each, [MS, MS], steps=20, launch={"data": {"name": "cifar10", "unofficial": files}})
    notes = [note for note in find(load_study(study)).notes if "publisher" in note]
    expected = f"2 runs trained on files of cifar10 that are not its publisher's, by size or checksum {words}: rates are"
    assert [note[: len(expected)] for note in notes] == ([expected] if words else [])
