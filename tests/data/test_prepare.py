from __future__ import annotations

import errno
import hashlib
import json
import os
from pathlib import Path

import pytest

from hpcddp.core.errors import HpcddpError, UsageError
from hpcddp.core.point import VARIANTS
from hpcddp.data.bigmnist.manifest import Manifest, Shard, read_bigmnist_manifest
from hpcddp.data.writing.prepare import prepare_bigmnist, write_bigmnist_shard
from tests.data.digits import noise_digits
from tests.data.writing.kills import killed_at_random, twice_at_once

DIGITS = noise_digits(1100, 9)
"""More than one batch of augmentation per block."""


def ignore(done: int, total: int) -> None:
    pass


def prepare(root: Path, progress: object = ignore, **changes: object) -> Manifest:
    """2 copies x 6 variants x 1,100 digits, two blocks per shard: 6 shards."""
    chosen = {"digits": DIGITS, "copies": 2, "variants": VARIANTS, "seed": 1, "progress": progress, "shard_samples": 2200}
    return prepare_bigmnist(root, **{**chosen, **changes})  # type: ignore[arg-type]


def content(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in root.iterdir() if not path.name.startswith(".")}


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What an uninterrupted preparation leaves."""
    root = tmp_path_factory.mktemp("uninterrupted")
    prepare(root)
    return content(root)


def test_a_prepared_folder_holds_shards_and_a_manifest(tmp_path: Path, uninterrupted: dict[str, bytes]) -> None:
    """Whole blocks per shard, sizes as promised, nothing left over, and the manifest says what it is made of."""
    manifest = prepare(tmp_path / "new" / "folder")
    shards = {f"train-{number:05d}.u8": 2200 * 784 for number in range(6)} | {"eval.u8": 9 * 784}
    labels = {name.replace(".u8", ".labels.u8"): size // 784 for name, size in shards.items()}
    sizes = {name: len(data) for name, data in uninterrupted.items() if name != "bigmnist.json"}
    assert sizes == shards | labels
    assert manifest == read_bigmnist_manifest(tmp_path / "new" / "folder" / "bigmnist.json")
    assert (manifest.samples, manifest.base_samples, manifest.eval_samples) == (13_200, 1100, 9)
    assert json.loads(uninterrupted["bigmnist.json"]) == {
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
        "sha256": {name: hashlib.sha256(uninterrupted[name]).hexdigest() for name in sorted(sizes)},
    }
    assert content(tmp_path / "new" / "folder") == uninterrupted


def test_a_block_follows_from_seed_copy_and_variant_only(tmp_path: Path, uninterrupted: dict[str, bytes]) -> None:
    """Other shard sizes, variants and copies around it change none of its bytes; another seed and another copy do."""
    block = 1100 * 784
    pixels = b"".join(uninterrupted[f"train-{number:05d}.u8"] for number in range(6))
    elastic = [pixels[start * block : (start + 1) * block] for start in (5, 11)]
    prepare(tmp_path / "a", variants=("elastic", "plain"), copies=3, shard_samples=10**6)
    elsewhere = (tmp_path / "a" / "train-00000.u8").read_bytes()
    assert [elsewhere[:block], elsewhere[2 * block : 3 * block]] == elastic
    prepare(tmp_path / "b", variants=("elastic",), copies=1, seed=2)
    assert (tmp_path / "b" / "train-00000.u8").read_bytes() != elastic[0] != elastic[1]


@pytest.mark.dear
def test_killed_anywhere_it_goes_on_to_the_same_bytes(tmp_path: Path, uninterrupted: dict[str, bytes]) -> None:
    """SIGKILL at 20 random moments, with two processes at work; nothing is left over but what is finished."""
    for root in killed_at_random(in_two_processes, tmp_path):
        assert content(root) == uninterrupted
        assert not list(root.glob(".*.part"))


def test_finished_shards_are_not_made_again(tmp_path: Path, uninterrupted: dict[str, bytes]) -> None:
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
    assert {name: (tmp_path / name).stat().st_mtime_ns for name in before} == before
    assert reported == sorted(reported)
    assert (reported[0], reported[-1]) == (6 * 1100, 13_200)
    assert content(tmp_path) == uninterrupted


def test_a_shard_without_a_checksum_is_not_trusted(tmp_path: Path, uninterrupted: dict[str, bytes]) -> None:
    """Of the right length, but renamed into place by a process that was killed before it had said what it wrote."""
    with pytest.raises(KeyboardInterrupt):
        prepare(tmp_path, _interrupt)
    (tmp_path / "train-00001.u8").write_bytes(bytes(2200 * 784))
    (tmp_path / "train-00001.labels.u8").write_bytes(bytes(2200))
    prepare(tmp_path)
    assert content(tmp_path) == uninterrupted


def _interrupt(done: int, total: int) -> None:
    raise KeyboardInterrupt


def test_two_at_once_end_in_one_good_copy(
    tmp_path: Path, uninterrupted: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second waits, and finds everything made: each shard is written once."""

    def noted(shard: Shard, *others: object, **options: object) -> dict[str, str]:
        with (tmp_path / "written").open("a") as out:
            out.write(f"{shard.stem}\n")
        return write_bigmnist_shard(shard, *others, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("hpcddp.data.writing.prepare.write_bigmnist_shard", noted)
    twice_at_once(in_two_processes, tmp_path / "root")
    assert content(tmp_path / "root") == uninterrupted
    assert not list((tmp_path / "root").glob(".*.part"))
    assert sorted((tmp_path / "written").read_text().split()) == ["eval", *(f"train-{number:05d}" for number in range(6))]


def in_two_processes(root: Path) -> None:
    prepare(root, processes=2)


def test_a_folder_of_an_earlier_version_stays_as_it_is(tmp_path: Path) -> None:
    """Its manifest has no checksums: its shards are trusted by their length, as they were, and none is added."""
    prepare(tmp_path)
    plain = json.loads((tmp_path / "bigmnist.json").read_text())
    del plain["sha256"]
    (tmp_path / "bigmnist.json").write_text(json.dumps(plain))
    before = content(tmp_path)
    assert prepare(tmp_path).sha256 == {}
    assert content(tmp_path) == before


def test_a_shard_made_anew_leaves_those_of_an_earlier_version(tmp_path: Path) -> None:
    """What the manifest has no checksum of is no less finished because it has one of another shard now."""
    prepare(tmp_path)
    plain = json.loads((tmp_path / "bigmnist.json").read_text())
    del plain["sha256"]
    (tmp_path / "bigmnist.json").write_text(json.dumps(plain))
    (tmp_path / "train-00001.u8").unlink()
    prepare(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.u8")}
    assert set(prepare(tmp_path).sha256) == {"train-00001.u8", "train-00001.labels.u8"}
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.u8")} == before


def test_a_finished_folder_may_be_read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A colleague's, say: nothing is locked or written where nothing is missing."""
    prepare(tmp_path)
    monkeypatch.setattr("hpcddp.data.writing.prepare.root_lock", None)
    assert prepare(tmp_path).samples == 13_200


def test_a_full_disk_is_said_with_what_is_still_to_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quota shows only then; what is finished stays."""

    def full(shard: Shard, *others: object, **options: object) -> dict[str, str]:
        if shard.stem == "train-00002":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write_bigmnist_shard(shard, *others, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("hpcddp.data.writing.prepare.write_bigmnist_shard", full)
    with pytest.raises(HpcddpError, match=r"No space left on device; 6.9 MB are still to be written there; what is finished"):
        prepare(tmp_path)
    assert len(read_bigmnist_manifest(tmp_path / "bigmnist.json.part").sha256) == 6


def test_a_finished_folder_is_left_as_it_is(tmp_path: Path) -> None:
    """Asked for again, nothing is written; a shard that was lost is made again, the same."""
    prepare(tmp_path)
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    prepare(tmp_path)
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before
    lost = (tmp_path / "train-00003.u8").read_bytes()
    (tmp_path / "train-00003.u8").write_bytes(lost[:100])
    prepare(tmp_path)
    assert (tmp_path / "train-00003.u8").read_bytes() == lost


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"copies": 3}, r"copies = 2 \(asked for: 3\)"),
        ({"seed": 2}, r"seed = 1 \(asked for: 2\)"),
        ({"variants": ("plain",)}, r"variants = .* \(asked for: \['plain'\]\)"),
        ({"digits": noise_digits(1100, 8)}, "eval_samples = 9 .asked for: 8.*digits_sha256 = "),
    ],
)
@pytest.mark.parametrize("finished", [True, False])
def test_a_folder_of_other_content_is_refused(tmp_path: Path, change: dict[str, object], sentence: str, finished: bool) -> None:
    """Finished or not: nothing that is there is overwritten, and the error says what differs."""
    prepare(tmp_path)
    if not finished:
        (tmp_path / "bigmnist.json").rename(tmp_path / "bigmnist.json.part")
    before = content(tmp_path)
    with pytest.raises(HpcddpError, match=f"holds another bigMNIST, with {sentence}.*choose another folder"):
        prepare(tmp_path, **change)
    assert content(tmp_path) == before


def test_shards_without_a_manifest_are_not_trusted(tmp_path: Path) -> None:
    """Their size says nothing about what they are made of."""
    (tmp_path / "train-00000.u8").write_bytes(bytes(2200 * 784))
    with pytest.raises(HpcddpError, match=r"holds shards but no bigmnist.json"):
        prepare(tmp_path)


def test_too_little_space_is_said_before_anything_is_written(tmp_path: Path) -> None:
    """With what is needed and what is free."""
    with pytest.raises(HpcddpError, match=r"needs 5.2 TB more in .*, where .* are free: .* are missing; choose"):
        prepare(tmp_path, copies=10**6, shard_samples=10**9)
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_made_is_said(tmp_path: Path) -> None:
    """Unknown variants with the nearest known, no copies, a folder that cannot be written."""
    with pytest.raises(UsageError, match="no variant `rotate` of bigMNIST; did you mean `rotated`"):
        prepare(tmp_path, variants=("plain", "rotate"))
    with pytest.raises(UsageError, match="copies is 0"):
        prepare(tmp_path, copies=0)
    (tmp_path / "file").touch()
    with pytest.raises(HpcddpError, match=f"cannot write bigMNIST into {tmp_path / 'file'}"):
        prepare(tmp_path / "file")
