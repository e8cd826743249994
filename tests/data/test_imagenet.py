from __future__ import annotations

import os
import random
import socket
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torchvision.transforms.v2 import functional  # type: ignore[import-untyped]

from hpcddp.core.errors import HpcddpError
from hpcddp.core.point import Data
from hpcddp.data import TrainLoader, eval_batches, open_source
from hpcddp.data.pictures.cuts import RandomCut, middle_cut, random_box
from hpcddp.data.pictures.decoders import cut_picture, make_decoder
from hpcddp.data.pictures.image_folder import ImageFolder
from hpcddp.data.pictures.imagenet import DamagedPictures, EvalImages, TrainImages, damaged_of_all, open_imagenet
from tests.data.files import SPLITS, write_imagenet, write_picture

IMAGENET = Data(name="imagenet")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    write_imagenet(tmp_path)
    return tmp_path


def test_a_folder_of_jpegs_is_two_sources(tree: Path) -> None:
    for split in SPLITS:
        source = open_source(IMAGENET, split, str(tree))
        images, labels = source.batch(torch.tensor([5, 0, 3]))
        assert (len(source), source.shape, source.classes) == (6, (3, 224, 224), 1000)
        assert (images.shape, images.dtype) == ((3, 3, 224, 224), torch.uint8)
        assert labels.tolist() == [1, 0, 1]


def test_paths_come_back_from_the_packed_listing(tree: Path) -> None:
    odd = tree / "train" / "n01440764" / "b\udcff long name.jpg"
    write_picture(odd, (240, 240))
    (tree / "train" / "n01440764" / "notes.txt").touch()
    pictures = ImageFolder(tree, "train")
    expected = sorted(
        (tree / "train").glob("*/*.[jJ]*"), key=lambda path: (path.parent.name, path.name.encode(errors="surrogateescape"))
    )
    assert [pictures.path(index) for index in range(len(pictures.labels))] == expected
    assert odd in expected


def test_evaluation_pictures_are_cut_as_torchvision_cuts_them(tree: Path) -> None:
    for size in ((500, 375), (375, 500), (256, 256), (231, 900)):
        write_picture(tree / "x.jpg", size)
        with Image.open(tree / "x.jpg") as picture:
            expected = functional.center_crop(functional.resize(picture, [256]), [224])
            assert cut_picture(picture, middle_cut(*size)).tobytes() == expected.tobytes()


def test_training_pictures_are_cut_as_torchvision_cuts_them(tree: Path) -> None:
    write_picture(tree / "x.jpg", (500, 375))
    flips = 0
    with Image.open(tree / "x.jpg") as picture:
        for seed in range(8):
            draws = random.Random(str(seed))
            left, upper, right, lower = random_box(500, 375, draws)
            expected = functional.resized_crop(picture, upper, left, lower - upper, right - left, [224, 224])
            if draws.random() < 0.5:
                expected, flips = functional.horizontal_flip(expected), flips + 1
            assert cut_picture(picture, RandomCut(seed)(500, 375)).tobytes() == expected.tobytes()
    assert 0 < flips < 8


@given(width=st.integers(1, 900), height=st.integers(1, 900), seed=st.integers(0, 10**6))
def test_random_boxes_lie_in_the_picture(width: int, height: int, seed: int) -> None:
    left, upper, right, lower = random_box(width, height, random.Random(seed))
    assert 0 <= left < right <= width
    assert 0 <= upper < lower <= height


def test_random_boxes_cover_the_recipes_range() -> None:
    """Areas of 8 to 100 %, aspect ratios of 3/4 to 4/3, both ends reached (2 % margin for whole pixels)."""
    draws = random.Random(3)
    boxes = [random_box(500, 500, draws) for _ in range(4000)]
    areas = [(right - left) * (lower - upper) / 250_000 for left, upper, right, lower in boxes]
    aspects = [(right - left) / (lower - upper) for left, upper, right, lower in boxes]
    assert 0.078 < min(areas) < 0.09
    assert 0.9 < max(areas) <= 1
    assert 0.73 < min(aspects) < 0.77
    assert 1.3 < max(aspects) < 1.36


def test_each_picture_is_cut_at_random_for_itself(tmp_path: Path) -> None:
    for index in range(6):
        write_picture(tmp_path / "train" / "n01440764" / f"{index}.JPEG", (300, 300))
    images, _ = open_source(IMAGENET, "train", str(tmp_path)).batch(torch.arange(6))
    assert len({bytes(image.flatten().tolist()) for image in images}) == 6


def test_a_tree_of_other_shape_is_said(tree: Path) -> None:
    with pytest.raises(HpcddpError, match=r"no folder train/ of ImageNet in .*train/CLASS"):
        open_source(IMAGENET, "train", str(tree / "train"))
    (tree / "val" / "n99").mkdir()
    with pytest.raises(HpcddpError, match=r"val has a class `n99` that .*train lacks"):
        open_source(IMAGENET, "eval", str(tree))
    write_picture(tree / "flat" / "val" / "x.jpg", (9, 9))
    (tree / "flat" / "train").mkdir()
    with pytest.raises(HpcddpError, match=r"flat/val contains images but no folders. Sort them"):
        open_source(IMAGENET, "eval", str(tree / "flat"))
    with pytest.raises(HpcddpError, match=r"no pictures .* in .*flat/train"):
        open_source(IMAGENET, "train", str(tree / "flat"))


PICTURES = 24


@pytest.fixture
def numbered(tmp_path: Path) -> Path:
    """Pictures of two classes that all differ, in both splits."""
    for folder in ("train", "val"):
        for number in range(PICTURES):
            write_picture(tmp_path / folder / f"n{number // 12}" / f"{number:02d}.JPEG", (250, 240), seed=number)
    return tmp_path


def train(numbered: Path) -> TrainImages:
    source = open_imagenet(IMAGENET, numbered, "train")
    assert isinstance(source, TrainImages)
    return source


def damage(numbered: Path, folder: str, *numbers: int) -> None:
    for number in numbers:
        (numbered / folder / f"n{number // 12}" / f"{number:02d}.JPEG").write_bytes(b"no picture")


def expected(source: EvalImages, numbered: Path, number: int, draw: str) -> torch.Tensor:
    """The picture as it is trained on."""
    content = (numbered / "train" / source.name(number)).read_bytes()
    return make_decoder("auto").pixels(content, RandomCut(f"{draw}/{number}"))


def test_the_next_picture_of_the_batch_stands_in(numbered: Path) -> None:
    damage(numbered, "train", 3, 4, 20)
    source = train(numbered)
    images, labels = source.drawn_batch(torch.tensor([3, 15, 4, 8, 20]), "d")
    for image, number in zip(images, [15, 15, 8, 8, 15], strict=True):
        assert torch.equal(image, expected(source, numbered, number, "d"))
    assert labels.tolist() == [1, 1, 0, 0, 1]
    assert damaged_of_all([source.damaged.packed()]) == [3, 4, 20]


def test_where_nothing_of_the_batch_is_left_the_split_goes_on(numbered: Path) -> None:
    damage(numbered, "train", 5, 6, 23)
    source = train(numbered)
    images, _ = source.drawn_batch(torch.tensor([5, 23]), "d")
    assert torch.equal(images[0], expected(source, numbered, 7, "d"))
    assert torch.equal(images[1], expected(source, numbered, 0, "d"))


def test_evaluation_replaces_by_the_split_s_order(numbered: Path) -> None:
    """So that the samples are the same however many ranks share them, and each is read alike by itself and in its batch."""
    damage(numbered, "val", 2, 11, 23)
    intact = [index for index in range(PICTURES) if index not in (2, 11, 23)]
    served = [next((other for other in intact if other >= index), 0) for index in range(PICTURES)]
    for ranks in (1, 3):
        source = open_imagenet(IMAGENET, numbered, "eval")
        batches = [
            batch for rank in range(ranks) for batch in eval_batches(source, batch_size=5, rank=rank, ranks=ranks, workers=0)
        ]
        images = torch.cat([images for images, _ in batches])
        for image, index in zip(images, served, strict=True):
            content = (numbered / "val" / source.name(index)).read_bytes()
            assert torch.equal(image, make_decoder("auto").pixels(content, middle_cut))


def test_each_damaged_picture_is_counted_once_by_rank_and_processes(numbered: Path) -> None:
    damage(numbered, "train", 0, 7, 13)
    packed, labels = [], []
    for rank in range(2):
        source = train(numbered)
        loader = TrainLoader(source, batch_size=4, rank=rank, ranks=2, workers=2, seed=4, pin_memory=False)
        labels += [len(labels) for epoch in range(3) for _, labels in loader.epoch(epoch)]
        packed.append(source.damaged.packed())
    assert damaged_of_all(packed) == [0, 7, 13]
    assert labels == [4] * 3 * 3 * 2


def test_odd_files_among_pictures_cost_a_count_each(
    numbered: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, outside = numbered / "train" / "n0", tmp_path_factory.mktemp("outside") / "secret.JPEG"
    write_picture(outside, (250, 240))
    with socket.socket(socket.AF_UNIX) as listening:
        monkeypatch.chdir(folder)
        listening.bind("s.JPEG")
    os.mkfifo(folder / "p.JPEG")
    (folder / "f.JPEG").mkdir()
    (folder / "o.JPEG").symlink_to(outside)
    (folder / "x.JPEG").symlink_to(numbered / "nowhere.JPEG")
    (folder / "l.JPEG").symlink_to(folder / "l.JPEG")
    (folder / "new\nline.JPEG").write_bytes(b"")
    (folder / "d.JPEG").symlink_to("/dev/zero")
    (folder / "i.JPEG").symlink_to("00.JPEG")
    write_picture(folder / "\N{SNOWMAN}\udcff.JPEG", (250, 240))
    with open(folder / "h.JPEG", "wb") as sparse:
        sparse.truncate(2**33)
    source = train(numbered)
    source.batch(torch.arange(len(source)))
    names = {source.name(index) for index in damaged_of_all([source.damaged.packed()])}
    assert names == {f"n0/{name}.JPEG" for name in ("s", "p", "f", "o", "x", "l", "d", "h", "new\nline")}
    reasons = {source.name(index)[3]: source.why_damaged(index) for index in range(len(source)) if index in source.damaged}
    assert "symbolic link out of" in reasons["o"]
    assert "symbolic link out of" in reasons["d"]
    assert "not a regular file" in reasons["p"]


def test_a_class_folder_out_of_the_tree_is_refused(numbered: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Its pictures are another data set's; the split's folder, and one class for another, may be links."""
    outside = tmp_path_factory.mktemp("outside")
    (numbered / "val").rename(outside / "val")
    (numbered / "val").symlink_to(outside / "val")
    (numbered / "train" / "n2").symlink_to(numbered / "train" / "n1")
    assert len(train(numbered)) == PICTURES + 12
    assert len(open_imagenet(IMAGENET, numbered, "eval")) == PICTURES
    (numbered / "train" / "n3").symlink_to(outside)
    with pytest.raises(HpcddpError, match=r"train/n3 is a symbolic link out of"):
        train(numbered)


def test_a_split_without_any_picture_to_decode_ends_with_a_sentence(numbered: Path) -> None:
    damage(numbered, "train", *range(PICTURES))
    with pytest.raises(HpcddpError, match=r"none of 24 images from 'n0/02.JPEG' on can be decoded \(it is not an image"):
        train(numbered).batch(torch.tensor([2, 3]))


def test_packed_counts_travel_as_text() -> None:
    first, second = DamagedPictures(1_281_167), DamagedPictures(1_281_167)
    for index in range(0, 1_281_167, 1281):
        (first if index % 2 else second).add(index)
    second.add(1_281_166)
    assert damaged_of_all([first.packed(), second.packed()]) == sorted({*range(0, 1_281_167, 1281), 1_281_166})
    assert len(first.packed()) < 20_000
