"""What is damaged is named, and what somebody may give is a sentence; what a job of `hpcddp data` calls."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import json
import os
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from hpcddp.cli import main
from hpcddp.core import official_files
from hpcddp.core.data_job import DataTask
from hpcddp.core.errors import HpcddpError, UsageError
from hpcddp.core.official_files import OfficialFile, OfficialSet
from hpcddp.core.point import VARIANTS
from hpcddp.data.writing.pack import pack_imagenet
from hpcddp.data.writing.prepare import prepare_bigmnist
from hpcddp.data.writing.tasks import TASKS, run_task
from hpcddp.data.writing.verify import Verified, verify_bigmnist, verify_imagenet, verify_official
from tests.data.files import noise_digits, write_imagenet, write_mnist, write_picture

Harm = Callable[[Path], object]

DIGITS = noise_digits(110, 9)


def verify(function: Callable[..., Verified], root: Path, processes: int = 1) -> Verified:
    reported: list[tuple[int, int]] = []
    found = function(root, progress=lambda done, total: reported.append((done, total)), processes=processes)
    assert reported[0][0] == 0
    assert reported[-1][0] == reported[-1][1]
    return found


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("shards")
    prepare(root)
    return root


def prepare(root: Path) -> None:
    """2 copies x 6 variants x 110 digits in 6 shards."""
    prepare_bigmnist(
        root, digits=DIGITS, copies=2, variants=VARIANTS, seed=1, progress=lambda done, total: None, shard_samples=220
    )


@pytest.fixture
def shards(prepared: Path, tmp_path: Path) -> Path:
    """A folder of bigMNIST, to be harmed."""
    return shutil.copytree(prepared, tmp_path / "shards")


@pytest.mark.parametrize("processes", [1, 3])
def test_shards_as_they_were_made_pass(shards: Path, processes: int) -> None:
    found = verify(verify_bigmnist, shards, processes)
    assert found.sentence() == f"{shards}: 14 files with 1,320 samples for training and 9 more read, none is damaged"


def flip(file: Path, at: int = -1) -> None:
    content = bytearray(file.read_bytes())
    content[at] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize(
    ("harm", "name", "reason"),
    [
        (lambda root: flip(root / "train-00003.u8"), "train-00003.u8", "its SHA-256 is [0-9a-f]{64}, not [0-9a-f]{64}"),
        (lambda root: flip(root / "eval.labels.u8"), "eval.labels.u8", "its SHA-256 is"),
        (lambda root: (root / "train-00000.u8").write_bytes(b"x"), "train-00000.u8", "it has 1 bytes, not 172,480"),
        (lambda root: (root / "train-00005.labels.u8").unlink(), "train-00005.labels.u8", "No such file"),
    ],
)
def test_damaged_shards_are_named(shards: Path, harm: Harm, name: str, reason: str) -> None:
    """One bit is enough; the sentence says what to do, and what it says brings the data back."""
    harm(shards)
    found = verify(verify_bigmnist, shards)
    (line,) = found.lines()
    assert re.match(f"{name}: {reason}", line)
    with pytest.raises(HpcddpError, match=f"1 damaged among 14 files.*: {name}; delete these files, then prepare"):
        found.sentence()
    (shards / name).unlink(missing_ok=True)
    prepare(shards)
    assert not verify(verify_bigmnist, shards).damaged


def test_a_folder_of_an_earlier_version_has_its_lengths_and_labels_compared(shards: Path) -> None:
    """And it is said that there are no checksums."""
    plain = json.loads((shards / "bigmnist.json").read_text())
    del plain["sha256"]
    (shards / "bigmnist.json").write_text(json.dumps(plain))
    assert "an earlier version prepared it without checksums" in verify(verify_bigmnist, shards).sentence()
    (shards / "train-00002.u8").unlink()
    prepare(shards)
    assert "an earlier version prepared 12 files without checksums" in verify(verify_bigmnist, shards).sentence()
    flip(shards / "train-00000.labels.u8", 10)
    (shards / "train-00001.labels.u8").write_bytes(bytes([10]) * 220)
    assert list(verify(verify_bigmnist, shards).lines()) == ["train-00001.labels.u8: it holds the label 10; digits have 0 to 9"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "cannot be read as a manifest"),
        ("[" * 100_000, "cannot be read as a manifest"),
        ("\udcff", "cannot be read as a manifest"),
        ("3", "is not a manifest that this version reads"),
        ('{"copies": 0}', "is not a manifest that this version reads"),
        ('{"schema": 2, "sticks": 3}', "is of a newer version of hpcddp .schema 2; this one reads 1.: use that version"),
    ],
)
def test_a_manifest_that_is_none_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    for name, function in (("bigmnist.json", verify_bigmnist), ("imagenet.json", verify_imagenet)):
        (tmp_path / name).write_bytes(text.encode("utf-8", "surrogateescape"))
        with pytest.raises(UsageError, match=sentence):
            verify(function, tmp_path)


def test_what_is_not_prepared_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"holds no bigmnist.json. Write the missing files with `hpcddp data prepare bigmnist"):
        verify(verify_bigmnist, tmp_path)
    (tmp_path / "bigmnist.json.part").touch()
    with pytest.raises(UsageError, match="holds an unfinished bigMNIST"):
        verify(verify_bigmnist, tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "folder"
    write_imagenet(root, per_class=4)
    return root


@pytest.mark.parametrize("processes", [1, 2])
def test_every_picture_is_decoded(folder: Path, processes: int) -> None:
    """In full: a file that ends too soon is damaged, wherever it ends; a name with a line break stays one line."""
    assert verify(verify_imagenet, folder, processes).sentence() == f"{folder}: 16 images read, none is damaged"
    train = folder / "train" / "n01440764"
    (train / "empty.JPEG").touch()
    (train / "out.JPEG").symlink_to("/etc/hostname")
    cut = train / "n01440764_1.JPEG"
    cut.write_bytes(cut.read_bytes()[:-200])
    write_picture(train / "two\nlines\x1b[31m.JPEG", (250, 240))
    flip(train / "two\nlines\x1b[31m.JPEG", 0)
    found = verify(verify_imagenet, folder, processes)
    lines = list(found.lines())
    assert [line.partition(": ")[0] for line in lines] == [
        "train/n01440764/empty.JPEG",
        "train/n01440764/n01440764_1.JPEG",
        "train/n01440764/out.JPEG",
        "train/n01440764/two lines\\x1b[31m.JPEG",
    ]
    with pytest.raises(HpcddpError, match=r"4 damaged among 19 images: .* and 1 more; fetch them again"):
        found.sentence()


def test_tar_files_are_compared_with_their_checksums(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    pack_imagenet(folder, out, progress=lambda done, total: None, samples_per_shard=4)
    assert verify(verify_imagenet, out, 2).sentence() == f"{out}: 16 images in 4 tar files read, none is damaged"
    flip(out / "train-00000.tar")
    (out / "val-00000.tar").unlink()
    (out / "val-00001.tar.json").write_bytes((out / "train-00001.tar.json").read_bytes())
    lines = list(verify(verify_imagenet, out).lines())
    assert [line.partition(": ")[0] for line in lines] == ["train-00000.tar", "val-00000.tar", "val-00001.tar"]
    for name in ("train-00000.tar", "val-00001.tar"):
        (out / name).unlink()
    pack_imagenet(folder, out, progress=lambda done, total: None, samples_per_shard=4)
    assert not verify(verify_imagenet, out).damaged


def test_official_files_are_compared_with_their_checksums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_mnist(tmp_path / "MNIST" / "raw", packed=True)
    found = sorted((tmp_path / "MNIST" / "raw").iterdir())
    sums = tuple(OfficialFile(file.name, 0, hashlib.md5(file.read_bytes()).hexdigest()) for file in found)
    monkeypatch.setitem(official_files.OFFICIAL, "mnist", OfficialSet(files=sums, unpacked=(), sites=()))
    assert verify_official("mnist", tmp_path).sentence() == f"{tmp_path}: 4 files of mnist read, none is damaged"
    flip(found[0])
    (line,) = verify_official("mnist", tmp_path).lines()
    assert re.match(rf"{found[0].name}: its MD5 is [0-9a-f]{{32}}, the publisher's {sums[0].digest}", line)
    found[1].unlink()
    with pytest.raises(HpcddpError, match=f"no {found[1].stem} or {found[1].name}"):
        verify_official("mnist", tmp_path)


def test_the_command_names_all_and_fails(shards: Path) -> None:
    """Each damaged file in a line of its own on stdout; the same as a job's task."""
    arguments = ["data", "verify", "bigmnist", "--root", str(shards), "--processes", "1"]
    result = CliRunner().invoke(main, arguments)
    assert (result.exit_code, "none is damaged" in result.stdout) == (0, True), result.output
    for name in ("train-00001.u8", "train-00002.u8"):
        flip(shards / name)
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 1
    assert [line.partition(":")[0] for line in result.stdout.splitlines()] == ["train-00001.u8", "train-00002.u8"]
    with pytest.raises(HpcddpError, match="2 damaged among"):
        run_task(DataTask(action="verify", data="bigmnist", options={"root": str(shards)}), lambda done, total: None)


PREPARE = "prepare bigmnist --copies 1 --variants plain --digits sklearn --root {root}"
VERIFY = "verify bigmnist --root {root}"
PACK = "pack imagenet --root {root} --out {root}/out"
VERIFY_PICTURES = "verify imagenet --root {root}"


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


@pytest.mark.dear
@pytest.mark.parametrize(
    ("harm", "command", "sentence"),
    [
        (text("file"), PREPARE.replace("{root}", "{root}/file"), "Directory '{root}/file' is a file"),
        (text("file"), PREPARE.replace("{root}", "{root}/file/new"), "into {root}/file/new: Not a directory"),
        (folders(), PACK, "no folder train/ of ImageNet in {root}"),
        (folders("train/a", "val/a"), PACK, "no pictures (.jpeg, .jpg, .png) in {root}/train"),
        (folders("train/a", "val/b"), VERIFY_PICTURES, "lacks the class `a`: train and val must have the same classes"),
        (text("train"), PACK, "no folder train/ of ImageNet in {root}"),
        (link_out, PACK, "{root}/train/b is a symbolic link out of {root}"),
        (text("imagenet.json", '{"classes": [], "train": [], "val": []}'), VERIFY_PICTURES, "names no tar file of train"),
        (folders(), "verify mnist --root {root}", "official files there: `hpcddp data fetch mnist --root {root}`"),
        (text("data_batch_1"), "verify cifar10 --root {root}", "a pickle, which can run code when opened"),
    ],
)
def test_bad_input_is_a_sentence(tmp_path: Path, harm: Callable[[Path], None], command: str, sentence: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    harm(root)
    result = CliRunner().invoke(main, ["data", *shlex.split(command.format(root=root))])
    assert sentence.format(root=root) in result.output
    assert (result.exit_code, result.exception if not isinstance(result.exception, SystemExit) else None) == (2, None)


@pytest.mark.parametrize("command", [PREPARE, VERIFY, PACK, VERIFY_PICTURES, "verify mnist --root {root}"])
def test_a_folder_that_may_not_be_read(tmp_path: Path, command: str) -> None:
    importlib.import_module("sklearn.datasets")  # whose files the other user may not be able to read
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


@pytest.mark.parametrize(("action", "data"), sorted(TASKS))
def test_a_job_has_the_commands_options(action: str, data: str) -> None:
    context = click.Context(main)
    command: click.Command | None = main
    for word in ("data", action, data):
        assert isinstance(command, click.Group)
        command = command.get_command(context, word)
    assert command is not None
    of_function = {p.name: p.default for p in inspect.signature(TASKS[action, data]).parameters.values() if p.name != "here"}
    by_name = {str(option.name): option for option in command.params}
    assert set(of_function) <= set(by_name)
    for name, default in of_function.items():
        option = by_name[name]
        assert option.required == (default is inspect.Parameter.empty), name
        assert default in (None, inspect.Parameter.empty) or option.get_default(context) == default, name


def test_a_task_of_another_version() -> None:
    with pytest.raises(UsageError, match="no `hpcddp data fold imagenet` in this version"):
        run_task(DataTask(action="fold", data="imagenet"), lambda done, total: None)
