"""A disk that runs full while a run records: a small tmpfs, really full."""

from __future__ import annotations

import csv
import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from hpcddp.core.jobspec import spec_to_dict
from hpcddp.core.records import STEP_COLUMNS, RowWriter, steps_file, write_json
from hpcddp.worker.main import run
from hpcddp.worker.training import preemption
from hpcddp.worker.training.checkpoint import newest_intact, to_resume
from hpcddp.worker.training.models import build_model
from tests.small_disk import fill, small_disk
from tests.worker import forked, given


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path) as disk:
        yield disk


def test_a_file_of_rows_ends_with_a_whole_row(small: Path) -> None:
    """What did not fit whole is taken back, and the error names the file."""
    file = small / "rows.csv"
    writer = RowWriter(file, STEP_COLUMNS)
    writer.row(range(len(STEP_COLUMNS)))
    fill(small)
    with pytest.raises(OSError, match=r"rows\.csv") as caught:
        write_many(writer)
    assert caught.value.errno == errno.ENOSPC
    text = file.read_text()
    assert text.endswith("\n")
    assert {len(line.split(",")) for line in text.splitlines()} == {len(STEP_COLUMNS)}


def write_many(writer: RowWriter) -> None:
    with writer:
        for _ in range(1000):
            writer.row([10**9] * len(STEP_COLUMNS))
            writer.flush()


def test_what_does_not_fit_leaves_nothing(small: Path) -> None:
    """Neither half a file nor what was written aside: an end.json is tried again, in the room that was kept for it."""
    fill(small)
    with pytest.raises(OSError, match="No space left"):
        write_json(small / "end.json", {"reason": "x" * 100})
    assert [file.name for file in small.iterdir()] == ["ballast"]


class Fills(nn.Module):
    """The MNIST CNN; rank 1 fills the disk once both ranks have recorded steps."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = build_model("mnist-cnn", classes=10, height=28, seed=1)
        self._disk = Path(os.environ["DISK"])

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if os.environ["SUBMITIT_LOCAL_GLOBALID"] == "1" and not (self._disk / "ballast").exists():
            recorded = list(self._disk.glob("*/r1/7.0/ranks/*.steps.csv"))
            if len(recorded) == 2 and all(file.stat().st_size for file in recorded):
                fill(self._disk)
        out: torch.Tensor = self.inner(images)
        return out


def fills(classes: int) -> nn.Module:
    return Fills()


@pytest.mark.dear
def test_a_run_on_a_full_disk_fails_with_a_sentence(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """end.json has room kept for it; the rows until then are whole and readable."""
    monkeypatch.setenv("DISK", str(small))
    spec = given.job(small, given.point(2, warmup=1, steps=100_000, model="tests.worker.test_disk_full:fills"))
    outcomes = forked.ranks(tmp_path / "output", 2, run, spec_to_dict(spec))
    assert [outcome.code for outcome in outcomes] == [1, 1]
    attempt = spec.attempt_dir("7", 0)
    end = json.loads((attempt / "end.json").read_text())
    assert (end["state"], end["fault"]["kind"]) == ("failed", "disk")
    assert "No space left on device" in end["reason"]
    assert "make room" in end["reason"]
    for rank in range(2):
        found = rows(attempt, rank)
        assert [row["step"] for row in found] == [str(step) for step in range(len(found))]
        assert found
        assert json.loads((attempt / "launch.json").read_text())["ranks"] == 2


def rows(attempt: Path, rank: int) -> list[dict[str, Any]]:
    text = steps_file(attempt, rank).read_text()
    assert text.endswith("\n")
    found = list(csv.DictReader(text.splitlines()))
    assert all(None not in row.values() for row in found)
    return found


class Little(nn.Module):
    """One layer; fills the disk once there is a checkpoint, if there is a disk to fill."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.layer = nn.Linear(784, classes)
        self._disk = os.environ.get("DISK")

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if self._disk and not Path(self._disk, "ballast").exists() and list(Path(self._disk).glob("*/r1/7.0/checkpoints/0*.pt")):
            fill(Path(self._disk))
        out: torch.Tensor = self.layer(images.flatten(1))
        return out


def run_with_checkpoints(spec: dict[str, Any], job: str) -> Any:
    os.environ["HPCDDP_JOB"] = job
    vars(preemption)["POLL_EVERY_S"] = 0.0
    return run(spec)


@pytest.mark.dear
def test_a_checkpoint_that_does_not_fit_leaves_the_one_before(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run fails with a sentence; when there is room again, the next attempt goes on from the checkpoint before."""
    monkeypatch.setenv("DISK", str(small))
    measure = {"resume": True, "checkpoint_every_min": 1e-4}
    spec = given.job(small, given.point(1, warmup=1, steps=400, model="tests.worker.test_disk_full:Little", measure=measure))
    (outcome,) = forked.ranks(tmp_path / "output7", 1, run_with_checkpoints, spec_to_dict(spec), "7")
    first = spec.attempt_dir("7", 0)
    end = json.loads((first / "end.json").read_text())
    assert (outcome.code, end["state"], end["fault"]["kind"]) == (1, "failed", "disk")
    assert "No space left on device" in end["reason"]
    intact, _, passed_over = newest_intact(to_resume([first]))
    assert intact
    assert not passed_over
    (small / "ballast").unlink()
    monkeypatch.delenv("DISK")
    (outcome,) = forked.ranks(tmp_path / "output8", 1, run_with_checkpoints, spec_to_dict(spec), "8")
    second = spec.attempt_dir("8", 0)
    assert outcome.code == 0, outcome.output
    assert json.loads((second / "launch.json").read_text())["resumed"]["checkpoint"] == f"7.0/checkpoints/{intact.name}"
    assert json.loads((second / "end.json").read_text())["state"] == "done"


def test_a_disk_that_is_full_from_the_start(small: Path, tmp_path: Path) -> None:
    """Nothing can be recorded: the log has the sentence, and the ranks end."""
    fill(small)
    spec = given.job(small, given.point(1))
    (outcome,) = forked.ranks(tmp_path / "output", 1, run, spec_to_dict(spec))
    assert outcome.code == 1
    assert "No space left on device" in outcome.output
