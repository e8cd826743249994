"""What somebody may give to prepare, pack and verify: a sentence and exit 2, never a trace."""

from __future__ import annotations

import os
import shlex
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from hpcddp.cli import main
from hpcddp.data.writing.pack import pack_imagenet
from hpcddp.data.writing.verify import verify_imagenet
from tests.data.files import write_imagenet

PREPARE = "prepare bigmnist --copies 1 --variants plain --digits sklearn --root {root}"
VERIFY = "verify bigmnist --root {root}"
PACK = "pack imagenet --root {root} --out {root}/out"
VERIFY_PICTURES = "verify imagenet --root {root}"


def nothing(root: Path) -> None:
    pass


def text(name: str, content: str = "x") -> Callable[[Path], None]:
    def write(root: Path) -> None:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)

    return write


def folders(*names: str) -> Callable[[Path], None]:
    def make(root: Path) -> None:
        for name in names:
            (root / name).mkdir(parents=True)

    return make


def link_out(root: Path) -> None:
    folders("train/a", "val/a", "../away/b")(root)
    for split in ("train", "val"):
        (root / split / "b").symlink_to(root / "../away/b")


def other_seed(root: Path) -> None:
    CliRunner().invoke(main, ["data", *shlex.split(PREPARE.format(root=root)), "--seed", "2"])


@pytest.mark.dear
@pytest.mark.parametrize(
    ("harm", "command", "sentence"),
    [
        (text("file"), PREPARE.replace("{root}", "{root}/file"), "Directory '{root}/file' is a file"),
        (
            text("file"),
            PREPARE.replace("{root}", "{root}/file/new"),
            "into {root}/file/new: Not a directory",
        ),
        (text("train-00000.u8"), PREPARE, "holds shards but no bigmnist.json to say of what"),
        (text("bigmnist.json", '{"schema": 2}'), PREPARE, "is of a newer version of hpcddp (schema 2; this one reads 1)"),
        (text("bigmnist.json", "[]"), VERIFY, "is no manifest that this version reads"),
        (other_seed, PREPARE, "holds another bigMNIST, with seed = 2 (asked for: 1)"),
        (nothing, VERIFY, "holds no bigmnist.json: `hpcddp data prepare bigmnist"),
        (nothing, PACK, "no folder train/ of ImageNet in {root}"),
        (folders("train/a", "val/a"), PACK, "no pictures (.jpeg, .jpg, .png) in {root}/train"),
        (folders("train/a", "val/b"), PACK, "lacks the class `a`: train and val must have the same classes"),
        (folders("train/a", "val/b"), VERIFY_PICTURES, "lacks the class `a`: train and val must have the same classes"),
        (text("train"), PACK, "no folder train/ of ImageNet in {root}"),
        (link_out, PACK, "{root}/train/b is a symbolic link out of {root}"),
        (text("imagenet.json", '{"schema": 9}'), VERIFY_PICTURES, "is of a newer version of hpcddp (schema 9; this one reads 1)"),
        (text("imagenet.json", '{"classes": [], "train": [], "val": []}'), VERIFY_PICTURES, "names no tar file of train"),
        (nothing, "verify mnist --root {root}", "no train-images-idx3-ubyte or train-images-idx3-ubyte.gz in {root}"),
        (nothing, "verify mnist --root {root}", "official files there: `hpcddp data fetch mnist --root {root}`"),
        (nothing, "verify cifar10 --root {root}", "binary.tar.gz there: `hpcddp data fetch cifar10 --root {root}`"),
        (text("data_batch_1"), "verify cifar10 --root {root}", "a pickle, which can run code when it is opened"),
    ],
)
def test_bad_input_is_a_sentence(tmp_path: Path, harm: Callable[[Path], None], command: str, sentence: str) -> None:
    """With the thing, the value and the next step."""
    root = tmp_path / "root"
    root.mkdir()
    harm(root)
    result = CliRunner().invoke(main, ["data", *shlex.split(command.format(root=root))])
    assert sentence.format(root=root) in result.output
    assert (result.exit_code, result.exception if not isinstance(result.exception, SystemExit) else None) == (2, None)


@pytest.mark.parametrize("command", [PREPARE, VERIFY, PACK, VERIFY_PICTURES, "verify mnist --root {root}"])
def test_a_folder_that_may_not_be_read(tmp_path: Path, command: str) -> None:
    """Somebody else's; the one above may be entered."""
    root = tmp_path / "root"
    root.mkdir(mode=0o700)
    for folder in (tmp_path, *tmp_path.parents[:3]):
        if folder.owner() == root.owner() and folder != Path("/tmp"):
            folder.chmod(0o755)
    before = os.geteuid()
    if before:
        root.chmod(0)
    else:
        os.seteuid(65534)
    try:
        result = CliRunner().invoke(main, ["data", *shlex.split(command.format(root=root))])
    finally:
        os.seteuid(before)
        root.chmod(0o700)
    assert "Permission denied" in result.output
    assert str(root) in result.output
    assert result.exit_code == 2


def test_what_is_no_picture_costs_a_count_and_nothing_else(tmp_path: Path) -> None:
    """Sockets, pipes, devices, folders and links out of the tree under a picture's name, and names with line breaks: packing goes
    on, and verifying names each.
    """
    root = tmp_path / "root"
    write_imagenet(root, per_class=1)
    train = root / "train" / "n01440764"
    os.mkfifo(train / "pipe.JPEG")
    (train / "folder.JPEG").mkdir()
    (train / "out.JPEG").symlink_to("/etc/passwd")
    (train / "device.JPEG").symlink_to("/dev/zero")
    (train / "broken\nlink.JPEG").symlink_to("nowhere")
    before = os.getcwd()
    os.chdir(train)  # a socket's address is short
    try:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind("socket.JPEG")
    finally:
        os.chdir(before)
    found = verify_imagenet(root, progress=lambda done, total: None)
    assert [name.rpartition("/")[2] for name, _ in found.damaged] == [
        "broken\nlink.JPEG",
        "device.JPEG",
        "folder.JPEG",
        "out.JPEG",
        "pipe.JPEG",
        "socket.JPEG",
    ]
    assert all("\n" not in line for line in found.lines())
    packed = pack_imagenet(root, tmp_path / "out", progress=lambda done, total: None, processes=2)
    assert (packed.pictures, packed.unreadable) == (10, 6)
    assert len(verify_imagenet(tmp_path / "out", progress=lambda done, total: None).damaged) == 6
