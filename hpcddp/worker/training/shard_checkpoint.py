"""What a rank has of a sharded model, as files of a checkpoint: ranks of the first copy write theirs, and each reads its own.

RUN/JOB.RESTART/checkpoints/00000120.shards/00003.DIGEST.pt holds rank 3's parameters with the optimizer's state. A run has one
layout, so that a shard is cut where it was. Why not torch.distributed.checkpoint: it can cut anew, which no run needs, and
unpickles its metadata.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from hpcddp.core.errors import HpcddpError
from hpcddp.worker.training.checkpoint import State, intact_bytes, unpack, write_state
from hpcddp.worker.training.trainer import Trainer

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
    file = write_state(attempt / "checkpoints" / f"{steps:08d}{SUFFIX}", f"{rank:05d}", state, steps)
    return str(file.relative_to(attempt.parent))


def restore_shard(trainer: Trainer, run: Path, files: Sequence[str], rank: int) -> None:
    """Makes the rank's part what it was; `files`: of the first copy's ranks, below the run's folder.

    HpcddpError where this rank's is damaged.
    """
    held = _read(run, files[rank % len(files)])
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


def _read(run: Path, name: str) -> State:
    data = intact_bytes(run / name)
    if data is None:
        main = f"{Path(name).parent.name.removesuffix(SUFFIX)}.*.pt"
        raise HpcddpError(
            f"{name} is damaged or gone, which is of the checkpoint that this attempt would go on from: remove "
            f"{run / Path(name).parents[1] / main} to go on from the one before"
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
