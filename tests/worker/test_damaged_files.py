"""A thousand damaged and odd pictures among those of a run: a count each, and nothing else."""

from __future__ import annotations

import functools
import json
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from hpcddp.core.jobspec import spec_to_dict
from hpcddp.core.point import Data
from hpcddp.study.outcome import read_end
from hpcddp.worker.damaged_files import printable
from hpcddp.worker.main import run
from tests.data.files import write_picture
from tests.worker import forked, given

INTACT, DAMAGED, BATCH = 600, 1000, 100


def small_model(num_classes: int) -> nn.Module:
    """Trains in milliseconds."""
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


@pytest.fixture(scope="module")
def end(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """end.json of an epoch on two ranks with two loader processes each, evaluated, of which 1,000 of 1,600 files are damaged."""
    folder = tmp_path_factory.mktemp("damaged")
    write_picture(folder / "one.jpg", (120, 100))
    jpeg, root = (folder / "one.jpg").read_bytes(), folder / "data"
    kinds = damages(jpeg, folder / "one.jpg")
    for number in range(INTACT + DAMAGED):
        within = root / "train" / f"n{number % 3}"
        within.mkdir(parents=True, exist_ok=True)
        if number % 8 in (0, 2, 5):
            (within / f"{number}.JPEG").write_bytes(jpeg)
        else:
            next(kinds)(within / (f"{number}\n.JPEG" if number % 100 == 1 else f"{number}\N{SNOWMAN}\udcff.JPEG"))
    for number in range(30):
        path = root / "val" / f"n{number % 3}" / f"{number}.JPEG"
        write_picture(path, (120, 100), seed=number)
    (root / "val" / "n1" / "1.JPEG").write_bytes(b"")
    point = given.point(
        2,
        work="epoch",
        evaluate=True,
        model="tests.worker.test_damaged_files:small_model",
        data=Data(name="imagenet", root=str(root)),
        batch_per_gpu=BATCH,
        loader_workers_per_rank=2,
    )
    spec = given.job(folder / "study", point)
    outcomes = forked.ranks(folder / "output", 2, run, spec_to_dict(spec), timeout_s=120.0)
    assert [outcome.code for outcome in outcomes] == [0, 0], "\n".join(outcome.output for outcome in outcomes)
    found: dict[str, Any] = json.loads((spec.attempt_dir("7", 0) / "end.json").read_text())
    assert read_end(spec.attempt_dir("7", 0)) is not None
    return found


@pytest.mark.dear
def test_each_is_counted_once_over_all_ranks(end: dict[str, Any]) -> None:
    """By split, with the first by name and why."""
    assert end["state"] == "done"
    damaged = end["damaged"]
    assert (damaged["train"]["pictures"], damaged["train"]["read"]) == (DAMAGED, INTACT + DAMAGED)
    assert len(damaged["train"]["first"]) == 5
    assert damaged["eval"] == {"pictures": 1, "read": 30, "first": ["n1/1.JPEG (it is no picture in a format that is read)"]}


@pytest.mark.dear
def test_the_gates_hold(end: dict[str, Any]) -> None:
    """Ranks see the same data, parameters agree, the evaluation counts every sample once."""
    assert {gate["name"] for gate in end["gates"]} > {"ranks see the same data", "evaluation counts every sample once"}
    assert [gate for gate in end["gates"] if not gate["passed"]] == []


def test_names_are_made_printable() -> None:
    """They come from files, and end on terminals."""
    assert printable("n0/a\nb\udcff\x1b[2J\N{SNOWMAN}") == "n0/a\\nb\\udcff\\x1b[2J\N{SNOWMAN}"
