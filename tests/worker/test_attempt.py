"""Attempts from start to end: real ranks over gloo, and the records they leave."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import os
import re
import socket
import zlib
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import pytest
import torch
from torch import nn

from hpcddp.core import malloc
from hpcddp.core.errors import HpcddpError
from hpcddp.core.jobspec import spec_to_dict
from hpcddp.core.malloc import freed_memory
from hpcddp.core.point import Data, Point, comm_point
from hpcddp.core.records import AFTER_PAUSE, PARTS, STEP_COLUMNS, WARMUP, steps_file
from hpcddp.core.written_lists import cpu_list
from hpcddp.study.study_records import read_end
from hpcddp.worker import main
from hpcddp.worker.attempt import printable
from hpcddp.worker.launch_record import env_id, tf32
from hpcddp.worker.training.models import build_model
from tests.data.files import write_cifar, write_picture
from tests.worker import forked, given
from tests.worker.forked import JOB, Ran, ran

HERE = "tests.worker.test_attempt"


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """4 ranks on 2 nodes: 2 warm-up steps, 4 timed ones."""
    return ran(tmp_path_factory.mktemp("done"), given.point(4, nodes=2), git_commit="0123abc+", profile={"name": "here"})


@pytest.mark.dear
def test_every_rank_writes_a_row_per_step(done: Ran) -> None:
    for rank in range(4):
        rows = done.rows(rank)
        assert tuple(rows[0]) == STEP_COLUMNS
        assert [int(row["step"]) for row in rows] == [0, 1, 2, 3, 4, 5]
        assert [int(row["flags"]) for row in rows] == [WARMUP, WARMUP | AFTER_PAUSE, 0, 0, 0, 0]
        for row in rows:
            parts = [int(row[f"{part}_ns"]) for part in PARTS]
            assert (sum(parts), min(parts) >= 0) == (int(row["total_ns"]), True)
            assert row["h2d_hidden_ns"] == ""  # nothing is copied behind other work: not measured
        for before, after in itertools.pairwise(rows[2:]):
            assert int(after["start_ns"]) == int(before["start_ns"]) + int(before["total_ns"])


@pytest.mark.dear
def test_end_names_rows_and_checksum_of_each_file_and_is_written_last(done: Ran) -> None:
    for entry in done.end["ranks"]:
        data = steps_file(done.attempt, entry["rank"]).read_bytes()
        assert (entry["rows"], entry["crc32"], entry["host"]) == (6, zlib.crc32(data), f"node{entry['rank'] // 2}")
    files = [file for file in done.attempt.rglob("*") if file.is_file()]
    written_ns = (done.attempt / "end.json").stat().st_mtime_ns
    assert written_ns == max(file.stat().st_mtime_ns for file in files)  # a kernel's clock for files ticks a few times a second
    assert not [file.name for file in files if file.name.startswith(".")]


@pytest.mark.dear
def test_end_says_what_was_trained(done: Ran) -> None:
    end = done.end
    assert (end["schema"], end["state"], end["reason"], done.failed) == (1, "done", None, {})
    assert (end["global_batch"], end["steps"], end["evaluation"]) == (16, 6, None)
    assert 1 < end["loss_last"] < 4
    loader = end["loader"]
    assert (loader["workers"], loader["samples"], loader["batches"]) == (0, 80, 20)
    slowest, fastest = (4 * loader["samples"] / loader[key] for key in ("read_s", "compute_s"))  # apart where a rank is held up
    assert 0.999 * slowest <= loader["samples_per_s"] <= 1.9 * fastest
    assert 0 < loader["compute_s"] <= loader["read_s"] * 1.01


@pytest.mark.dear
def test_launch_says_where_it_ran(done: Ran) -> None:
    launch = done.read("launch.json")
    assert (launch["hosts"], launch["ranks"], launch["ranks_per_node"]) == (["node0", "node1"], 4, 2)
    assert (launch["job"], launch["restart"], launch["run"], launch["backend"]) == (JOB, 0, 1, "local")
    assert (launch["git_commit"], launch["profile"], launch["gpus"]) == ("0123abc+", {"name": "here"}, [])
    assert launch["data"] == {"name": "synthetic-mnist", "root": None, "samples": 60_000}
    assert launch["started_unix_ns"] < done.end["ended_unix_ns"]
    assert (len(launch["env_id"]), launch["versions"]["torch"], launch["tf32"]) == (12, torch.__version__, None)
    assert [binding["cpus"] for binding in launch["bindings"]] == [cpu_list(os.sched_getaffinity(0))] * 4
    assert sorted(file.name for file in (done.attempt / "nodes").iterdir()) == ["node0.json", "node1.json"]
    node = done.read("nodes/node1.json")
    assert (node["cpus"], node["cpus_usable"]) == (os.cpu_count(), len(os.sched_getaffinity(0)))


def test_the_arithmetic_of_fp32_is_known() -> None:
    assert tf32() == {"convolutions": True, "products": False}


def test_one_rank_runs_alone(tmp_path: Path) -> None:
    found = ran(tmp_path, given.point(1, warmup=0, steps=3))
    assert found.outcomes[0].value["gates_passed"] is True
    assert [row["flags"] for row in found.rows(0)] == ["0", "0", "0"]


def test_mixed_precision(tmp_path: Path) -> None:
    what = given.point(1, precision="fp16", accumulate=2, channels_last=True, loader_workers_per_rank=2)
    assert ran(tmp_path, what).failed == {}


def fails_on_rank_one(classes: int) -> Any:
    if forked.this_rank() == 1:
        raise ValueError("rank 1 has had enough")
    return build_model("mnist-cnn", classes=classes, height=28, seed=1)


def test_a_rank_that_fails_leaves_its_reason(tmp_path: Path) -> None:
    found = ran(tmp_path, given.point(2, model=f"{HERE}:fails_on_rank_one"), may_fail=True)
    error = found.read("ranks/00001.error.json")
    assert (error["type"], error["message"], error["host"]) == ("ValueError", "rank 1 has had enough", "node0")
    assert "fails_on_rank_one" in error["traceback"]
    assert (found.codes, found.end["state"]) == ([1, 1], "failed")
    for words in (found.outcomes[1].output, found.end["reason"]):
        assert "rank 1 has had enough" in words


class Broken:
    classes, shape = 10, (1, 28, 28)

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        raise HpcddpError("picture 17 cannot be decoded")


def broken(root: str | None, split: str) -> Broken:
    return Broken()


def test_an_error_in_a_loaders_process_is_said_in_its_own_words(tmp_path: Path) -> None:
    found = ran(tmp_path, given.point(1, data=Data(name=f"{HERE}:broken"), loader_workers_per_rank=1), may_fail=True)
    assert (found.codes, found.end["reason"]) == ([1], "rank 0 on node0: picture 17 cannot be decoded")
    assert "in DataLoader worker process 0" in found.read("ranks/00000.error.json")["traceback"]


def test_a_gpu_point_never_runs_on_a_cpu(tmp_path: Path) -> None:
    found = ran(tmp_path, given.point(1, device="cuda"), may_fail=True)
    assert (found.codes, steps_file(found.attempt, 0).exists()) == ([1], False)
    assert re.search("node0.*`device: cpu`", found.end["reason"])


def test_the_step_must_have_the_points_ranks(tmp_path: Path) -> None:
    spec = given.job(tmp_path, given.point(2))
    (outcome,) = forked.ranks(tmp_path / "output", 1, main.run, spec_to_dict(spec))
    assert outcome.code == 1
    assert "The step has 1 rank on 1 node; the spec has 2 ranks on 1 node." in outcome.output


@pytest.mark.parametrize("what", [given.point(1, steps=1), comm_point(given.point(2))], ids=["training", "benchmark"])
def test_a_second_worker_does_not_overwrite_records(tmp_path: Path, what: Point) -> None:
    folder = given.job(tmp_path, what).attempt_dir(JOB, 0)
    there = folder / "comm.json" if what.work == "comm" else steps_file(folder, 0)
    there.parent.mkdir(parents=True)
    there.write_text("{}")
    found = ran(tmp_path, what, may_fail=True)
    assert set(found.codes) == {1}
    assert "Run this point in a separate job" in found.outcomes[0].output
    assert [file for file in folder.rglob("*") if file.is_file()] == [there]
    assert there.read_text() == "{}"


def run_noting_malloc(spec: dict[str, Any]) -> int:
    with patch.object(main, "retain_freed_memory", Mock(wraps=malloc.retain_freed_memory)) as retained:
        main.run(spec)
    return retained.call_count


@pytest.mark.dear
def test_freed_memory_is_kept_unless_the_user_says_otherwise(tmp_path: Path) -> None:
    environments = set()
    for keep_memory, calls, words in ((True, 1, "kept"), (False, 0, "returned")):
        spec = given.job(tmp_path, given.point(1, measure={"keep_memory": keep_memory, "input": "synthetic"}))
        assert forked.values(tmp_path / "output", 1, run_noting_malloc, spec_to_dict(spec)) == [calls]
        launch = json.loads((spec.attempt_dir(JOB, 0) / "launch.json").read_text())
        assert launch["freed_memory"] == words
        environments.add(launch["env_id"])
    assert len(environments) == 2


def test_environments_of_before_stay_what_they_were() -> None:
    versions = {"torch": "2.7.1"}
    assert env_id(versions, "cpu") == env_id(versions, "cpu", "returned") == "ec6aff47afc4"
    assert env_id(versions, "cpu", "kept") != env_id(versions, "cpu")


@pytest.mark.parametrize(
    ("device", "keep_memory", "recorded"), [("cpu", True, "kept"), ("cpu", False, "returned"), ("cuda", True, None)]
)
def test_what_is_done_with_freed_memory(device: Any, keep_memory: bool, recorded: str | None) -> None:
    assert freed_memory(given.point(1, device=device, measure={"keep_memory": keep_memory})) == recorded


def pooled(num_classes: int) -> nn.Module:
    return nn.Sequential(nn.AvgPool2d(8), nn.Flatten(), nn.Linear(48, num_classes))


def starts_nothing(_: int) -> None:
    """Fails where a process is started beside the rank."""

    def refuse(process: BaseProcess) -> None:
        raise AssertionError(f"{process} was started")

    BaseProcess.start = refuse  # type: ignore[assignment, method-assign]


@pytest.mark.dear
@pytest.mark.parametrize("augment", ["none", "crop_flip"])
def test_resident_data_train_as_with_loaders(tmp_path: Path, augment: Any) -> None:
    """Two epochs of 15 samples and the beginning of a third: to the same bits, without a process that loads."""
    write_cifar(tmp_path / "data")
    known: dict[str, Any] = {"model": f"{HERE}:pooled", "batch_per_gpu": 3, "evaluate": True}
    data = Data(name="cifar10", root=str(tmp_path / "data"), augment=augment)
    loaded = ran(tmp_path / "loaded", given.point(2, data=data, loader_workers_per_rank=1, **known))
    resident = ran(tmp_path / "resident", given.point(2, data=dataclasses.replace(data, resident=True), **known), starts_nothing)
    for key in ("loss_first", "loss_last", "evaluation"):
        assert resident.end[key] == loaded.end[key], key
    assert resident.failed == {}
    assert resident.gates["parameters agree"] == loaded.gates["parameters agree"]
    assert resident.read("launch.json")["data"]["resident_bytes"] == 15 * (3 * 32 * 32 + 8)
    found = loaded.read("launch.json")["data"]
    assert "resident_bytes" not in found
    assert found["unofficial"] == [f"data_batch_{number}.bin" for number in range(1, 6)]


INTACT, DAMAGED, BATCH = 60, 100, 10


def coarse(num_classes: int) -> nn.Module:
    return nn.Sequential(nn.AvgPool2d(32), nn.Flatten(), nn.Linear(3 * 7 * 7, num_classes))


def bomb(jpeg: bytes) -> bytes:
    """The same picture, said to be of 65,500 x 65,500 pixels."""
    at = jpeg.index(b"\xff\xc0") + 5
    return jpeg[:at] + (65_500).to_bytes(2, "big") * 2 + jpeg[at + 4 :]


def damages(jpeg: bytes, outside: Path) -> Iterator[Callable[[Path], object]]:
    """What stands where a picture should be, each kind again and again."""
    contents = (jpeg[: len(jpeg) // 2], b"", bytes(2000), bomb(jpeg), b"GIF89a", b"\x89PNG\r\n\x1a\n" + bytes(40), b"<svg/>")
    kinds: list[Callable[[Path], object]] = [functools.partial(Path.write_bytes, data=content) for content in contents]
    kinds += [Path.mkdir, os.mkfifo, lambda path: path.symlink_to(outside), lambda path: path.symlink_to(path)]
    kinds += [lambda path: path.symlink_to("/dev/zero"), bind]
    while True:
        yield from kinds


def bind(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # a socket's name has 108 bytes of room
    try:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(path.name)
    finally:
        os.chdir(here)


@pytest.mark.dear
def test_each_damaged_picture_is_counted_once_over_all_ranks(tmp_path: Path) -> None:
    """Of an epoch with two loader processes a rank; the gates hold."""
    write_picture(tmp_path / "one.jpg", (120, 100))
    jpeg, root = (tmp_path / "one.jpg").read_bytes(), tmp_path / "data"
    kinds = damages(jpeg, tmp_path / "one.jpg")
    for number in range(INTACT + DAMAGED):
        within = root / "train" / f"n{number % 3}"
        within.mkdir(parents=True, exist_ok=True)
        if number % 8 in (0, 2, 5):
            (within / f"{number}.JPEG").write_bytes(jpeg)
        else:
            next(kinds)(within / (f"{number}\n.JPEG" if number % 100 == 1 else f"{number}\N{SNOWMAN}\udcff.JPEG"))
    for number in range(30):
        write_picture(root / "val" / f"n{number % 3}" / f"{number}.JPEG", (120, 100), seed=number)
    (root / "val" / "n1" / "1.JPEG").write_bytes(b"")
    chosen: dict[str, Any] = {"work": "epoch", "evaluate": True, "batch_per_gpu": BATCH, "loader_workers_per_rank": 2}
    data = Data(name="imagenet", root=str(root))
    found = ran(tmp_path / "study", given.point(2, model=f"{HERE}:coarse", data=data, **chosen))
    assert read_end(found.attempt) is not None
    train = found.end["damaged"]["train"]
    assert (train["pictures"], train["read"], len(train["first"])) == (DAMAGED, INTACT + DAMAGED, 5)
    says = "n1/1.JPEG (it is not an image in a supported format)"
    assert found.end["damaged"]["eval"] == {"pictures": 1, "read": 30, "first": [says]}
    assert found.failed == {}
    assert found.gates.keys() > {"ranks see the same data", "evaluation counts every sample once"}


def test_names_are_made_printable() -> None:
    assert printable("n0/a\nb\udcff\x1b[2J\N{SNOWMAN}") == "n0/a\\nb\\udcff\\x1b[2J\N{SNOWMAN}"
