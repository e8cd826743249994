from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
import torch

from hpcddp.core.errors import HpcddpError
from hpcddp.core.point import Data
from hpcddp.data import TrainLoader, eval_batches
from hpcddp.data.pictures.cuts import RandomCut, middle
from hpcddp.data.pictures.damaged import DamagedPictures, damaged_of_all
from hpcddp.data.pictures.decoders import make_decoder
from hpcddp.data.pictures.imagenet import EvalImages, TrainImages, open_imagenet
from hpcddp.data.sampling import EpochOrder
from tests.data.files import write_picture

IMAGENET = Data(name="imagenet")
PICTURES = 24


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Pictures of two classes that all differ, in both splits."""
    for folder in ("train", "val"):
        for number in range(PICTURES):
            write_picture(tmp_path / folder / f"n{number // 12}" / f"{number:02d}.JPEG", (250, 240), seed=number)
    return tmp_path


def train(tree: Path) -> TrainImages:
    source = open_imagenet(IMAGENET, tree, "train")
    assert isinstance(source, TrainImages)
    return source


def damage(tree: Path, folder: str, *numbers: int) -> None:
    for number in numbers:
        (tree / folder / f"n{number // 12}" / f"{number:02d}.JPEG").write_bytes(b"no picture")


def expected(source: EvalImages, tree: Path, number: int, draw: str) -> torch.Tensor:
    """The picture as it is trained on."""
    content = (tree / "train" / source.name(number)).read_bytes()
    return make_decoder("auto").pixels(content, RandomCut(f"{draw}/{number}"))


def test_the_next_picture_of_the_batch_stands_in(tree: Path) -> None:
    """With its own pixels and label, the first behind the last; the others stay where they are."""
    damage(tree, "train", 3, 4, 20)
    source = train(tree)
    images, labels = source.drawn_batch(torch.tensor([3, 15, 4, 8, 20]), "d")
    for image, number in zip(images, [15, 15, 8, 8, 15], strict=True):
        assert torch.equal(image, expected(source, tree, number, "d"))
    assert labels.tolist() == [1, 1, 0, 0, 1]
    assert damaged_of_all([source.damaged.packed()]) == [3, 4, 20]


def test_where_nothing_of_the_batch_is_left_the_split_goes_on(tree: Path) -> None:
    """By the next pictures in the order of names, the first behind the last."""
    damage(tree, "train", 5, 6, 23)
    source = train(tree)
    images, _ = source.drawn_batch(torch.tensor([5, 23]), "d")
    assert torch.equal(images[0], expected(source, tree, 7, "d"))
    assert torch.equal(images[1], expected(source, tree, 0, "d"))


def test_evaluation_replaces_by_the_split_s_order(tree: Path) -> None:
    """So that the samples are the same however many ranks share them, and each is read alike by itself and in its batch."""
    damage(tree, "val", 2, 11, 23)
    intact = [index for index in range(PICTURES) if index not in (2, 11, 23)]
    served = [next((other for other in intact if other >= index), 0) for index in range(PICTURES)]
    for ranks in (1, 3):
        source = open_imagenet(IMAGENET, tree, "eval")
        batches = [
            batch for rank in range(ranks) for batch in eval_batches(source, batch_size=5, rank=rank, ranks=ranks, workers=0)
        ]
        images = torch.cat([images for images, _ in batches])
        for image, index in zip(images, served, strict=True):
            content = (tree / "val" / source.name(index)).read_bytes()
            assert torch.equal(image, make_decoder("auto").pixels(content, middle))


def test_each_damaged_picture_is_counted_once_by_rank_and_processes(tree: Path) -> None:
    """Two ranks with two loader processes each, over three epochs; every batch is full."""
    damage(tree, "train", 0, 7, 13)
    packed, labels = [], []
    for rank in range(2):
        source = train(tree)
        loader = TrainLoader(source, batch_size=4, rank=rank, ranks=2, workers=2, seed=4, pin_memory=False)
        labels += [len(labels) for epoch in range(3) for _, labels in loader.epoch(epoch)]
        packed.append(source.damaged.packed())
    assert damaged_of_all(packed) == [0, 7, 13]
    assert labels == [4] * 3 * 3 * 2


def test_replacements_follow_the_epoch_s_order(tree: Path) -> None:
    """Of every batch of an epoch: the next one that is no damaged picture, of the same batch of the same rank."""
    bad = {1, 2, 9, 16}
    damage(tree, "train", *bad)
    source = train(tree)
    loader = TrainLoader(source, batch_size=6, rank=0, ranks=1, workers=1, seed=9, pin_memory=False)
    order = EpochOrder(PICTURES, 9, 2).samples_at(torch.arange(PICTURES)).tolist()
    for step, (images, _) in enumerate(loader.epoch(2)):
        batch = order[6 * step : 6 * step + 6]
        for place, image in enumerate(images):
            following = batch[place:] + batch[:place]
            number = next(index for index in following if index not in bad)
            assert torch.equal(image, expected(source, tree, number, "9/2"))


def test_odd_files_among_pictures_cost_a_count_each(
    tree: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A socket, a pipe, a device, a folder, links out of the tree and to nowhere, names of any bytes. Links within are read."""
    folder, outside = tree / "train" / "n0", tmp_path_factory.mktemp("outside") / "secret.JPEG"
    write_picture(outside, (250, 240))
    with socket.socket(socket.AF_UNIX) as listening:
        monkeypatch.chdir(folder)
        listening.bind("s.JPEG")
    os.mkfifo(folder / "p.JPEG")
    (folder / "f.JPEG").mkdir()
    (folder / "o.JPEG").symlink_to(outside)
    (folder / "x.JPEG").symlink_to(tree / "nowhere.JPEG")
    (folder / "l.JPEG").symlink_to(folder / "l.JPEG")
    (folder / "new\nline.JPEG").write_bytes(b"")
    (folder / "d.JPEG").symlink_to("/dev/zero")
    (folder / "i.JPEG").symlink_to("00.JPEG")
    write_picture(folder / "\N{SNOWMAN}\udcff.JPEG", (250, 240))
    with open(folder / "h.JPEG", "wb") as sparse:
        sparse.truncate(2**33)
    source = train(tree)
    source.batch(torch.arange(len(source)))
    names = {source.name(index) for index in damaged_of_all([source.damaged.packed()])}
    assert names == {f"n0/{name}.JPEG" for name in ("s", "p", "f", "o", "x", "l", "d", "h", "new\nline")}
    reasons = {source.name(index)[3]: source.why_damaged(index) for index in range(len(source)) if index in source.damaged}
    assert "symbolic link out of" in reasons["o"]
    assert "symbolic link out of" in reasons["d"]
    assert "not a regular file" in reasons["p"]


def test_a_class_folder_out_of_the_tree_is_refused(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Its pictures are another data set's; the split's folder, and one class for another, may be links."""
    outside = tmp_path_factory.mktemp("outside")
    (tree / "val").rename(outside / "val")
    (tree / "val").symlink_to(outside / "val")
    (tree / "train" / "n2").symlink_to(tree / "train" / "n1")
    assert len(train(tree)) == PICTURES + 12
    assert len(open_imagenet(IMAGENET, tree, "eval")) == PICTURES
    (tree / "train" / "n3").symlink_to(outside)
    with pytest.raises(HpcddpError, match=r"train/n3 is a symbolic link out of"):
        train(tree)


def test_a_split_without_any_picture_to_decode_ends_with_a_sentence(tree: Path) -> None:
    """As when a file system is gone: nothing could stand in."""
    damage(tree, "train", *range(PICTURES))
    with pytest.raises(HpcddpError, match=r"none of 24 pictures from 'n0/02.JPEG' on can be decoded \(it is no picture"):
        train(tree).batch(torch.tensor([2, 3]))


def test_packed_counts_travel_as_text() -> None:
    """The union of what ranks found; little where little is damaged, and no more than a few hundred KB where much is."""
    first, second = DamagedPictures(1_281_167), DamagedPictures(1_281_167)
    for index in range(0, 1_281_167, 1281):
        (first if index % 2 else second).add(index)
    second.add(1_281_166)
    assert damaged_of_all([first.packed(), second.packed()]) == sorted({*range(0, 1_281_167, 1281), 1_281_166})
    assert len(first.packed()) < 20_000
