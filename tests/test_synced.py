"""What must outlive a machine that goes down is synced before anybody relies on it. Other tests run with fsync switched off."""

from __future__ import annotations

import os
import posix
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from hpcddp.backends.base import Submission
from hpcddp.core.attempt_records import AttemptEnd
from hpcddp.core.records import append_line, write_json
from hpcddp.core.run_root import Study
from hpcddp.submit.submit import submit_runs
from hpcddp.worker.finish import reserve, write_end
from hpcddp.worker.training.checkpoint import write_checkpoint
from tests.fake_slurm import FakeBackend
from tests.given_plan import study_of, submission_plan


class DiskEvent(NamedTuple):
    """A file that was synced, with the bytes it had by then; or one that got its name."""

    what: str
    name: str
    size_bytes: int


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> list[DiskEvent]:
    """What happens, in its order: fsync does its work, and renames do theirs."""
    events: list[DiskEvent] = []
    rename = Path.replace

    def fsync(handle: int) -> None:
        posix.fsync(handle)
        events.append(DiskEvent("synced", Path(os.readlink(f"/proc/self/fd/{handle}")).name, os.fstat(handle).st_size))

    def replace(file: Path, target: Path) -> Path:
        events.append(DiskEvent("named", target.name, file.stat().st_size))
        return rename(file, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)
    return events


def aside(name: str) -> str:
    """What a file is called until it is complete."""
    return f".{name}.{os.getpid()}"


def is_synced_before_it_is_named(file: Path, events: list[DiskEvent]) -> bool:
    """All bytes of it, under the name it has until then."""
    size = file.stat().st_size
    return events == [DiskEvent("synced", aside(file.name), size), DiskEvent("named", file.name, size)]


def test_the_end_of_an_attempt_is_synced_before_it_is_there(tmp_path: Path, disk: list[DiskEvent]) -> None:
    """Whoever finds end.json takes the run for over."""
    write_end(tmp_path, AttemptEnd(state="done"))
    assert is_synced_before_it_is_named(tmp_path / "end.json", disk)


def test_room_for_the_end_of_a_failure_is_on_the_disk(tmp_path: Path, disk: list[DiskEvent]) -> None:
    """A file system may find only then that there is none."""
    reserve(tmp_path)
    assert [(event.what, event.name) for event in disk] == [("synced", ".end.reserve")]
    assert disk[0].size_bytes > 10_000


def test_a_checkpoint_is_synced_before_it_is_there(tmp_path: Path, disk: list[DiskEvent]) -> None:
    """The one before it is removed then."""
    file = write_checkpoint(tmp_path, 12, {"steps": 12, "module": {"weight": torch.zeros(1000)}, "random": []})
    assert is_synced_before_it_is_named(file, disk)


def test_intents_are_synced_before_a_backend_is_called(tmp_path: Path, disk: list[DiskEvent]) -> None:
    """A job whose answer is lost is looked up by its intent; the answer itself may be lost."""
    study, backend = study_of(tmp_path), FakeBackend()
    backend.on_submit = lambda request: _is_noted(study, request, disk)
    submit_runs(study, submission_plan(tmp_path), backend, lambda run: None)
    assert backend.queued
    of_log = [event for event in disk if event.name == study.submissions_file.name]
    assert len(of_log) == 1
    assert of_log[0].size_bytes < study.submissions_file.stat().st_size


def _is_noted(study: Study, request: Submission, disk: list[DiskEvent]) -> None:
    synced = max(event.size_bytes for event in disk if event.name == study.submissions_file.name)
    assert request.token in study.submissions_file.read_bytes()[:synced].decode()


def test_what_can_be_made_again_is_not_synced(tmp_path: Path, disk: list[DiskEvent]) -> None:
    """A shared file system may take 50 ms for each."""
    write_json(tmp_path / "a.json", {}, sync=False)
    append_line(tmp_path / "b.jsonl", {}, sync=False)
    assert [event.what for event in disk] == ["named"]
