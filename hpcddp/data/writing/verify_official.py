"""Compares the official files of MNIST and CIFAR-10, packed or not, with their publishers' checksums."""

from __future__ import annotations

from pathlib import Path

from hpcddp.core.official_files import OFFICIAL, digest_of
from hpcddp.data.cifar10 import cifar10_files
from hpcddp.data.mnist import mnist_files
from hpcddp.data.writing.verified import Damage, Verified, files, readable

FILES_OF = {"cifar10": cifar10_files, "mnist": mnist_files}


@readable()
def verify_official(name: str, root: Path) -> Verified:
    """What training and evaluation read of data set `name`; HpcddpError where a file is missing."""
    found = dict.fromkeys((*FILES_OF[name](root, "train"), *FILES_OF[name](root, "eval")))
    official, damaged = OFFICIAL[name].by_name(), list[Damage]()
    for path in found:
        expected = official[path.name]
        held = digest_of(path, expected.algorithm)
        if held != expected.digest:
            damaged.append((path.name, f"its {expected.algorithm.upper()} is {held}, the publisher's {expected.digest}"))
    return Verified(
        root=root,
        what=f"{files(len(found))} of {name}",
        damaged=tuple(damaged),
        remedy=f"remove them, and `hpcddp data fetch {name} --root {root}` fetches them again",
    )
