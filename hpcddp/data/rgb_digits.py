"""Handwritten digits in the shape of CIFAR-10, for its models where CIFAR-10 is not at hand: scikit-learn's 1,797.

Each is of 32 x 32 pixels, dark around, the same in all three channels; files have CIFAR-10's binary records.
"""

from __future__ import annotations

from pathlib import Path

from hpcddp.core.catalog import DIGITS
from hpcddp.data.cifar10 import parse_records
from hpcddp.data.roots import missing
from hpcddp.data.source import Split, TensorSource

FILES = {"train": "digits-train.bin", "eval": "digits-eval.bin"}


def open_digits(root: Path, split: Split) -> TensorSource:
    """The split in memory; HpcddpError where its file is missing or broken."""
    file = root / FILES[split]
    if not file.is_file():
        raise missing(f"no {file.name}", root, f"`hpcddp data prepare digits --root {root}` writes it")
    return TensorSource(DIGITS, *parse_records(file.read_bytes(), f"{file.name} of {root}", "prepare it again"))
