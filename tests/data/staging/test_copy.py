"""Copies of data are what was read of their source, or none."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from hpcddp.core.errors import HpcddpError
from hpcddp.data.staging import copy
from hpcddp.data.staging.copy import copy_files
from hpcddp.data.staging.files import RootFiles, find_files
from tests.data.files import noise
from tests.small_disk import small_disk


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
    """Files by their content, the rest by its kind; progress counts each byte once."""
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
    """One bit, in a small file or a large one, after all was written."""
    to = target(tmp_path)
    in_threads = copy._in_threads

    def damage(function: object, parts: object, threads: int) -> object:
        if "check" in str(function):
            content = bytearray((to / "train/a" / name).read_bytes())
            content[500] ^= 1
            (to / "train/a" / name).write_bytes(content)
        return in_threads(function, parts, threads)  # type: ignore[arg-type]

    monkeypatch.setattr(copy, "_in_threads", damage)
    with pytest.raises(HpcddpError, match=f"{name} does not hold what was read of"):
        copy_files(root, to, found_in(root))


def test_a_source_that_changes_is_named(root: Path, tmp_path: Path) -> None:
    """A preparation that is still going on."""
    found = found_in(root)
    with (root / "train/a/05.JPEG").open("ab") as file:
        file.write(b"more")
    with pytest.raises(HpcddpError, match=r"05.JPEG had 5,000 bytes and now has 5,004: it was changed while it was copied"):
        copy_files(root, target(tmp_path), found)


def test_a_picture_that_cannot_be_read_is_empty_and_counted(root: Path, tmp_path: Path) -> None:
    """It counts as damaged where it lies, too; what is no picture ends the copying."""
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
