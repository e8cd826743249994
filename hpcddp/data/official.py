"""Whether files of official names are the official ones."""

from __future__ import annotations

from pathlib import Path

from hpcddp.core.official_files import OFFICIAL, is_official
from hpcddp.data.cifar10 import cifar10_files
from hpcddp.data.mnist import mnist_files


def unofficial_files(name: str, root: Path) -> tuple[str, ...] | None:
    """Of what data set `name` reads of `root` for training, names of files with another size or checksum than the publisher's;
    None for a data set without a publisher's checksums. HpcddpError where a file is missing.

    Half a second for CIFAR-10.
    """
    if name not in OFFICIAL:
        return None
    files = cifar10_files(root, "train") if name == "cifar10" else mnist_files(root, "train")
    official = OFFICIAL[name].by_name()
    return tuple(file.name for file in files if not is_official(file, official[file.name]))
