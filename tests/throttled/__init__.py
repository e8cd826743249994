"""A folder whose files are read at a given rate and no faster, and training pictures in it."""

from __future__ import annotations

from pathlib import Path

from hpcddp.data.writing.pack import pack_imagenet
from tests.data.files import write_picture

SITE = Path(__file__).parent / "site"


def variables(folder: Path, bytes_per_s: float) -> dict[str, str]:
    """Of processes that read what lies below the folder at that rate, all together; what Python they start does, too."""
    clock = folder / "read.clock"
    clock.write_bytes(bytes(8))
    return {
        "PYTHONPATH": str(SITE),
        "THROTTLED_FOLDER": str(folder.resolve()),
        "THROTTLED_BYTES_PER_S": str(bytes_per_s),
        "THROTTLED_CLOCK": str(clock.resolve()),
    }


def write_tars(folder: Path, pictures: int) -> Path:
    """ImageNet's layout in tar files, with small pictures, which decode fast; the folder that they are in."""
    for label, name in enumerate(("n01440764", "n01443537")):
        for number in range(pictures // 2):
            write_picture(folder / "loose" / "train" / name / f"{number}.JPEG", (240, 240), seed=1000 * label + number)
        write_picture(folder / "loose" / "val" / name / "0.JPEG", (240, 240), seed=label)
    pack_imagenet(folder / "loose", folder / "tars", progress=lambda done, total: None)
    return folder / "tars"
