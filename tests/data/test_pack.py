from __future__ import annotations

import hashlib
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from hpcddp.cli import main
from hpcddp.core.errors import HpcddpError
from hpcddp.core.point import Data
from hpcddp.data import TrainLoader
from hpcddp.data.pictures.image_folder import ImageFolder
from hpcddp.data.pictures.imagenet import open_imagenet
from hpcddp.data.pictures.tar_shards import TAR_MANIFEST, TarShards, index_file, read_pack_manifest
from hpcddp.data.writing.folder import OnProgress
from hpcddp.data.writing.pack import pack_imagenet
from tests.data.files import SPLITS, killed_at_random, twice_at_once, write_picture

IMAGENET = Data(name="imagenet")
SHARD = 5


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Twelve training pictures, one of them damaged, and names of any bytes; four for evaluation."""
    root = tmp_path / "folder"
    for number in range(12):
        write_picture(root / "train" / f"n{number % 2}" / f"{number}\N{SNOWMAN}\n\udcff.JPEG", (250, 240), seed=number)
    for number in range(4):
        write_picture(root / "val" / f"n{number % 2}" / f"{number}.JPEG", (250, 240), seed=50 + number)
    (root / "train" / "n1" / "link.JPEG").symlink_to("/etc/passwd")
    return root


def packed(folder: Path, out: Path, progress: OnProgress = lambda done, total: None, processes: int = 1) -> Path:
    pack_imagenet(folder, out, progress=progress, processes=processes, samples_per_shard=SHARD)
    return out


def sums(out: Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(out.iterdir()) if file.is_file()}


def test_tar_files_hold_the_samples_of_the_folder(folder: Path, tmp_path: Path) -> None:
    """In its order, with its names, labels and damaged ones: batches are the folder's."""
    out = packed(folder, tmp_path / "out")
    for split in SPLITS:
        ours, theirs = (open_imagenet(IMAGENET, root, split) for root in (out, folder))
        assert [ours.name(index) for index in range(len(ours))] == [theirs.name(index) for index in range(len(theirs))]
        for found, expected in zip(ours.batch(torch.arange(len(ours))), theirs.batch(torch.arange(len(ours))), strict=True):
            assert torch.equal(found, expected)
    options = {"batch_size": 6, "rank": 1, "ranks": 2, "workers": 1, "seed": 4, "pin_memory": False}
    tars, files = (TrainLoader(open_imagenet(IMAGENET, root, "train"), **options) for root in (out, folder))  # type: ignore[arg-type]
    for (images, labels), (expected, of) in zip(tars.epoch(1), files.epoch(1), strict=True):
        assert torch.equal(images, expected)
        assert torch.equal(labels, of)


@pytest.mark.parametrize("damaged", ["{", "[]", "3", '{"tar_bytes": SIZE}'])
def test_a_tar_with_a_damaged_index_is_packed_again(folder: Path, tmp_path: Path, damaged: str) -> None:
    out = packed(folder, tmp_path / "out")
    expected, tar = sums(out), out / "train-00001.tar"
    (out / "train-00001.tar.json").write_text(damaged.replace("SIZE", str(tar.stat().st_size)))
    assert sums(packed(folder, out)) == expected


def test_every_sample_is_served_once(folder: Path, tmp_path: Path) -> None:
    out = packed(folder, tmp_path / "out")
    for split in SPLITS:
        pictures = TarShards(out, split)
        contents = [pictures.content(index) for index in range(len(pictures.labels))]
        assert len({content for content in contents if content}) == len([content for content in contents if content])
        assert contents.count(b"") == (split == "train")


def test_others_can_read_them(folder: Path, tmp_path: Path) -> None:
    """WebDataset's layout: files of one key side by side, the picture and its class; no pickles; checksums in the manifest."""
    out = packed(folder, tmp_path / "out")
    pictures, numbers = ImageFolder(folder, "train"), []
    for shard in read_pack_manifest(out).train:
        assert hashlib.sha256((out / shard.name).read_bytes()).hexdigest() == shard.sha256
        with tarfile.open(out / shard.name) as archive:
            members = archive.getmembers()
            for picture, label in zip(members[::2], members[1::2], strict=True):
                number, extension = picture.name.split(".")
                assert (extension, label.name) == ("jpg", f"{number}.cls")
                file = archive.extractfile(label)
                assert file is not None
                assert int(file.read()) == int(pictures.labels[int(number)])
                numbers.append(int(number))
    assert numbers == list(range(13))


@pytest.mark.dear
def test_killed_anywhere_it_goes_on_to_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    expected = sums(packed(folder, tmp_path / "expected"))
    for root in killed_at_random(lambda out: packed(folder, out, processes=2), tmp_path / "killed"):
        assert sums(root) == expected


def test_two_at_once_end_in_one_good_copy(folder: Path, tmp_path: Path) -> None:
    twice_at_once(lambda out: packed(folder, out, processes=2), tmp_path / "out")
    assert sums(tmp_path / "out") == sums(packed(folder, tmp_path / "expected"))


def test_progress_counts_what_is_there_already(folder: Path, tmp_path: Path) -> None:
    out, reported = packed(folder, tmp_path / "out"), list[tuple[int, int]]()
    (out / "train-00001.tar").unlink()
    packed(folder, out, lambda done, total: reported.append((done, total)))
    assert reported == [(done, 17) for done in range(12, 18)]


Harm = Callable[[Path, Path], object]


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda first, tar: index_file(tar).unlink(), r"the index of .*train-00001.tar is missing"),
        (lambda first, tar: tar.unlink(), r"the tar file .*train-00001.tar is missing"),
        (lambda first, tar: index_file(tar).write_text("{"), "is not an index of a tar file"),
        (lambda first, tar: index_file(first).rename(index_file(tar)), "is missing|its index is of one"),
        (lambda first, tar: tar.write_bytes(first.read_bytes()), "index is of|is of another tar"),
        (lambda first, tar: tar.write_bytes(bytes(tar.stat().st_size)), "is of another tar"),
        (lambda first, tar: manifest(tar).write_text(manifest(tar).read_text().replace(first.stem, "../x")), "does not exist"),
    ],
)
def test_what_does_not_belong_together_is_refused(folder: Path, tmp_path: Path, harm: Harm, message: str) -> None:
    """With a sentence, before anything is trained on."""
    out = packed(folder, tmp_path / "out")
    harm(out / "train-00000.tar", out / "train-00001.tar")
    with pytest.raises(HpcddpError, match=message):
        open_imagenet(IMAGENET, out, "train")


def manifest(tar: Path) -> Path:
    return tar.with_name(TAR_MANIFEST)


def test_a_picture_overwritten_later_is_a_damaged_one(folder: Path, tmp_path: Path) -> None:
    """Its place in the tar holds something else: it is never read as that."""
    out = packed(folder, tmp_path / "out")
    index = json.loads((out / "train-00001.tar.json").read_text())
    with open(out / "train-00001.tar", "r+b") as file:
        file.seek(index["offsets"][2] - 512)
        file.write(b"x" * 512)
    source = open_imagenet(IMAGENET, out, "train")
    source.batch(torch.tensor([6, 7, 8]))
    assert [index for index in range(13) if index in source.damaged] == [7]


def test_the_command_packs_and_says_what_it_could_not_read(folder: Path, tmp_path: Path) -> None:
    arguments = ["data", "pack", "imagenet", "--root", str(folder), "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    assert "17 images in 2 tar files in" in result.output
    assert "of which 1 cannot be read and are empty" in result.output
    write_picture(folder / "train" / "n1" / "another.JPEG", (250, 240))
    with pytest.raises(HpcddpError, match="has other images than the folder"):
        packed(folder, tmp_path / "out")
    (folder / "train" / "n3").mkdir()
    with pytest.raises(HpcddpError, match="val lacks the class `n3`: train and val must have the same classes"):
        packed(folder, tmp_path / "other")
