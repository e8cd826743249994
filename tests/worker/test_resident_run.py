"""Runs whose data set lies on the device."""

from __future__ import annotations

import json
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from hpcddp.core.jobspec import spec_to_dict
from hpcddp.core.point import Data
from hpcddp.worker.main import run
from tests.data.files import write_cifar
from tests.worker import forked, given


def small_model(num_classes: int) -> nn.Module:
    return nn.Sequential(nn.AvgPool2d(8), nn.Flatten(), nn.Linear(48, num_classes))


def attempt(study: Path, root: Path, **data: Any) -> dict[str, Any]:
    """launch.json and end.json of two ranks: two epochs of 15 samples and the beginning of a third."""
    resident = data.get("resident", False)
    point = given.point(
        2,
        model="tests.worker.test_resident_run:small_model",
        data=Data(name="cifar10", root=str(root), **data),
        loader_workers_per_rank=0 if resident else 1,
        batch_per_gpu=3,
        evaluate=True,
    )
    outcomes = forked.ranks(study / "output", 2, run_by_itself if resident else run, spec_to_dict(given.job(study, point)))
    assert [outcome.code for outcome in outcomes] == [0, 0], "\n".join(outcome.output for outcome in outcomes)
    folder = given.job(study, point).attempt_dir("7", 0)
    return {name: json.loads((folder / f"{name}.json").read_text()) for name in ("launch", "end")}


def run_by_itself(spec: dict[str, Any]) -> Any:
    """Fails where a process is started beside the rank."""

    def refuse(process: BaseProcess) -> None:
        raise AssertionError(f"{process} was started")

    BaseProcess.start = refuse  # type: ignore[assignment, method-assign]
    return run(spec)


@pytest.mark.dear
@pytest.mark.parametrize("augment", ["none", "crop_flip"])
def test_it_trains_as_with_loaders(tmp_path: Path, augment: str) -> None:
    """To the same parameters and accuracy, bit for bit, without a process that loads; all gates hold, and the record says it."""
    write_cifar(tmp_path / "data")
    loaded = attempt(tmp_path / "loaded", tmp_path / "data", augment=augment)
    resident = attempt(tmp_path / "resident", tmp_path / "data", augment=augment, resident=True)
    for key in ("loss_first", "loss_last", "evaluation"):
        assert resident["end"][key] == loaded["end"][key], key
    assert [gate for gate in resident["end"]["gates"] if not gate["passed"]] == []
    assert agreed(resident) == agreed(loaded)
    assert resident["launch"]["data"]["resident_bytes"] == 15 * (3 * 32 * 32 + 8)
    assert "resident_bytes" not in loaded["launch"]["data"]
    assert loaded["launch"]["data"]["unofficial"] == [f"data_batch_{number}.bin" for number in range(1, 6)]


def agreed(records: dict[str, Any]) -> str:
    """The checksum of the parameters at the end."""
    (gate,) = [gate for gate in records["end"]["gates"] if gate["name"] == "parameters agree"]
    return str(gate["evidence"])
