from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest

from hpcddp.core.errors import HpcddpError, UsageError
from hpcddp.core.point import VARIANTS
from hpcddp.data.bigmnist.shards import Manifest, Shard, read_manifest
from hpcddp.data.writing.prepare import prepare_bigmnist, write_bigmnist_shard
from tests.data.files import killed_at_random, noise_digits, twice_at_once

DIGITS = noise_digits(1100, 9)
"""More than one batch of augmentation per block."""


def prepare(root: Path, progress: object = lambda done, total: None, **changes: object) -> Manifest:
    """2 copies x 6 variants x 1,100 digits, two blocks per shard: 6 shards."""
    chosen = {"digits": DIGITS, "copies": 2, "variants": VARIANTS, "seed": 1, "progress": progress, "shard_samples": 2200}
    return prepare_bigmnist(root, **{**chosen, **changes})  # type: ignore[arg-type]


def content(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in root.iterdir() if not path.name.startswith(".")}


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What an uninterrupted preparation leaves."""
    root = tmp_path_factory.mktemp("uninterrupted")
    prepare(root)
    return root


@pytest.fixture
def expected(uninterrupted: Path) -> dict[str, bytes]:
    return content(uninterrupted)


@pytest.fixture
def finished(uninterrupted: Path, tmp_path: Path) -> Path:
    return shutil.copytree(uninterrupted, tmp_path / "finished")


def times_ns(root: Path) -> dict[str, int]:
    """When each file was written."""
    return {path.name: path.stat().st_mtime_ns for path in root.glob("[!.]*")}


def without_sums(root: Path) -> None:
    """As an earlier version left the manifest."""
    plain = json.loads((root / "bigmnist.json").read_text())
    del plain["sha256"]
    (root / "bigmnist.json").write_text(json.dumps(plain))


def test_a_prepared_folder_holds_shards_and_a_manifest(tmp_path: Path, expected: dict[str, bytes]) -> None:
    manifest = prepare(tmp_path / "new" / "folder")
    shards = {f"train-{number:05d}.u8": 2200 * 784 for number in range(6)} | {"eval.u8": 9 * 784}
    labels = {name.replace(".u8", ".labels.u8"): size // 784 for name, size in shards.items()}
    sizes = {name: len(data) for name, data in expected.items() if name != "bigmnist.json"}
    assert sizes == shards | labels
    assert manifest == read_manifest(tmp_path / "new" / "folder" / "bigmnist.json")
    assert (manifest.samples, manifest.base_samples, manifest.eval_samples) == (13_200, 1100, 9)
    assert json.loads(expected["bigmnist.json"]) == {
        "schema": 1,
        "copies": 2,
        "variants": list(VARIANTS),
        "base_samples": 1100,
        "eval_samples": 9,
        "samples_per_shard": 2200,
        "digits": "sklearn",
        "digits_sha256": DIGITS.sha256,
        "seed": 1,
        "shape": [1, 28, 28],
        "sha256": {name: hashlib.sha256(expected[name]).hexdigest() for name in sorted(sizes)},
    }
    assert content(tmp_path / "new" / "folder") == expected


def test_a_block_follows_from_seed_copy_and_variant_only(tmp_path: Path, expected: dict[str, bytes]) -> None:
    block = 1100 * 784
    pixels = b"".join(expected[f"train-{number:05d}.u8"] for number in range(6))
    elastic = [pixels[start * block : (start + 1) * block] for start in (5, 11)]
    prepare(tmp_path / "a", variants=("elastic", "plain"), copies=3, shard_samples=10**6)
    elsewhere = (tmp_path / "a" / "train-00000.u8").read_bytes()
    assert [elsewhere[:block], elsewhere[2 * block : 3 * block]] == elastic
    prepare(tmp_path / "b", variants=("elastic",), copies=1, seed=2)
    assert (tmp_path / "b" / "train-00000.u8").read_bytes() != elastic[0] != elastic[1]


@pytest.mark.dear
def test_killed_anywhere_it_goes_on_to_the_same_bytes(tmp_path: Path, expected: dict[str, bytes]) -> None:
    for root in killed_at_random(in_two_processes, tmp_path):
        assert content(root) == expected
        assert not list(root.glob(".*.part"))


def test_finished_shards_are_not_made_again(tmp_path: Path, expected: dict[str, bytes]) -> None:
    """What was there when the process ended stays as it is, and is reported as done from the first call on."""

    def stop(done: int, total: int) -> None:
        if done > 6 * 1100:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(tmp_path, stop)
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("train-*")}
    assert len(before) == 6
    reported: list[int] = []
    prepare(tmp_path, lambda done, total: reported.append(done))
    assert before.items() <= times_ns(tmp_path).items()
    assert reported == sorted(reported)
    assert (reported[0], reported[-1]) == (6 * 1100, 13_200)
    assert content(tmp_path) == expected


def test_a_shard_without_a_checksum_is_not_trusted(tmp_path: Path, expected: dict[str, bytes]) -> None:
    """Of the right length, but renamed into place by a process that was killed before it had said what it wrote."""

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(tmp_path, interrupt)
    (tmp_path / "train-00001.u8").write_bytes(bytes(2200 * 784))
    (tmp_path / "train-00001.labels.u8").write_bytes(bytes(2200))
    prepare(tmp_path)
    assert content(tmp_path) == expected


def test_two_at_once_end_in_one_good_copy(tmp_path: Path, expected: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    def noted(shard: Shard, *others: object, **options: object) -> dict[str, str]:
        with (tmp_path / "written").open("a") as out:
            out.write(f"{shard.stem}\n")
        return write_bigmnist_shard(shard, *others, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("hpcddp.data.writing.prepare.write_bigmnist_shard", noted)
    twice_at_once(in_two_processes, tmp_path / "root")
    assert content(tmp_path / "root") == expected
    assert not list((tmp_path / "root").glob(".*.part"))
    assert sorted((tmp_path / "written").read_text().split()) == ["eval", *(f"train-{number:05d}" for number in range(6))]


def in_two_processes(root: Path) -> None:
    prepare(root, processes=2)


def test_a_folder_of_an_earlier_version_stays_as_it_is(finished: Path) -> None:
    """Without checksums: shards are trusted by their length, and no less where the manifest has one of another shard now."""
    without_sums(finished)
    before = content(finished)
    assert prepare(finished).sha256 == {}
    assert content(finished) == before
    (finished / "train-00001.u8").unlink()
    prepare(finished)
    written_ns = times_ns(finished)
    assert set(prepare(finished).sha256) == {"train-00001.u8", "train-00001.labels.u8"}
    assert times_ns(finished) == written_ns


def test_a_full_disk_is_said_with_what_is_still_to_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(shard: Shard, *others: object, **options: object) -> dict[str, str]:
        if shard.stem == "train-00002":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write_bigmnist_shard(shard, *others, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("hpcddp.data.writing.prepare.write_bigmnist_shard", full)
    with pytest.raises(HpcddpError, match=r"No space left on device; 6.9 MB are still to be written there; finished files"):
        prepare(tmp_path)
    assert len(read_manifest(tmp_path / "bigmnist.json.part").sha256) == 6


def test_a_finished_folder_is_left_as_it_is(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is locked or written where nothing is missing; a shard that was lost is made again, the same."""
    before, lost = times_ns(finished), (finished / "train-00003.u8").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr("hpcddp.data.writing.folder.root_lock", None)
        assert prepare(finished).samples == 13_200
    assert times_ns(finished) == before
    (finished / "train-00003.u8").write_bytes(lost[:100])
    prepare(finished)
    assert (finished / "train-00003.u8").read_bytes() == lost


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"copies": 3}, r"copies = 2 \(requested: 3\)"),
        ({"seed": 2}, r"seed = 1 \(requested: 2\)"),
        ({"variants": ("plain",)}, r"variants = .* \(requested: \['plain'\]\)"),
        ({"digits": noise_digits(1100, 8)}, "eval_samples = 9 .requested: 8.*digits_sha256 = "),
    ],
)
def test_a_folder_of_other_content_is_refused(finished: Path, change: dict[str, object], sentence: str) -> None:
    """Finished or not: nothing that is there is overwritten, and the error says what differs."""
    before = times_ns(finished)
    for manifest in ("bigmnist.json", "bigmnist.json.part"):
        (finished / "bigmnist.json").replace(finished / manifest)
        with pytest.raises(HpcddpError, match=f"holds another bigMNIST, with {sentence}.*Choose another folder"):
            prepare(finished, **change)
    (finished / "bigmnist.json.part").rename(finished / "bigmnist.json")
    assert times_ns(finished) == before


def test_shards_without_a_manifest_are_not_trusted(tmp_path: Path) -> None:
    (tmp_path / "train-00000.u8").write_bytes(bytes(2200 * 784))
    with pytest.raises(HpcddpError, match=r"holds shards but no bigmnist.json"):
        prepare(tmp_path)


def test_too_little_space_is_said_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(HpcddpError, match=r"needs 5.2 TB more in .*, where .* are free: .* are missing; choose"):
        prepare(tmp_path, copies=10**6, shard_samples=10**9)
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_made_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no variant `rotate` of bigMNIST; did you mean `rotated`"):
        prepare(tmp_path, variants=("plain", "rotate"))
    with pytest.raises(UsageError, match="copies is 0"):
        prepare(tmp_path, copies=0)
    (tmp_path / "file").touch()
    with pytest.raises(HpcddpError, match=f"cannot write bigMNIST into {tmp_path / 'file'}"):
        prepare(tmp_path / "file")
