"""A disk that runs full while data are written: a small tmpfs, really full."""

from __future__ import annotations

import os
import shutil
import types
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hpcddp.core.errors import HpcddpError
from hpcddp.data.writing.pack import pack_imagenet
from hpcddp.data.writing.prepare import prepare_bigmnist
from tests.data.digits import noise_digits
from tests.data.files import write_imagenet
from tests.small_disk import small_disk


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path) as disk:
        yield disk


def prepare(root: Path) -> None:
    """0.7 MB in six shards."""
    options = {"digits": noise_digits(150, 9), "copies": 2, "variants": ("plain", "flipped", "rotated"), "seed": 1}
    prepare_bigmnist(root, progress=lambda done, total: None, processes=2, shard_samples=150, **options)  # type: ignore[arg-type]


def pack(root: Path) -> None:
    """Pictures that lie on another disk."""
    folder = root.parents[1] / "folder"
    if not folder.exists():
        write_imagenet(folder, per_class=4)
    pack_imagenet(folder, root, progress=lambda done, total: None, processes=2, samples_per_shard=4)


@pytest.mark.parametrize("write", [prepare, pack])
def test_a_disk_that_runs_full_ends_with_a_sentence(small: Path, write: Callable[[Path], None], tmp_path: Path) -> None:
    """Too little is said before anything is written; where that does not show, as with a quota, finished files stay, nothing half
    written does, and once there is room it goes on to what it would have been.
    """
    ballast, root = small / "ballast", small / "data"
    ballast.write_bytes(bytes(shutil.disk_usage(small).free - 50_000))
    with pytest.raises(HpcddpError, match=r"needs \d+ kB more in .*, where .* are free: \d+ kB are missing"):
        write(root)
    assert not list(root.iterdir())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _: types.SimpleNamespace(free=10**9))
        with pytest.raises(HpcddpError, match=r"No space left on device.*; \d+ kB are still to be written there; what is"):
            write(root)
    assert not list(root.glob(".*.part"))
    os.truncate(ballast, 0)
    write(root)
    expected = tmp_path / "large" / "data"
    write(expected)
    assert content(root) == content(expected)


@pytest.mark.parametrize("write", [prepare, pack])
def test_what_a_killed_process_has_left_is_room(small: Path, write: Callable[[Path], None]) -> None:
    """Its half files go before anything is written."""
    root = small / "data"
    root.mkdir()
    (root / ".train-00000.u8.node7.99.part").write_bytes(bytes(shutil.disk_usage(small).free - 10_000))
    write(root)
    assert not list(root.glob(".*.part"))


def content(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in root.glob("[!.]*")}
