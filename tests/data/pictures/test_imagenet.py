from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torchvision.transforms.v2 import functional  # type: ignore[import-untyped]

from hpcddp.core.errors import HpcddpError
from hpcddp.core.point import Data
from hpcddp.data import TrainLoader, open_source
from hpcddp.data.pictures.cuts import RandomCut, middle, random_box
from hpcddp.data.pictures.decoders import cut_picture
from hpcddp.data.pictures.image_folder import ImageFolder
from tests.data.files import SPLITS, write_imagenet, write_picture

IMAGENET = Data(name="imagenet")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    write_imagenet(tmp_path)
    return tmp_path


def test_a_folder_of_jpegs_is_two_sources(tree: Path) -> None:
    """uint8 3 x 224 x 224; labels by sorted class name; always ImageNet's 1,000 classes."""
    for split in SPLITS:
        source = open_source(IMAGENET, split, str(tree))
        images, labels = source.batch(torch.tensor([5, 0, 3]))
        assert (len(source), source.shape, source.classes) == (6, (3, 224, 224), 1000)
        assert (images.shape, images.dtype) == ((3, 3, 224, 224), torch.uint8)
        assert labels.tolist() == [1, 0, 1]


def test_paths_come_back_from_the_packed_listing(tree: Path) -> None:
    """Also names of other lengths, in bytes that are not UTF-8, and none but pictures."""
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
    """Resize(256) and CenterCrop(224), pixel by pixel, for pictures wide and tall."""
    for size in ((500, 375), (375, 500), (256, 256), (231, 900)):
        write_picture(tree / "x.jpg", size)
        with Image.open(tree / "x.jpg") as picture:
            expected = functional.center_crop(functional.resize(picture, [256]), [224])
            assert cut_picture(picture, middle(*size)).tobytes() == expected.tobytes()


def test_training_pictures_are_cut_as_torchvision_cuts_them(tree: Path) -> None:
    """The drawn box resized to 224 x 224, then mirrored or not, pixel by pixel; both cases occur."""
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
    """Never empty, never outside, whatever the picture's shape."""
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


def test_draws_depend_on_seed_epoch_and_picture_only(tree: Path) -> None:
    """Two ranks with workers see the very images one rank sees; the next epoch's differ."""

    def epoch(n: int, ranks: int, workers: int) -> dict[int, bytes]:
        source = open_source(IMAGENET, "train", str(tree))
        images_of = {}
        for rank in range(ranks):
            loader = TrainLoader(source, batch_size=2 // ranks, rank=rank, ranks=ranks, workers=workers, seed=4, pin_memory=False)
            for step, (images, _) in enumerate(loader.epoch(n)):
                for place, image in enumerate(images):
                    images_of[step * 2 + rank + place] = bytes(image.flatten().tolist())
        return images_of

    assert epoch(0, 1, 0) == epoch(0, 2, 1)
    assert not set(epoch(0, 1, 0).values()) & set(epoch(1, 1, 0).values())


def test_each_picture_is_cut_at_random_for_itself(tmp_path: Path) -> None:
    """The same file six times over gives six different images."""
    for index in range(6):
        write_picture(tmp_path / "train" / "n01440764" / f"{index}.JPEG", (300, 300))
    images, _ = open_source(IMAGENET, "train", str(tmp_path)).batch(torch.arange(6))
    assert len({bytes(image.flatten().tolist()) for image in images}) == 6


@pytest.mark.parametrize("mode", ["L", "CMYK"])
def test_grey_and_cmyk_pictures_become_rgb(tree: Path, mode: str) -> None:
    """ImageNet has both."""
    write_picture(tree / "train" / "n01440764" / "a.jpg", (260, 260), mode)
    images, _ = open_source(IMAGENET, "train", str(tree)).batch(torch.tensor([0]))
    assert images.shape == (1, 3, 224, 224)


def test_a_tree_of_other_shape_is_said(tree: Path) -> None:
    """Missing folders, pictures without class folders, unknown classes, no pictures."""
    with pytest.raises(HpcddpError, match=r"no folder train/ of ImageNet in .*train/CLASS"):
        open_source(IMAGENET, "train", str(tree / "train"))
    (tree / "val" / "n99").mkdir()
    with pytest.raises(HpcddpError, match=r"val has a class `n99` that .*train lacks"):
        open_source(IMAGENET, "eval", str(tree))
    write_picture(tree / "flat" / "val" / "x.jpg", (9, 9))
    (tree / "flat" / "train").mkdir()
    with pytest.raises(HpcddpError, match="flat/val holds pictures but no folders: sort them"):
        open_source(IMAGENET, "eval", str(tree / "flat"))
    with pytest.raises(HpcddpError, match=r"no pictures .* in .*flat/train"):
        open_source(IMAGENET, "train", str(tree / "flat"))
