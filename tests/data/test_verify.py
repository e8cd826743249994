"""What is damaged is named, whatever it is; what is not damaged passes."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from hpcddp.cli import main
from hpcddp.core import official_files
from hpcddp.core.data_task import DataTask
from hpcddp.core.errors import HpcddpError, UsageError
from hpcddp.core.official_files import OfficialFile, OfficialSet
from hpcddp.data.writing.pack import pack_imagenet
from hpcddp.data.writing.tasks import run_task
from hpcddp.data.writing.verify import Verified, verify_bigmnist, verify_imagenet, verify_official
from tests.data.files import write_imagenet, write_mnist, write_picture
from tests.data.writing.test_prepare import prepare

Harm = Callable[[Path], object]


def verify(function: Callable[..., Verified], root: Path, processes: int = 1) -> Verified:
    reported: list[tuple[int, int]] = []
    found = function(root, progress=lambda done, total: reported.append((done, total)), processes=processes)
    assert reported[0][0] == 0
    assert reported[-1][0] == reported[-1][1]
    return found


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of bigMNIST, which tests leave as it is."""
    root = tmp_path_factory.mktemp("shards")
    prepare(root)
    return root


@pytest.mark.parametrize("processes", [1, 3])
def test_shards_as_they_were_made_pass(shards: Path, processes: int) -> None:
    """With how much was read."""
    found = verify(verify_bigmnist, shards, processes)
    assert found.sentence() == f"{shards}: 14 files with 13,200 samples for training and 9 more read, none is damaged"


def flip(file: Path, at: int = -1) -> None:
    content = bytearray(file.read_bytes())
    content[at] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize(
    ("harm", "name", "reason"),
    [
        (lambda root: flip(root / "train-00003.u8"), "train-00003.u8", "its SHA-256 is [0-9a-f]{64}, not [0-9a-f]{64}"),
        (lambda root: flip(root / "eval.labels.u8"), "eval.labels.u8", "its SHA-256 is"),
        (lambda root: (root / "train-00000.u8").write_bytes(b"x"), "train-00000.u8", "it has 1 bytes, not 1,724,800"),
        (lambda root: (root / "train-00005.labels.u8").unlink(), "train-00005.labels.u8", "No such file"),
    ],
)
def test_damaged_shards_are_named(tmp_path: Path, shards: Path, harm: Harm, name: str, reason: str) -> None:
    """One bit is enough; the sentence says what to do, and what it says brings the data back."""
    for file in shards.glob("[!.]*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    harm(tmp_path)
    found = verify(verify_bigmnist, tmp_path)
    (line,) = found.lines()
    assert re.match(f"{name}: {reason}", line)
    with pytest.raises(HpcddpError, match=f"1 damaged among 14 files.*: {name}; remove these files and prepare"):
        found.sentence()
    (tmp_path / name).unlink(missing_ok=True)
    prepare(tmp_path)
    assert not verify(verify_bigmnist, tmp_path).damaged


def test_a_folder_of_an_earlier_version_has_its_lengths_and_labels_compared(tmp_path: Path, shards: Path) -> None:
    """And it is said that there are no checksums."""
    for file in shards.glob("[!.]*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    plain = json.loads((tmp_path / "bigmnist.json").read_text())
    del plain["sha256"]
    (tmp_path / "bigmnist.json").write_text(json.dumps(plain))
    assert "an earlier version prepared it without checksums" in verify(verify_bigmnist, tmp_path).sentence()
    (tmp_path / "train-00002.u8").unlink()
    prepare(tmp_path)
    assert "an earlier version prepared 12 files without checksums" in verify(verify_bigmnist, tmp_path).sentence()
    flip(tmp_path / "train-00000.labels.u8", 10)
    (tmp_path / "train-00001.labels.u8").write_bytes(bytes([10]) * 2200)
    assert list(verify(verify_bigmnist, tmp_path).lines()) == ["train-00001.labels.u8: it holds the label 10; digits have 0 to 9"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "cannot be read as a manifest"),
        ("[" * 100_000, "cannot be read as a manifest"),
        ("\udcff", "cannot be read as a manifest"),
        ("3", "is no manifest that this version reads"),
        ('{"schema": 2, "sticks": 3}', "is of a newer version of hpcddp .schema 2; this one reads 1.: use that version"),
    ],
)
def test_a_manifest_that_is_none_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    """Of shards and of tar files: a sentence."""
    for name, function in (("bigmnist.json", verify_bigmnist), ("imagenet.json", verify_imagenet)):
        (tmp_path / name).write_bytes(text.encode("utf-8", "surrogateescape"))
        with pytest.raises(UsageError, match=sentence):
            verify(function, tmp_path)


def test_what_is_not_prepared_is_said(tmp_path: Path) -> None:
    """With the command that does it."""
    with pytest.raises(UsageError, match=r"holds no bigmnist.json: `hpcddp data prepare bigmnist --root"):
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
    assert verify(verify_imagenet, folder, processes).sentence() == f"{folder}: 16 pictures read, none is damaged"
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
    with pytest.raises(HpcddpError, match=r"4 damaged among 19 pictures: .* and 1 more; fetch them again"):
        found.sentence()


def test_tar_files_are_compared_with_their_checksums(folder: Path, tmp_path: Path) -> None:
    """One bit between two pictures is enough; a tar whose index is another's is named, and so is one that is missing."""
    out = tmp_path / "out"
    pack_imagenet(folder, out, progress=lambda done, total: None, samples_per_shard=4)
    assert verify(verify_imagenet, out, 2).sentence() == f"{out}: 16 pictures in 4 tar files read, none is damaged"
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
    """Packed or not, wherever in the folder they lie."""
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


def test_the_command_names_all_and_fails(tmp_path: Path, shards: Path) -> None:
    """Each damaged file in a line of its own on stdout; the same as a job's task."""
    for file in shards.glob("[!.]*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    arguments = ["data", "verify", "bigmnist", "--root", str(tmp_path), "--processes", "1"]
    result = CliRunner().invoke(main, arguments)
    assert (result.exit_code, "none is damaged" in result.stdout) == (0, True), result.output
    for name in ("train-00001.u8", "train-00002.u8"):
        flip(tmp_path / name)
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 1
    assert [line.partition(":")[0] for line in result.stdout.splitlines()] == ["train-00001.u8", "train-00002.u8"]
    with pytest.raises(HpcddpError, match="2 damaged among"):
        run_task(DataTask(action="verify", data="bigmnist", options={"root": str(tmp_path)}), lambda done, total: None)
