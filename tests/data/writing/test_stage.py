"""A data set copied to another folder: all of it or what goes on, and never over somebody else's files."""

from __future__ import annotations

import os
import shutil
import subprocess
import types
from pathlib import Path

import pytest
import torch

from hpcddp.core.catalog import DATASETS, is_on_disk
from hpcddp.core.data_task import DataTask
from hpcddp.core.errors import HpcddpError, UsageError
from hpcddp.core.point import Data
from hpcddp.data import open_source
from hpcddp.data.staging.copy import copy_files
from hpcddp.data.staging.files import READ
from hpcddp.data.writing import stage
from hpcddp.data.writing.stage import StagedFiles, stage_data
from hpcddp.data.writing.tasks import run_task
from tests.data.files import SPLITS, noise, write_picture
from tests.small_disk import fill, small_disk


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """25 shards and a manifest, which is the first by name."""
    folder = tmp_path / "root"
    folder.mkdir()
    (folder / "bigmnist.json").write_text("{}")
    for number in range(25):
        (folder / f"train-{number:05d}.u8").write_bytes(noise(100_000, number))
        os.utime(folder / f"train-{number:05d}.u8", ns=(0, 1_700_000_000_123_456_789))
    return folder


def copy(root: Path, out: Path, name: str = "bigmnist") -> StagedFiles:
    return stage_data(name, root, out, progress=lambda done, total: None, remark=lambda text: None)


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_every_known_set_can_be_copied() -> None:
    """None is copied by the rule for a user's own, which takes all of a folder."""
    assert set(READ) == {name for name in DATASETS if is_on_disk(Data(name=name))}


def test_a_copy_is_read_like_its_source(tmp_path: Path) -> None:
    """By the task of a job, whose folders are text."""
    for split in ("train", "val"):
        write_picture(tmp_path / "root" / split / "a" / "1.JPEG", (50, 40))
    options = {"root": str(tmp_path / "root"), "out": str(tmp_path / "a" / "copy")}
    amounts: list[tuple[int, int | None]] = []
    text = run_task(DataTask(action="stage", data="imagenet", options=options), lambda *amount: amounts.append(amount))
    assert f" in 2 files in {tmp_path}/a/copy; " in text
    assert amounts[-1] == (0, 0)
    for split in SPLITS:
        ours, theirs = (open_source(Data(name="imagenet"), split, options[key]) for key in ("out", "root"))
        (images, labels), (other_images, other_labels) = (each.batch(torch.tensor([0])) for each in (ours, theirs))
        assert torch.equal(images, other_images)
        assert torch.equal(labels, other_labels)


def test_a_copy_goes_on_where_it_stopped(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is finished is not copied again; the manifest comes last, and what was not finished is gone."""
    out, calls = tmp_path / "out", list[int]()

    def fail_at_third(*arguments: object) -> object:
        calls.append(1)
        found = copy_files(*arguments)  # type: ignore[arg-type]
        if len(calls) == 3:
            raise KeyboardInterrupt
        return found

    monkeypatch.setattr(stage, "BATCH_FILES", 7)
    monkeypatch.setattr(stage, "copy_files", fail_at_third)
    with pytest.raises(KeyboardInterrupt):
        copy(root, out)
    assert len(content(out)) == 14
    assert not (out / "bigmnist.json").exists()
    second = copy(root, out)
    assert (second.finished_before, second.copied_bytes, second.files) == (14, 11 * 100_000 + 2, 26)
    assert content(out) == content(root)
    assert not (out / stage.ASIDE).exists()
    assert copy(root, out).copied_bytes == 0


def test_another_file_is_never_replaced(root: Path, tmp_path: Path) -> None:
    """Data of the same names that were prepared otherwise, or of a source that was prepared again."""
    out = tmp_path / "out"
    copy(root, out)
    os.utime(root / "train-00004.u8")
    with pytest.raises(UsageError, match=r"out/train-00004.u8 is there already, and is no copy of .*: choose another folder"):
        copy(root, out)
    assert content(out) == content(root)


def test_a_copy_within_its_source_is_refused(root: Path) -> None:
    for out in (root, root / "copy", root.parent):
        with pytest.raises(UsageError, match="are one folder, or one is in the other"):
            copy(root, out)


def test_nothing_to_copy_is_said(root: Path, tmp_path: Path) -> None:
    with pytest.raises(HpcddpError, match=r"nothing of the data set `imagenet` in .*: name the folder that has its files"):
        copy(root, tmp_path / "out", "imagenet")


def test_a_full_disk_is_said_before_copying(root: Path, tmp_path: Path) -> None:
    with small_disk(tmp_path) as disk:
        with pytest.raises(HpcddpError, match=r"the copy needs 2.6 MB more in .*: 1.\d MB are missing; choose another folder"):
            copy(root, disk)
        assert not content(disk)
        fill(disk)
        with pytest.raises(HpcddpError, match=r"cannot write a copy of the data|are missing"):
            copy(root, disk / "deeper")


def test_a_disk_that_fills_keeps_what_is_finished(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a quota, which does not show before; nothing half done takes room, and with room it goes on."""
    monkeypatch.setattr(stage, "BATCH_FILES", 3)
    with small_disk(tmp_path) as disk:
        out = disk / "out"
        with monkeypatch.context() as patch:
            patch.setattr(shutil, "disk_usage", lambda _: types.SimpleNamespace(free=10**9))
            words = r"cannot write a copy of the data into .*No space left on device; 1.\d MB are still to be written there; what"
            with pytest.raises(HpcddpError, match=words):
                copy(root, out)
        assert len(content(out)) == 9
        assert not (out / stage.ASIDE).exists()
        subprocess.run(["mount", "-o", "remount,size=8m", disk], check=True)
        copy(root, out)
        assert content(out) == content(root)
