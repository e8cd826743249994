"""JPEGs to pixels: by simplejpeg, Pillow or torchvision, of which the first decodes in parts and the second decodes everything.

All three come to the same pixels give or take a grey level or two: libjpeg-turbo decodes for each of them, and torch resizes
bytes as Pillow does. What simplejpeg or torchvision refuse (CMYK, PNG under a JPEG's name, an odd file), Pillow decodes, and what
Pillow refuses is damaged.
Of a JPEG the upper part is enough: a decoder stops behind the rows that it is told of, and saves the time that the others take.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import io
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from hpcddp.core.errors import HpcddpError
from hpcddp.core.point import Data
from hpcddp.core.text import thousands
from hpcddp.data.pictures.cuts import CROP, Cut, CutOf
from hpcddp.data.pictures.image_folder import DamagedPictureError

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

MOST_PIXELS = 178_956_970
"""Of a picture, decoded or resized: Pillow's own limit against decompression bombs, 512 MiB of RGB."""

FORMATS = ("JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP")
"""What Pillow may read, whatever the file is called. Of others some run programs (EPS calls Ghostscript)."""

EIGHTHS = (1, 2, 4)
"""Sizes in which libjpeg-turbo decodes faster than in full."""
SPARE = 2.0
"""A picture is decoded in a smaller size only where that leaves the cut so many pixels for each one of its own, in both
directions: from 2 on Pillow's documentation finds such a result close to that of the full size."""


class Decoder(Protocol):
    """One way from a file's bytes to the pixels of a cut."""

    version: str
    """Its name and version, as launch.json has it."""

    def pixels(self, content: bytes, cut_of: CutOf) -> Tensor:
        """The cut, 3 x 224 x 224, uint8; DamagedPictureError where nothing can decode the picture."""
        ...


class PillowDecoder:
    """Decodes all of a picture, and cuts it as torchvision's transforms do."""

    def __init__(self) -> None:
        try:
            self.version = f"pillow {importlib.import_module('PIL').__version__}"
        except ImportError as error:
            raise HpcddpError("ImageNet's images need Pillow, which comes with torchvision. Install hpcddp[train].") from error
        from PIL import UnidentifiedImageError

        self._unidentified = UnidentifiedImageError

    def pixels(self, content: bytes, cut_of: CutOf) -> Tensor:
        try:
            return self._pixels(content, cut_of)
        except DamagedPictureError:
            raise
        except self._unidentified as error:
            raise DamagedPictureError("it is not an image in a supported format") from error
        except Exception as error:  # whatever a decoder makes of arbitrary bytes
            raise DamagedPictureError(str(error) or type(error).__name__) from error

    def _pixels(self, content: bytes, cut_of: CutOf) -> Tensor:
        from PIL import Image

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd pictures, each in a hundred thousand
            with Image.open(io.BytesIO(content), formats=FORMATS) as file:
                cut = _checked_cut(cut_of, *file.size)
                picture = file.convert("RGB")
        flat = torch.frombuffer(bytearray(cut_picture(picture, cut).tobytes()), dtype=torch.uint8)
        return flat.view(CROP, CROP, 3).permute(2, 0, 1)


class SimpleJpegDecoder:
    """Decodes down to the last row of the cut, in the smallest size that leaves room for it; what it refuses is Pillow's."""

    def __init__(self) -> None:
        self._pillow = PillowDecoder()
        self._library = importlib.import_module("simplejpeg")
        self.version = f"simplejpeg {importlib.metadata.version('simplejpeg')}"

    def pixels(self, content: bytes, cut_of: CutOf) -> Tensor:
        try:
            height, width, colours, _ = self._library.decode_jpeg_header(content)
            if colours not in ("CMYK", "YCCK"):
                return self._cut(content, (width, height), _checked_cut(cut_of, width, height))
        except (ValueError, MemoryError):
            pass
        return self._pillow.pixels(content, cut_of)

    def _cut(self, content: bytes, size: tuple[int, int], cut: Cut) -> Tensor:
        smaller = _smaller_size(size, cut)
        if smaller:
            decoded = self._decoded(content, min_width=smaller[0], min_height=smaller[1])
            return _cut_pixels(decoded, cut.of_scaled(size, (decoded.shape[1], decoded.shape[0])))
        upper = upper_rows(content, cut.box[3])
        # Not strict: bytes are left over behind the rows. A file that ends too soon is not among these.
        return _cut_pixels(self._decoded(content) if upper is None else self._decoded(upper, strict=False), cut)

    def _decoded(self, content: bytes | bytearray, **options: Any) -> Tensor:
        """Height x width x 3."""
        array = self._library.decode_jpeg(content, "RGB", **options)
        # Not from_numpy: a site's torch may be built without, or for another numpy.
        return torch.frombuffer(array, dtype=torch.uint8).view(array.shape)


class TorchvisionDecoder:
    """Decodes all of a picture by torchvision.io, whose decoders are deprecated since 0.29."""

    def __init__(self) -> None:
        self._pillow = PillowDecoder()
        self._library = importlib.import_module("torchvision.io")
        self.version = f"torchvision {importlib.metadata.version('torchvision')}"

    def pixels(self, content: bytes, cut_of: CutOf) -> Tensor:
        from PIL import Image

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                with Image.open(io.BytesIO(content), formats=("JPEG",)) as header:
                    cut = _checked_cut(cut_of, *header.size)
                    is_plain = header.mode in ("RGB", "L")
                if is_plain:
                    found = self._library.decode_jpeg(torch.frombuffer(bytearray(content), dtype=torch.uint8))
                    return _cut_pixels(found.expand(3, -1, -1).permute(1, 2, 0), cut)
        except DamagedPictureError:
            raise
        except Exception:  # what it refuses is Pillow's to judge
            pass
        return self._pillow.pixels(content, cut_of)


def cut_picture(picture: Picture, cut: Cut) -> Picture:
    """The cut by Pillow."""
    from PIL import Image

    resized = picture.crop(cut.box).resize(cut.size, Image.Resampling.BILINEAR)
    left, upper = cut.corner
    found = resized.crop((left, upper, left + CROP, upper + CROP))
    return found.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if cut.mirrored else found


def _cut_pixels(pixels: Tensor, cut: Cut) -> Tensor:
    """The cut by torch, of height x width x 3 pixels."""
    left, upper, right, lower = cut.box
    part = pixels[upper:lower, left:right].permute(2, 0, 1)[None]
    resized = functional.interpolate(part, cut.size[::-1], mode="bilinear", antialias=True)[0]
    left, upper = cut.corner
    found = resized[:, upper : upper + CROP, left : left + CROP]
    return found.flip(2) if cut.mirrored else found


def _smaller_size(size: tuple[int, int], cut: Cut) -> tuple[int, int] | None:
    """The smallest that leaves SPARE pixels; None where only the picture's own does."""
    left, upper, right, lower = cut.box
    for eighths in EIGHTHS:
        if min((right - left) / cut.size[0], (lower - upper) / cut.size[1]) * eighths / 8 >= SPARE:
            return -(-size[0] * eighths // 8), -(-size[1] * eighths // 8)
    return None


def _checked_cut(cut_of: CutOf, width: int, height: int) -> Cut:
    """The cut of a picture of that size; DamagedPictureError where it, or all of it resized, would take too much memory."""
    if width * height <= MOST_PIXELS:
        cut = cut_of(width, height)
        if cut.size[0] * cut.size[1] <= MOST_PIXELS:
            return cut
    raise DamagedPictureError(f"{thousands(width)} x {thousands(height)} pixels are too many to decode")


DECODERS: dict[str, Any] = {"simplejpeg": SimpleJpegDecoder, "pillow": PillowDecoder, "torchvision": TorchvisionDecoder}


def make_decoder(name: Literal["auto", "simplejpeg", "pillow", "torchvision"]) -> Decoder:
    """`auto`: simplejpeg where it is installed, else Pillow. HpcddpError where the one that is named is not installed."""
    try:
        found: Decoder = DECODERS["simplejpeg" if name == "auto" else name]()
    except ImportError as error:
        if name == "auto":
            return PillowDecoder()
        raise HpcddpError(
            f"workload.data.decoder is {name}, which this environment lacks ({error}): install {name}, or set it to auto"
        ) from error
    return found


def decoder_version(data: Data) -> str | None:
    """Name and version of what decodes the set's pictures here; None where it has none, HpcddpError where it is not installed."""
    return make_decoder(data.decoder).version if data.name == "imagenet" else None


MARKER, START_OF_SCAN, END_OF_IMAGE = 0xFF, 0xDA, b"\xff\xd9"
SEQUENTIAL = (0xC0, 0xC1)
"""Frames whose rows come in order; in a progressive one every row is in every scan."""

MORE_ROWS = 4
"""Below the last row that is needed: colours of half the resolution are interpolated with the next row of their own."""


def upper_rows(content: bytes, rows: int) -> bytearray | None:
    """The file with a header that says `rows` rows, or a few more; None where no row would be saved.

    None, too, where the rows do not come in one sequential scan, and where the file does not end as a complete one does: whether
    the rest is damaged is then for a decoder of all of it to say.
    """
    if not content.endswith(END_OF_IMAGE):
        return None
    frame = None
    for marker, at, length in _segments(content):
        if marker in SEQUENTIAL:
            frame = (at, length)
        elif marker == START_OF_SCAN:
            return _limited(content, frame, rows, content[at]) if frame else None
    return None


def _segments(content: bytes) -> Iterator[tuple[int, int, int]]:
    """Marker, where its content begins, and its length, up to the first scan's header."""
    at = 2
    while at + 4 <= len(content) and content[at] == MARKER:
        marker, length = content[at + 1], int.from_bytes(content[at + 2 : at + 4], "big")
        if length < 3 or at + 2 + length > len(content):
            return
        yield marker, at + 4, length - 2
        at += 2 + length


def _limited(content: bytes, frame: tuple[int, int], rows: int, scanned: int) -> bytearray | None:
    """`frame`: where its content begins and its length: precision, height, width, components of three bytes each."""
    at, length = frame
    components = content[at + 5] if length > 5 else 0
    if not components or scanned != components or length != 6 + 3 * components:
        return None
    block = 8 * max(content[at + 7 + 3 * number] & 15 for number in range(components))
    limited = -(-(rows + MORE_ROWS) // block) * block if block else 0
    if not 0 < limited < int.from_bytes(content[at + 1 : at + 3], "big"):
        return None
    patched = bytearray(content)
    patched[at + 1 : at + 3] = limited.to_bytes(2, "big")
    return patched
