from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import hpcddp
from hpcddp.core.errors import HpcddpError, UsageError
from hpcddp.core.point import VARIANTS
from hpcddp.data.bigmnist import Manifest, read_manifest
from hpcddp.data.writing.prepare import prepare_bigmnist
from tests.data.digits import noise_digits

DIGITS = noise_digits(1100, 9)
"""More than one batch of augmentation per block."""
REPOSITORY = Path(hpcddp.__file__).parents[1]
WATCHED = """
import sys
from pathlib import Path
from tests.data.writing.test_prepare import prepare

def wait(done, total):
    print(done, flush=True)
    sys.stdin.readline()

prepare(Path(sys.argv[1]), progress=wait)
"""
"""Prepares one batch for each line that it is sent."""


def ignore(done: int, total: int) -> None:
    pass


def prepare(root: Path, progress: object = ignore, **changes: object) -> Manifest:
    """2 copies x 6 variants x 1,100 digits, two blocks per shard: 6 shards."""
    chosen = {"digits": DIGITS, "copies": 2, "variants": VARIANTS, "seed": 1, "progress": progress, "shard_samples": 2200}
    return prepare_bigmnist(root, **{**chosen, **changes})  # type: ignore[arg-type]


def content(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in root.iterdir()}


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
    assert manifest == read_manifest(tmp_path / "new" / "folder" / "bigmnist.json")
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


@pytest.mark.parametrize("batches", [1, 6, 24])
def test_a_killed_preparation_goes_on_to_the_same_bytes(tmp_path: Path, uninterrupted: dict[str, bytes], batches: int) -> None:
    """SIGKILL in the first shard, in the second, and in the last: finished shards are kept, the result is the same."""
    _kill_after(batches, tmp_path)
    left = content(tmp_path)
    assert "bigmnist.json" not in left
    finished = {name for name, data in left.items() if uninterrupted.get(name) == data}
    assert len([name for name in finished if name.startswith("train")]) == 2 * ((batches - 1) // 4)
    written = {name: (tmp_path / name).stat().st_mtime_ns for name in finished}
    reported: list[int] = []
    prepare(tmp_path, progress=lambda done, total: reported.append(done))
    assert content(tmp_path) == uninterrupted
    assert {name: (tmp_path / name).stat().st_mtime_ns for name in finished} == written
    assert reported == sorted(reported)
    assert reported[-1] == 13_200


def _kill_after(batches: int, root: Path) -> None:
    """Starts a preparation, lets it write `batches` batches (two a block, four a shard) and kills it there."""
    child = subprocess.Popen(
        [sys.executable, "-c", WATCHED, str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"},
    )
    with child:
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            for report in range(_reports(batches)):
                assert child.stdout.readline().strip().isdigit()
                if report < _reports(batches) - 1:
                    child.stdin.write(b"\n")
                    child.stdin.flush()
        finally:
            child.send_signal(signal.SIGKILL)
            child.wait()


def _reports(batches: int) -> int:
    """Progress is told after each batch and once more after each shard."""
    return batches + (batches - 1) // 4


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
    with pytest.raises(HpcddpError, match=r"bigMNIST needs [\d,]+\.\d GB more in .*, where [\d,.]+ GB are free"):
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
