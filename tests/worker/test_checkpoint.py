"""Checkpoints as files: whole or not there, two kept, nothing foreign unpickled; and a small disk that is really full."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from hpcddp.core.errors import HpcddpError
from hpcddp.core.records import STEP_COLUMNS, RowWriter, steps_file, write_json
from hpcddp.worker.training import preemption
from hpcddp.worker.training.checkpoint import (
    newest_intact,
    prune,
    prune_shards,
    restore_shard,
    to_resume,
    unpack,
    write_checkpoint,
)
from tests.machine import fill, small_disk
from tests.worker import forked, given
from tests.worker.forked import ran

LITTLE = "tests.worker.test_checkpoint:Little"


def state(value: int, size: int = 4) -> dict[str, object]:
    return {"steps": value, "module": {"weight": torch.full((size,), float(value))}, "random": [{"python": [3, [1, 2], None]}]}


def names(attempt: Path) -> list[str]:
    return sorted(file.name.split(".")[0] for file in (attempt / "checkpoints").iterdir())


def test_what_was_written_comes_back(tmp_path: Path) -> None:
    file = write_checkpoint(tmp_path / "7.0", 12, state(12))
    found, data, passed_over = newest_intact([file])
    assert (found, passed_over) == (file, [])
    assert file.name == f"00000012.{hashlib.sha256(data).hexdigest()[:16]}.pt"
    back = unpack(data)
    assert torch.equal(back.pop("module")["weight"], torch.full((4,), 12.0))
    assert back == {"steps": 12, "random": [{"python": [3, [1, 2], None]}]}


def test_two_are_kept_over_all_attempts(tmp_path: Path) -> None:
    old, new = tmp_path / "7.0", tmp_path / "7.1"
    for attempt, steps in ((old, 10), (old, 20), (new, 15)):
        write_checkpoint(attempt, steps, state(steps))
    prune([old, new])
    assert (names(old), names(new)) == (["00000020"], ["00000015"])
    write_checkpoint(new, 25, state(25))
    prune([old, new])
    assert (names(old), names(new)) == ([], ["00000015", "00000025"])


def test_a_damaged_one_is_none_of_the_two(tmp_path: Path) -> None:
    """Else the last whole one would go, and if the next were damaged too, the run would begin anew."""
    old, new = tmp_path / "7.0", tmp_path / "7.1"
    _, damaged = (write_checkpoint(old, steps, state(steps)) for steps in (10, 20))
    write_checkpoint(new, 15, state(15))
    prune([old, new], [damaged])
    assert (names(old), names(new)) == (["00000010"], ["00000015"])


def test_the_newest_attempts_come_first(tmp_path: Path) -> None:
    """Up to the last one that was done: a run that is run again begins anew. A damaged end.json is no end."""
    attempts = [tmp_path / name for name in ("7.0", "8.0", "8.1", "9.0")]
    files = [write_checkpoint(attempt, steps, state(steps)) for attempt, steps in zip(attempts, (30, 10, 20, 5), strict=True)]
    assert to_resume(attempts) == files[::-1]
    (attempts[1] / "end.json").write_text(json.dumps({"state": "done"}))
    (attempts[2] / "end.json").write_text(json.dumps({"state": "interrupted"}))
    (attempts[3] / "end.json").write_text('{"state": "do')
    assert to_resume(attempts) == [files[3], files[2]]
    assert to_resume([*attempts, tmp_path / "10.0"]) == [files[3], files[2]]


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty"])
def test_a_damaged_one_is_passed_over(tmp_path: Path, damage: str) -> None:
    before, newest = (write_checkpoint(tmp_path / "7.0", steps, state(steps)) for steps in (10, 20))
    data = newest.read_bytes()
    newest.write_bytes({"cut": data[:-1], "flipped": data[:99] + bytes([data[99] ^ 1]) + data[100:], "empty": b""}[damage])
    found, data, passed_over = newest_intact([newest, before])
    assert (found, unpack(data)["steps"]) == (before, 10)
    assert len(passed_over) == 1
    assert passed_over[0].startswith(f"7.0/checkpoints/{newest.name} is damaged: its ")
    assert newest_intact([newest])[:2] == (None, b"")


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("pwned",)


def test_nothing_foreign_is_unpickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    buffer = io.BytesIO()
    torch.save({"steps": 1, "module": Evil()}, buffer)
    data = buffer.getvalue()
    file = tmp_path / f"00000001.{hashlib.sha256(data).hexdigest()[:16]}.pt"
    file.write_bytes(data)
    found, _, passed_over = newest_intact([file])
    assert found is None
    assert "is not a checkpoint: Weights only load failed" in passed_over[0]
    assert not (tmp_path / "pwned").exists()


@contextmanager
def files_no_longer_than(most_bytes: int) -> Iterator[None]:
    """For this process; a write beyond fails, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_checkpoint_that_does_not_fit(tmp_path: Path) -> None:
    before = write_checkpoint(tmp_path / "7.0", 10, state(10))
    with files_no_longer_than(100_000), pytest.raises(HpcddpError) as refused:
        write_checkpoint(tmp_path / "7.0", 20, state(20, size=100_000))
    assert "The checkpoint after 20 steps could not be written to " in str(refused.value)
    assert "(File too large, 40" in str(refused.value)
    assert "The previous one is intact" in str(refused.value)
    assert list((tmp_path / "7.0" / "checkpoints").iterdir()) == [before]
    assert newest_intact([before])[0] == before


def test_a_damaged_shard_is_named(tmp_path: Path) -> None:
    name = "7.0/checkpoints/00000120.shards/00001.0123456789abcdef.pt"
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).write_bytes(b"torn")
    nobody: Any = None
    with pytest.raises(
        HpcddpError,
        match=r"00001.\w+.pt, part of the checkpoint.*Delete .*/7.0/checkpoints/00000120.\*.pt",
    ):
        restore_shard(nobody, tmp_path, ["7.0/checkpoints/00000120.shards/00000.0.pt", name], 3)


def test_shards_go_with_their_checkpoint(tmp_path: Path) -> None:
    folder = tmp_path / "7.0" / "checkpoints"
    for steps in (10, 20):
        (folder / f"{steps:08d}.shards").mkdir(parents=True)
    (folder / "00000020.0123456789abcdef.pt").touch()
    prune_shards([tmp_path / "7.0"])
    assert sorted(file.name for file in folder.iterdir()) == ["00000020.0123456789abcdef.pt", "00000020.shards"]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path) as disk:
        yield disk


def test_a_file_of_rows_ends_with_a_whole_row(small: Path) -> None:
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
    fill(small)
    with pytest.raises(OSError, match="No space left"):
        write_json(small / "end.json", {"reason": "x" * 100})
    assert [file.name for file in small.iterdir()] == ["ballast"]


class Little(nn.Module):
    """One layer; the last rank fills the disk when as many files match, if there is a disk to fill."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.layer = nn.Linear(784, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        disk, world = Path(os.environ.get("DISK", "/nowhere")), int(os.environ["SUBMITIT_LOCAL_NTASKS"])
        if forked.this_rank() == world - 1 and not (disk / "ballast").exists():
            there = [file for file in disk.glob(f"*/r1/7.0/{os.environ['MATCHING']}") if file.stat().st_size]
            if len(there) == world:
                fill(disk)
        out: torch.Tensor = self.layer(images.flatten(1))
        return out


def poll_each_step(_: int) -> None:
    vars(preemption)["POLL_EVERY_S"] = 0.0


@pytest.mark.dear
def test_a_run_on_a_full_disk_fails_with_a_sentence(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISK", str(small))
    monkeypatch.setenv("MATCHING", "ranks/*.steps.csv")
    found = ran(small, given.point(2, warmup=1, steps=100_000, model=LITTLE), may_fail=True, output=tmp_path / "output")
    assert (found.codes, found.end["state"], found.end["fault"]["kind"]) == ([1, 1], "failed", "disk")
    assert re.search("No space left on device.*Free space", found.end["reason"])
    for rank in range(2):
        rows = found.rows(rank)
        assert steps_file(found.attempt, rank).read_text().endswith("\n")
        assert all(None not in row.values() for row in rows)
        assert [row["step"] for row in rows] == [str(step) for step in range(len(rows))] != []
    assert found.read("launch.json")["ranks"] == 2


@pytest.mark.dear
def test_a_checkpoint_that_does_not_fit_leaves_the_one_before(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MATCHING", "checkpoints/0*.pt")
    what = given.point(1, warmup=1, steps=400, model=LITTLE, measure={"resume": True, "checkpoint_every_min": 1e-4})
    with monkeypatch.context() as patch:
        patch.setenv("DISK", str(small))
        first = ran(small, what, poll_each_step, may_fail=True, output=tmp_path / "output7")
    assert (first.codes, first.end["state"], first.end["fault"]["kind"]) == ([1], "failed", "disk")
    assert "No space left on device" in first.end["reason"]
    intact, _, passed_over = newest_intact(to_resume([first.attempt]))
    assert intact
    assert not passed_over
    (small / "ballast").unlink()
    second = ran(small, what, poll_each_step, job="8", output=tmp_path / "output8")
    assert second.read("launch.json")["resumed"]["checkpoint"] == f"7.0/checkpoints/{intact.name}"
    assert second.end["state"] == "done"


def test_a_disk_that_is_full_from_the_start(small: Path, tmp_path: Path) -> None:
    fill(small)
    found = ran(small, given.point(1), may_fail=True, output=tmp_path / "output")
    assert found.codes == [1]
    assert "No space left on device" in found.outcomes[0].output
