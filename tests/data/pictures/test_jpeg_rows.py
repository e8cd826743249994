from __future__ import annotations

import pytest
import simplejpeg  # type: ignore[import-untyped]
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcddp.data.pictures.cuts import Cut, RandomCut
from hpcddp.data.pictures.decoders import PillowDecoder, SimpleJpegDecoder
from hpcddp.data.pictures.image_folder import DamagedPictureError
from hpcddp.data.pictures.jpeg_rows import upper_rows
from tests.bench.jpegs import HEIGHT, WIDTH, photograph
from tests.data.pictures.test_decoders import opened, saved

KINDS = {
    "4:2:0": {"subsampling": 2},
    "4:2:2": {"subsampling": 1},
    "4:4:4": {"subsampling": 0},
    "restart markers": {"restart_marker_blocks": 3},
    "optimized": {"optimize": True},
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_upper_rows_are_those_of_the_picture(kind: str) -> None:
    """Pixel by pixel, for rows at and between the edges of blocks; fewer rows are decoded."""
    content = saved(opened(), quality=90, **KINDS[kind])  # type: ignore[arg-type]
    full = simplejpeg.decode_jpeg(content, "RGB")
    for rows in (1, 8, 15, 16, 17, 31, 200, 321, 350):
        limited = upper_rows(content, rows)
        assert limited is not None
        found = simplejpeg.decode_jpeg(limited, "RGB", strict=False)
        assert rows <= found.shape[0] <= rows + 20
        assert (found[:rows] == full[:rows]).all()


def test_where_no_row_is_saved_or_none_can_be() -> None:
    """Almost all rows; progressive scans; a file without its end, or of another kind."""
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
    """With any byte of it changed; what this decoder refuses, Pillow refuses, too."""
    content = bytearray(photograph(1))
    content[at] = value
    try:
        assert SimpleJpegDecoder().pixels(bytes(content), RandomCut(seed)).shape == (3, 224, 224)
    except DamagedPictureError:
        with pytest.raises(DamagedPictureError):
            PillowDecoder().pixels(bytes(content), RandomCut(seed))


def test_a_truncated_picture_is_damaged_whatever_its_cut() -> None:
    """Also where the rows that the cut needs are there."""
    content = photograph(2)[:-20_000]
    with pytest.raises(DamagedPictureError, match="truncated"):
        SimpleJpegDecoder().pixels(content, lambda *_: Cut((0, 0, WIDTH, 40), (224, 224)))
