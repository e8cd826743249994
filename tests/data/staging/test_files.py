"""Which files of a root are copied, and what stands for those that are none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hpcddp.core.catalog import DATASETS, is_on_disk
from hpcddp.core.point import Data
from hpcddp.data.staging.files import READ, find_files


def write(root: Path, *paths: str) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(path.encode())


def test_every_known_set_can_be_copied() -> None:
    """None is copied by the rule for a user's own, which takes all of a folder."""
    assert set(READ) == {name for name in DATASETS if is_on_disk(Data(name=name))}


@pytest.mark.parametrize(
    ("name", "read", "beside"),
    [
        ("imagenet", ["train/a/1.JPEG", "val/a/2.JPEG"], ["ILSVRC2012_img_train.tar", "notes.txt", ".train/a/3.JPEG"]),
        (
            "imagenet",
            ["imagenet.json", "train-00000.tar", "train-00000.tar.json"],
            ["train/a/1.JPEG", ".train-00001.tar.x.7.part"],
        ),
        ("bigmnist", ["bigmnist.json", "train-00000.u8", "train-00000.labels.u8"], ["train-images-idx3-ubyte", ".lock/1"]),
        ("mnist", ["MNIST/raw/train-images-idx3-ubyte", "t10k-labels-idx1-ubyte.gz"], ["other/x"]),
        ("cifar10", ["cifar-10-batches-bin/data_batch_1.bin", "test_batch.bin"], ["cifar-10-batches-py/data_batch_1"]),
        ("digits", ["digits-train.bin", "digits-eval.bin"], ["digits-train.unfinished"]),
        ("my.data:open", ["a/b/c.bin", "d"], [".cache/e"]),
    ],
)
def test_only_what_the_data_set_reads_is_copied(tmp_path: Path, name: str, read: list[str], beside: list[str]) -> None:
    """A root may hold archives, other data sets, and what a killed preparation left."""
    write(tmp_path, *read, *beside)
    found = find_files(name, tmp_path)
    assert sorted(path for path, _ in found.files) == sorted(read)
    assert found.total_bytes == sum(map(len, read))
    assert found.room_bytes == 4096 * (len(read) + len(found.folders))


def test_links_lead_where_they_did(tmp_path: Path) -> None:
    """The root's own entries are followed. Below, a link inside is a file; one that leads out, nowhere or back stays a link."""
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    write(elsewhere, "train/a/1.JPEG", "secret")
    (elsewhere / "train/a/2.JPEG").symlink_to("1.JPEG")
    (elsewhere / "train/a/3.JPEG").symlink_to("../../secret")
    (elsewhere / "train/a/4.JPEG").symlink_to("nothing")
    (elsewhere / "train/a/back").symlink_to("..")
    root.mkdir()
    (root / "train").symlink_to(elsewhere / "train")
    found = find_files("imagenet", root)
    assert [path for path, _ in found.files] == ["train/a/1.JPEG", "train/a/2.JPEG"]
    targets = {"3.JPEG": "secret", "4.JPEG": "train/a/nothing", "back": "train"}
    assert dict(found.links) == {f"train/a/{name}": str(elsewhere / target) for name, target in targets.items()}


def test_what_is_no_file_is_not_read(tmp_path: Path) -> None:
    """Reading a pipe would wait for ever."""
    write(tmp_path, "train/a/1.JPEG")
    os.mkfifo(tmp_path / "train/a/2.JPEG")
    assert find_files("imagenet", tmp_path).others == ["train/a/2.JPEG"]


def test_a_root_that_is_not_there_has_nothing(tmp_path: Path) -> None:
    """Opening it says so, with what to do."""
    assert find_files("imagenet", tmp_path / "none").names == 0
