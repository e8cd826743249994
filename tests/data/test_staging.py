"""Which files of a root are copied, and what stands for those that are none; the copy is what was read of its source, or none."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from hpcddp.core.catalog import DATASETS, is_on_disk
from hpcddp.core.errors import HpcddpError
from hpcddp.core.point import Data
from hpcddp.data import staging
from hpcddp.data.staging import READ, RootFiles, copy_files, find_files
from tests.data.files import noise
from tests.machine import small_disk


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
    assert find_files("imagenet", tmp_path / "none").names == 0


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Pictures of 0 to 3 MB, in more parts than threads, with a link, a dead link and a pipe among them."""
    folder = tmp_path / "root" / "train" / "a"
    folder.mkdir(parents=True)
    for number in range(40):
        (folder / f"{number:02d}.JPEG").write_bytes(noise(number * 1000, number))
    (folder / "large.JPEG").write_bytes(noise(3_000_000))
    (folder / "name\nof two lines \udcff.JPEG").write_bytes(b"odd")
    (folder / "link.JPEG").symlink_to("01.JPEG")
    (folder / "dead.JPEG").symlink_to("nothing")
    os.mkfifo(folder / "pipe.JPEG")
    return tmp_path / "root"


def found_in(root: Path) -> RootFiles:
    return find_files("imagenet", root)


def target(tmp_path: Path) -> Path:
    to = tmp_path / "copy"
    to.mkdir()
    return to


def test_every_byte_is_copied(root: Path, tmp_path: Path) -> None:
    done: list[int] = []
    to, found = target(tmp_path), found_in(root)
    copied = copy_files(root, to, found, done.append)
    assert (copied.files, copied.copied_bytes, copied.unreadable) == (43, sum(done), 0)
    assert copied.copied_bytes == found.total_bytes == 3_000_000 + 3 + 1000 + 1000 * sum(range(40))
    for path, _ in found.files:
        assert (to / path).read_bytes() == (root / path).read_bytes()
    assert not (to / "train/a/link.JPEG").is_symlink()
    assert (to / "train/a/dead.JPEG").is_symlink()
    assert (to / "train/a/pipe.JPEG").is_fifo()


@pytest.mark.parametrize("name", ["07.JPEG", "large.JPEG"])
def test_a_disk_that_changes_a_byte_is_named(root: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    to = target(tmp_path)
    in_threads = staging._in_threads

    def damage(function: object, parts: object, threads: int) -> object:
        if "check" in str(function):
            content = bytearray((to / "train/a" / name).read_bytes())
            content[500] ^= 1
            (to / "train/a" / name).write_bytes(content)
        return in_threads(function, parts, threads)  # type: ignore[arg-type]

    monkeypatch.setattr(staging, "_in_threads", damage)
    with pytest.raises(HpcddpError, match=f"{name} differs from what was read of"):
        copy_files(root, to, found_in(root))


def test_a_source_that_changes_is_named(root: Path, tmp_path: Path) -> None:
    found = found_in(root)
    with (root / "train/a/05.JPEG").open("ab") as file:
        file.write(b"more")
    with pytest.raises(HpcddpError, match=r"05.JPEG had 5,000 bytes and now has 5,004: it was changed while it was copied"):
        copy_files(root, target(tmp_path), found)


def test_a_picture_that_cannot_be_read_is_empty_and_counted(root: Path, tmp_path: Path) -> None:
    found = found_in(root)
    (root / "train/a/05.JPEG").unlink()
    to = target(tmp_path)
    assert copy_files(root, to, found).unreadable == 1
    assert (to / "train/a/05.JPEG").read_bytes() == b""
    shutil.rmtree(to)
    with pytest.raises(HpcddpError, match=r"cannot read .*bigmnist.json: No such file"):
        copy_files(root, target(tmp_path), RootFiles(files=[("bigmnist.json", 1)]))


def test_a_full_disk_is_a_sentence(root: Path, tmp_path: Path) -> None:
    with small_disk(tmp_path) as disk, pytest.raises(HpcddpError, match=r"cannot copy .* to .*: No space left on device"):
        copy_files(root, disk, found_in(root))
