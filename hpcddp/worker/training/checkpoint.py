"""Checkpoints as files: written aside and renamed, the checksum in the name, the newest two retained.

RUN/JOB.RESTART/checkpoints/00000120.3fa9c1d2e07b5a6c.pt holds what there was after 120 steps; the digits are the first 16 of
the SHA-256 of its bytes. An attempt writes into its own folder only: what a rank of a lost node still writes reaches no later
attempt. Nothing is unpickled but tensors and plain values (torch.load's weights_only).
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import pickle
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import torch

from hpcddp.core.errors import HpcddpError
from hpcddp.core.records import write_aside

RETAINED = 2

State = dict[str, Any]
"""What a checkpoint holds, by name: tensors and plain values."""


def write_checkpoint(attempt: Path, steps: int, state: State) -> Path:
    """The file, complete and synced; HpcddpError where there is no room for it, with those before as they were."""
    return write_state(_folder(attempt), f"{steps:08d}", state, steps)


def write_state(folder: Path, name: str, state: State, steps: int) -> Path:
    """The same of any part of a checkpoint: its name with the checksum behind it."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    data = buffer.getbuffer()
    file = folder / f"{name}.{_digest(data)}.pt"
    try:
        write_aside(file, data)
    except OSError as error:
        raise HpcddpError(
            f"the checkpoint after {steps} steps could not be written to {file.parent} ({error.strerror}, {len(data):,} bytes): "
            f"make room and submit again, the one before is as it was"
        ) from error
    return file


def prune(attempts: Sequence[Path], damaged: Collection[Path] = ()) -> None:
    """Removes all but the newest KEPT checkpoints of these attempts, oldest attempt first; `damaged` ones go as well."""
    files = [file for attempt in attempts for file in _files(attempt)]
    for file in set(files).difference([file for file in files if file not in damaged][-RETAINED:]):
        file.unlink(missing_ok=True)


def to_resume(attempts: Sequence[Path]) -> list[Path]:
    """The checkpoints from which a run may go on, the best first: those of its attempts (oldest first) since it was last done.

    A run that was done and is run again begins anew.
    """
    found: list[Path] = []
    for attempt in reversed(attempts):
        if is_done(attempt):
            break
        found += reversed(_files(attempt))
    return found


def newest_intact(files: Sequence[Path]) -> tuple[Path | None, bytes, list[str]]:
    """The first of the files that is what was written, its bytes, and a sentence on each that was passed over.

    A file that holds more than tensors and plain values is passed over too: it is none of ours.
    """
    passed_over: list[str] = []
    for file in files:
        why = _damage(file, data := _read(file))
        if why is None:
            return file, data, passed_over
        passed_over.append(f"{'/'.join(file.parts[-3:])} {why}")
    return None, b"", passed_over


def intact_bytes(file: Path) -> bytes | None:
    """Of a file that is what was written; else None."""
    data = _read(file)
    return data if _digest(data) == file.name.split(".")[1] else None


def unpack(data: bytes) -> State:
    """What write_checkpoint was given, its tensors in the host's memory."""
    state: State = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    return state


def _damage(file: Path, data: bytes) -> str | None:
    found = _digest(data)
    if found != file.name.split(".")[1]:
        return f"is damaged: its {len(data):,} bytes have the checksum {found}"
    try:
        unpack(data)
    except (pickle.UnpicklingError, RuntimeError) as error:
        return f"is no checkpoint: {str(error).splitlines()[0]}"
    return None


def _read(file: Path) -> bytes:
    """Nothing of a file that cannot be read: its checksum will not hold."""
    with contextlib.suppress(OSError):
        return file.read_bytes()
    return b""


def _files(attempt: Path) -> list[Path]:
    """The attempt's checkpoints, oldest first."""
    return sorted(_folder(attempt).glob("[0-9]*.*.pt"))


def _folder(attempt: Path) -> Path:
    return attempt / "checkpoints"


def is_done(attempt: Path) -> bool:
    """Whether the run came to its end in it."""
    with contextlib.suppress(OSError, ValueError):
        return bool(json.loads((attempt / "end.json").read_bytes())["state"] == "done")
    return False


def _digest(data: bytes | memoryview) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
