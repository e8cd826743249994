from __future__ import annotations

import io
import sys
from collections.abc import Callable

import pytest
import simplejpeg  # type: ignore[import-untyped]
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from hpcddp.core.errors import HpcddpError
from hpcddp.data.pictures.cuts import Cut, CutOf, RandomCut, middle_cut
from hpcddp.data.pictures.decoders import DECODERS, MOST_PIXELS, PillowDecoder, SimpleJpegDecoder, make_decoder, upper_rows
from hpcddp.data.pictures.image_folder import DamagedPictureError
from tests.bench.loader_jpeg import HEIGHT, WIDTH, photograph

NAMES = tuple(DECODERS)
FAST = tuple(name for name in NAMES if name != "pillow")


def saved(picture: Image.Image, kind: str = "JPEG", **options: object) -> bytes:
    file = io.BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()


def opened(number: int = 0) -> Image.Image:
    return Image.open(io.BytesIO(photograph(number)))


def apart(content: bytes, cut_of: CutOf, name: str) -> torch.Tensor:
    """In grey levels, what a decoder's pixels differ by from Pillow's."""
    expected, found = make_decoder("pillow").pixels(content, cut_of), make_decoder(name).pixels(content, cut_of)  # type: ignore[arg-type]
    return (found.int() - expected.int()).abs()


@pytest.mark.parametrize("name", FAST)
def test_decoders_agree_to_two_grey_levels(name: str) -> None:
    """For drawn boxes and for evaluation's, photographs in full."""
    for number in range(6):
        for cut_of in (RandomCut(number), middle_cut):
            assert apart(photograph(number), cut_of, name).max() <= 2


def test_large_pictures_are_decoded_smaller_where_the_cut_has_room() -> None:
    large = saved(opened().resize((2000, 1500), Image.Resampling.BICUBIC), quality=90)
    roomy = Cut((101, 53, 1903, 1411), (224, 224), mirrored=True)
    narrow = Cut((101, 53, 501, 453), (224, 224))
    assert 0 < apart(large, lambda *_: roomy, "simplejpeg").float().mean() < 2
    assert apart(large, lambda *_: narrow, "simplejpeg").max() <= 2
    assert apart(large, middle_cut, "simplejpeg").float().mean() < 2


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "make",
    [
        lambda picture: saved(picture.convert("CMYK")),
        lambda picture: saved(picture.convert("L")),
        lambda picture: saved(picture, "PNG"),
        lambda picture: saved(picture.convert("P"), "GIF"),
        lambda picture: saved(picture, progressive=True),
        lambda picture: saved(picture, subsampling=0),
        lambda picture: saved(picture) + b"what follows the end",
        lambda picture: saved(picture.resize((1, 1))),
    ],
    ids=["CMYK", "grey", "PNG", "GIF", "progressive", "4:4:4", "trailing bytes", "one pixel"],
)
def test_what_imagenet_has_beside_plain_jpegs_is_read(name: str, make: Callable[[Image.Image], bytes]) -> None:
    content = make(opened())
    for cut_of in (RandomCut(3), middle_cut):
        assert apart(content, cut_of, name).max() <= 2


@pytest.mark.parametrize("name", NAMES)
def test_an_orientation_is_ignored(name: str) -> None:
    """As torchvision ignores it: a picture marked as lying on its side is cut as one that is not."""
    exif = Image.Exif()
    exif[274] = 6
    decoder = make_decoder(name)  # type: ignore[arg-type]
    marked, plain = saved(opened(), exif=exif), saved(opened())
    assert torch.equal(decoder.pixels(marked, middle_cut), decoder.pixels(plain, middle_cut))


def bomb(width: int, height: int) -> bytes:
    """A JPEG that claims a size."""
    content = bytearray(saved(Image.new("RGB", (16, 16))))
    at = content.index(b"\xff\xc0") + 5
    content[at : at + 4] = height.to_bytes(2, "big") + width.to_bytes(2, "big")
    return bytes(content)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (photograph(0)[:-9000], "truncated"),
        (b"", "is not an image"),
        (bytes(5000), "is not an image"),
        (b"not a picture", "is not an image"),
        (bomb(65_500, 65_500), "too many to decode|decompression bomb"),
        (saved(Image.new("L", (1, 40_000)), "PNG"), "too many to decode"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n", "is not an image"),
    ],
    ids=["truncated", "empty", "zeros", "text", "bomb", "one pixel wide", "EPS"],
)
def test_damaged_pictures_are_refused_with_a_reason(name: str, content: bytes, reason: str) -> None:
    """By every decoder the same ones; nothing of Pillow's that runs a program is tried, and nothing is allocated for a bomb."""
    with pytest.raises(DamagedPictureError, match=reason):
        make_decoder(name).pixels(content, middle_cut)  # type: ignore[arg-type]
    assert 1 * 40_000 < MOST_PIXELS < 65_500 * 65_500


def test_auto_is_what_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert make_decoder("auto").version.startswith("simplejpeg ")
    monkeypatch.setitem(sys.modules, "simplejpeg", None)
    assert make_decoder("auto").version.startswith("pillow ")
    with pytest.raises(HpcddpError, match=r"workload.data.decoder is simplejpeg, which this environment lacks .*auto"):
        make_decoder("simplejpeg")


KINDS = {
    "4:2:0": {"subsampling": 2},
    "4:2:2": {"subsampling": 1},
    "4:4:4": {"subsampling": 0},
    "restart markers": {"restart_marker_blocks": 3},
    "optimized": {"optimize": True},
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_upper_rows_are_those_of_the_picture(kind: str) -> None:
    content = saved(opened(), quality=90, **KINDS[kind])  # type: ignore[arg-type]
    full = simplejpeg.decode_jpeg(content, "RGB")
    for rows in (1, 8, 15, 16, 17, 31, 200, 321, 350):
        limited = upper_rows(content, rows)
        assert limited is not None
        found = simplejpeg.decode_jpeg(limited, "RGB", strict=False)
        assert rows <= found.shape[0] <= rows + 20
        assert (found[:rows] == full[:rows]).all()


def test_where_no_row_is_saved_or_none_can_be() -> None:
    content = photograph(0)
    assert upper_rows(content, HEIGHT) is None
    assert upper_rows(content, HEIGHT - 4) is None
    assert upper_rows(saved(opened(), progressive=True), 100) is None
    assert upper_rows(content[:-2], 100) is None
    assert upper_rows(content[:-9000], 100) is None
    assert upper_rows(saved(opened(), "PNG"), 100) is None
    assert upper_rows(b"\xff\xd9", 100) is None


@pytest.mark.dear
@settings(max_examples=60, deadline=None)
@given(at=st.integers(0, 700), value=st.integers(0, 255), seed=st.integers(0, 9))
def test_whatever_stands_in_the_header_there_is_a_picture_or_a_reason(at: int, value: int, seed: int) -> None:
    content = bytearray(photograph(1))
    content[at] = value
    try:
        assert SimpleJpegDecoder().pixels(bytes(content), RandomCut(seed)).shape == (3, 224, 224)
    except DamagedPictureError:
        with pytest.raises(DamagedPictureError):
            PillowDecoder().pixels(bytes(content), RandomCut(seed))


def test_a_truncated_picture_is_damaged_whatever_its_cut() -> None:
    content = photograph(2)[:-20_000]
    with pytest.raises(DamagedPictureError, match="truncated"):
        SimpleJpegDecoder().pixels(content, lambda *_: Cut((0, 0, WIDTH, 40), (224, 224)))
