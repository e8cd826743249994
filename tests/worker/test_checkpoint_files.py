"""Checkpoints as files: whole or not there, two kept, nothing foreign unpickled."""

from __future__ import annotations

import hashlib
import io
import json
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from hpcddp.core.errors import HpcddpError
from hpcddp.worker.training.checkpoint import newest_intact, prune, to_resume, unpack, write_checkpoint


def state(value: int, size: int = 4) -> dict[str, object]:
    return {"steps": value, "module": {"weight": torch.full((size,), float(value))}, "random": [{"python": [3, [1, 2], None]}]}


def names(attempt: Path) -> list[str]:
    return sorted(file.name.split(".")[0] for file in (attempt / "checkpoints").iterdir())


def test_what_was_written_comes_back(tmp_path: Path) -> None:
    """Bit for bit; the name says after how many steps, and the checksum of the bytes."""
    file = write_checkpoint(tmp_path / "7.0", 12, state(12))
    found, data, passed_over = newest_intact([file])
    assert (found, passed_over) == (file, [])
    assert file.name == f"00000012.{hashlib.sha256(data).hexdigest()[:16]}.pt"
    back = unpack(data)
    assert torch.equal(back.pop("module")["weight"], torch.full((4,), 12.0))
    assert back == {"steps": 12, "random": [{"python": [3, [1, 2], None]}]}


def test_two_are_kept_over_all_attempts(tmp_path: Path) -> None:
    """The newest: by attempt, then by step, whatever an older attempt's late rank has written."""
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
    """And named; where none is whole there is none."""
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
    """A file with the right checksum that would run code does not, and is passed over."""
    monkeypatch.chdir(tmp_path)
    buffer = io.BytesIO()
    torch.save({"steps": 1, "module": Evil()}, buffer)
    data = buffer.getvalue()
    file = tmp_path / f"00000001.{hashlib.sha256(data).hexdigest()[:16]}.pt"
    file.write_bytes(data)
    found, _, passed_over = newest_intact([file])
    assert found is None
    assert "is no checkpoint: Weights only load failed" in passed_over[0]
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
    """The error says where, why, how large and what to do; the one before is as it was, and nothing half-written is left."""
    before = write_checkpoint(tmp_path / "7.0", 10, state(10))
    with files_no_longer_than(100_000), pytest.raises(HpcddpError) as refused:
        write_checkpoint(tmp_path / "7.0", 20, state(20, size=100_000))
    assert "the checkpoint after 20 steps could not be written to " in str(refused.value)
    assert "(File too large, 40" in str(refused.value)
    assert "make room and submit again, the one before is as it was" in str(refused.value)
    assert list((tmp_path / "7.0" / "checkpoints").iterdir()) == [before]
    assert newest_intact([before])[0] == before
