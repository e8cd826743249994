"""The job of `hpcddp data ... --cluster`, called as the job calls it."""

from __future__ import annotations

import errno
import json
import os
import sys
from pathlib import Path

import pytest

from hpcddp.core.data_job import DataTask
from hpcddp.core.errors import HpcddpError
from hpcddp.core.jobspec import JobSpec, spec_to_dict
from hpcddp.core.point import Data, Point, Workload
from hpcddp.core.schema import encode
from hpcddp.worker import data_job


def _spec(tmp_path: Path, root: str) -> dict[str, object]:
    task = DataTask(action="prepare", data="digits", options={"root": root}, folders=("root",))
    point = Point(cluster="local", workload=Workload(model="prepare", data=Data(name="digits")), device="cpu")
    return spec_to_dict(JobSpec(point=point, study=str(tmp_path / "study"), backend="local", data_task=encode(task)))


@pytest.fixture(autouse=True)
def _job(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("SUBMITIT_LOCAL_GLOBALID", "SUBMITIT_LOCAL_LOCALID", "SUBMITIT_LOCAL_NTASKS", "SUBMITIT_LOCAL_JOB_NUM_NODES")
    for name, value in zip(names, "0011", strict=True):
        monkeypatch.setenv(name, value)
    for name, value in {"HPCDDP_JOB": "L0001", "MASTER_ADDR": "here", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)


@pytest.mark.dear
def test_folders_are_filled_in_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACE", str(tmp_path))
    end = data_job.run_data_job(_spec(tmp_path, "$PLACE/digits"))
    folder = tmp_path / "study/.jobs/L0001.data"
    assert (tmp_path / "digits/digits-train.bin").is_file()
    assert json.loads((folder / "end.json").read_text()) == end
    assert (end["ok"], json.loads((folder / "job.json").read_text())["task"]["options"]) == (True, {"root": "$PLACE/digits"})


def test_an_attempt_that_fails_leaves_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(HpcddpError, match=r"\$PLACE is not set in the job"):
        data_job.run_data_job(_spec(tmp_path, "$PLACE/digits"))
    end = json.loads((tmp_path / "study/.jobs/L0001.data/end.json").read_text())
    assert (end["ok"], "set it in the profile's environment" in end["text"]) == (False, True)
    monkeypatch.setenv("PLACE", str(tmp_path))
    assert data_job.run_data_job(_spec(tmp_path, "$PLACE/digits"))["ok"] is True


def test_an_environment_without_a_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hpcddp.data.writing.prepare", None)
    with pytest.raises(HpcddpError, match="The job's Python has no module"):
        data_job.run_data_job(_spec(tmp_path, str(tmp_path / "digits")))
    assert json.loads((tmp_path / "study/.jobs/L0001.data/end.json").read_text())["ok"] is False


def test_a_file_system_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stale(*_: object) -> str:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), "/scratch/digits")

    monkeypatch.setattr(data_job, "run_task", stale)
    with pytest.raises(HpcddpError, match=r"^/scratch/digits: Stale file handle$"):
        data_job.run_data_job(_spec(tmp_path, str(tmp_path / "digits")))
    end = json.loads((tmp_path / "study/.jobs/L0001.data/end.json").read_text())
    assert (end["ok"], end["text"]) == (False, "/scratch/digits: Stale file handle")


def test_progress_is_written_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, folder = 100.0, tmp_path / "x"
    monkeypatch.setattr("hpcddp.worker.data_job.time.monotonic", lambda: now_s)
    progress = data_job.ProgressFile(folder)
    progress(0, 1000)
    now_s += 1
    progress(300, 1000)
    assert json.loads((folder / "progress.json").read_text())["done"] == 0
    now_s += 3
    progress(800, 1000)
    found = json.loads((folder / "progress.json").read_text())
    assert (found["done"], found["total"], found["per_s"]) == (800, 1000, 200.0)
    progress(1000, 1000)
    assert json.loads((folder / "progress.json").read_text())["done"] == 1000
