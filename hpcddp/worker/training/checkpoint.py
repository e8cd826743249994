"""Checkpoints as files: written aside and renamed, the checksum in the name, the newest two retained.

RUN/JOB.RESTART/checkpoints/00000120.3fa9c1d2e07b5a6c.pt holds what there was after 120 steps; the digits are the first 16 of
the SHA-256 of its bytes. An attempt writes into its own folder only: what a rank of a lost node still writes reaches no later
attempt. Nothing is unpickled but tensors and plain values (torch.load's weights_only).

Of a sharded model each rank of the first copy writes what it has, and each reads its own:
RUN/JOB.RESTART/checkpoints/00000120.shards/00003.DIGEST.pt holds rank 3's parameters with the optimizer's state. A run has one
layout, so that a shard is cut where it was. Why not torch.distributed.checkpoint: it can cut anew, which no run needs, and
unpickles its metadata.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import pickle
import shutil
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import torch

from hpcddp.core.errors import HpcddpError
from hpcddp.core.records import write_aside
from hpcddp.core.text import thousands
from hpcddp.worker.training.trainer import Trainer

RETAINED = 2

State = dict[str, Any]
"""What a checkpoint holds, by name: tensors and plain values."""


def write_checkpoint(attempt: Path, steps: int, state: State) -> Path:
    """The file, complete and synced; HpcddpError where there is no room for it, with those before as they were."""
    return write_checked(_folder(attempt), f"{steps:08d}", state, steps)


def write_checked(folder: Path, name: str, state: State, steps: int) -> Path:
    """The same of any part of a checkpoint: its name with the checksum behind it."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    data = buffer.getbuffer()
    file = folder / f"{name}.{_digest(data)}.pt"
    try:
        write_aside(file, data)
    except OSError as error:
        raise HpcddpError(
            f"The checkpoint after {steps} steps could not be written to {file.parent} ({error.strerror}, "
            f"{thousands(len(data))} bytes). The previous one is intact. Free space, then submit the run again."
        ) from error
    return file


def prune(attempts: Sequence[Path], damaged: Collection[Path] = ()) -> None:
    """Removes all but the newest KEPT checkpoints of these attempts, oldest attempt first; `damaged` ones go as well."""
    files = [file for attempt in attempts for file in _files(attempt)]
    for file in set(files).difference([file for file in files if file not in damaged][-RETAINED:]):
        file.unlink(missing_ok=True)


def to_resume(attempts: Sequence[Path]) -> list[Path]:
    """The checkpoints from which a run may go on, the best first, of its attempts (oldest first) since it was last done."""
    found: list[Path] = []
    for attempt in reversed(attempts):
        if is_done(attempt):
            break
        found += reversed(_files(attempt))
    return found


def newest_intact(files: Sequence[Path]) -> tuple[Path | None, bytes, list[str]]:
    """The first of the files that is what was written, its bytes, and a sentence on each that was passed over. A file that holds
    more than tensors and plain values is passed over too: it is none of ours."""
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
        return f"is damaged: its {thousands(len(data))} bytes have the checksum {found}"
    try:
        unpack(data)
    except (pickle.UnpicklingError, RuntimeError) as error:
        return f"is not a checkpoint: {str(error).splitlines()[0]}"
    return None


def _read(file: Path) -> bytes:
    """Nothing of a file that cannot be read: its checksum will not hold."""
    with contextlib.suppress(OSError):
        return file.read_bytes()
    return b""


def _files(attempt: Path) -> list[Path]:
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


SUFFIX = ".shards"

SHARD = "shard"
"""Marks the part of a tensor of which other ranks have the rest."""


def write_shard(attempt: Path, steps: int, trainer: Trainer, rank: int) -> str:
    """The rank's file, complete and synced; its path below the run's folder."""
    state: State = {
        "parameters": _plain(list(trainer.module.parameters())),
        "optimizer": _plain(trainer.optimizer.state_dict()),
        "average": _plain(trainer.average.state()) if trainer.average else None,
    }
    file = write_checked(attempt / "checkpoints" / f"{steps:08d}{SUFFIX}", f"{rank:05d}", state, steps)
    return str(file.relative_to(attempt.parent))


def restore_shard(trainer: Trainer, run: Path, files: Sequence[str], rank: int) -> None:
    """Makes the rank's part what it was. `files`: of the first copy's ranks, below the run; HpcddpError where it is damaged."""
    held = _read_shard(run, files[rank % len(files)])
    parameters = list(trainer.module.parameters())
    with torch.no_grad():
        for parameter, value in zip(parameters, held["parameters"], strict=True):
            parameter.copy_(_sharded(value, parameter))
    trainer.optimizer.load_state_dict(_optimizer_state(held["optimizer"], trainer.optimizer))
    if trainer.average:
        averages = [_sharded(value, like) for value, like in zip(held["average"]["average"], parameters, strict=True)]
        trainer.average.restore({**held["average"], "average": averages})


def prune_shards(attempts: Sequence[Path]) -> None:
    """Removes those whose checkpoint is gone, and those of one that was never complete."""
    for attempt in attempts:
        for folder in (attempt / "checkpoints").glob(f"*{SUFFIX}"):
            if not any(folder.parent.glob(f"{folder.name.removesuffix(SUFFIX)}.*.pt")):
                shutil.rmtree(folder, ignore_errors=True)


def _read_shard(run: Path, name: str) -> State:
    data = intact_bytes(run / name)
    if data is None:
        main = f"{Path(name).parent.name.removesuffix(SUFFIX)}.*.pt"
        raise HpcddpError(
            f"{name}, part of the checkpoint to resume from, is damaged or missing. Delete "
            f"{run / Path(name).parents[1] / main} to resume from the previous checkpoint."
        )
    return unpack(data)


def _plain(value: Any) -> Any:
    """With what this rank has of each sharded tensor in its place."""

    def part(tensor: torch.Tensor) -> Any:
        local = getattr(tensor, "to_local", None)
        return {SHARD: local().detach()} if local else tensor.detach()

    return _mapped(value, part)


def _mapped(value: Any, function: Callable[[torch.Tensor], Any]) -> Any:
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, dict):
        return {key: _mapped(each, function) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_mapped(each, function) for each in value)
    return value


def _sharded(value: Any, like: torch.Tensor) -> Any:
    """The tensor of which this part was marked, cut as `like` is; what was not marked stays."""
    if not (isinstance(value, dict) and SHARD in value):
        return value
    full: Any = like.data
    part = value[SHARD].to(device=full.to_local().device)
    return type(full).from_local(part, full.device_mesh, full.placements, run_check=False, shape=full.shape, stride=full.stride())


def _optimizer_state(state: State, optimizer: torch.optim.Optimizer) -> State:
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    of_parameters = {
        number: {key: _sharded(value, parameters[number]) for key, value in known.items()}
        for number, known in state["state"].items()
    }
    return {**state, "state": of_parameters}
