"""Sharded runs that are interrupted and taken up again: every rank goes on from its own part."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hpcddp.core.errors import HpcddpError
from hpcddp.core.point import Optimizer, Point
from hpcddp.worker.training.checkpoint import prune_shards, restore_shard
from tests.worker.test_checkpoint_resume import launch
from tests.worker.test_gates_planted import small

STEPS = 12


def point(ranks: int, parallel: str, **changes: Any) -> Point:
    """Layers whose rows the ranks do not share evenly, and BatchNorm, whose statistics are each rank's own."""
    adam = Optimizer(name="adamw", lr=0.01)
    kind = {"parallel": parallel, "optimizer": adam, "measure": {"resume": True, "checkpoint_every_min": 0.0}}
    return small(ranks, warmup=2, steps=STEPS - 2, **kind, **changes)


def parameters(attempt: Path) -> str:
    """The checksum of rank 0's part with which a run that is done ended; all gates passed."""
    end = json.loads((attempt / "end.json").read_text())
    assert (end["state"], [gate["name"] for gate in end["gates"] if not gate["passed"]]) == ("done", [])
    return str(next(gate["evidence"].split()[-1] for gate in end["gates"] if gate["name"] == "parameters agree"))


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Point, Path]:
    """Three ranks, told to stop after their fifth step."""
    study, what = tmp_path_factory.mktemp("interrupted"), point(3, "fsdp")
    return study, what, launch(study, what, "7", stop_after=5)


@pytest.mark.dear
def test_a_run_goes_on_from_its_shards(interrupted: tuple[Path, Point, Path], tmp_path: Path) -> None:
    """With the parameters, bit for bit, of a run that nobody interrupted; checkpoints of one that goes on go with it."""
    study, what, first = interrupted
    (shards,) = (first / "checkpoints").glob("*.shards")
    assert sorted(file.name[:5] for file in shards.iterdir()) == ["00000", "00001", "00002"]
    second = launch(study, what, "8")
    assert json.loads((second / "launch.json").read_text())["resumed"]["step"] == int(shards.name[:8])
    assert parameters(second) == parameters(launch(tmp_path, what, "7"))


@pytest.mark.dear
def test_a_copy_goes_on_as_the_first(tmp_path: Path) -> None:
    """HSDP on two nodes: ranks of the first write, and those of the second read what they wrote."""
    what = point(4, "hsdp", nodes=2)
    first = launch(tmp_path, what, "7", stop_after=5)
    assert len(list(next((first / "checkpoints").glob("*.shards")).iterdir())) == 2
    again = launch(tmp_path, what, "8")
    (tmp_path / "plain").mkdir()
    assert parameters(again) == parameters(launch(tmp_path / "plain", what, "7"))


def test_a_damaged_shard_is_named(tmp_path: Path) -> None:
    """With the checkpoint to remove; nothing of it is read."""
    name = "7.0/checkpoints/00000120.shards/00001.0123456789abcdef.pt"
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).write_bytes(b"torn")
    nobody: Any = None
    with pytest.raises(HpcddpError, match=r"00001.\w+.pt is damaged or gone.* remove .*/7.0/checkpoints/00000120.\*.pt to go on"):
        restore_shard(nobody, tmp_path, ["7.0/checkpoints/00000120.shards/00000.0.pt", name], 3)


def test_shards_go_with_their_checkpoint(tmp_path: Path) -> None:
    """Also those of one that was never complete."""
    folder = tmp_path / "7.0" / "checkpoints"
    for steps in (10, 20):
        (folder / f"{steps:08d}.shards").mkdir(parents=True)
    (folder / "00000020.0123456789abcdef.pt").touch()
    prune_shards([tmp_path / "7.0"])
    assert sorted(file.name for file in folder.iterdir()) == ["00000020.0123456789abcdef.pt", "00000020.shards"]
