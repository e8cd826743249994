"""Makes bigMNIST: every digit in every variant, copy after copy, with random draws of each copy's own.

Killed and started again, it keeps the finished shards and ends with the same bytes: the draws of a (copy, variant) block
depend on the seed, the copy and the variant only.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import torch

from hpcddp.core.errors import HpcddpError, UsageError
from hpcddp.core.point import VARIANTS, to_json
from hpcddp.core.schema import did_you_mean, encode
from hpcddp.data.augment import augment
from hpcddp.data.bigmnist import IMAGE_BYTES, MANIFEST, UNFINISHED, Manifest, Shard, read_manifest
from hpcddp.data.digits import Digits
from hpcddp.data.roots import first_file
from hpcddp.data.sampling import generator_for
from hpcddp.data.source import Batch, to_bytes

SHARD_SAMPLES = 600_000
"""About: a shard holds whole blocks. 470 MB: 120 shards in the full set, and seconds of work to lose when killed."""
BATCH = 1024
"""Digits augmented at a time: few enough that their working memory stays in a core's cache, twice as fast as 4096."""

ProgressCallback = Callable[[int, int], None]
"""Called with (samples done, samples in all) after every batch, hundreds of times a second."""


def prepare_bigmnist(  # noqa: PLR0913 - the contract with the command
    root: Path,
    *,
    digits: Digits,
    copies: int,
    variants: tuple[str, ...],
    seed: int,
    progress: ProgressCallback,
    shard_samples: int = SHARD_SAMPLES,
) -> Manifest:
    """Writes bigMNIST into `root`, or what `root` lacks of it.

    Raises UsageError for an unknown variant, HpcddpError where `root` holds something else or cannot hold all of it.
    """
    manifest = _manifest(digits, copies, variants, seed, shard_samples)
    with _saying_where(root), _one_thread():
        root.mkdir(parents=True, exist_ok=True)
        _check_content(root, manifest)
        _check_space(root, manifest)
        _begin(root, manifest)
        _write_shard(root, manifest.eval_shard, [(digits.eval_images, digits.eval_labels)])
        done = 0
        for number, shard in enumerate(manifest.train_shards):
            _write_shard(root, shard, _counted(_augmented(manifest, digits, number), done, manifest.samples, progress))
            done += shard.samples
            progress(done, manifest.samples)
        if not (root / MANIFEST).exists():
            os.replace(root / UNFINISHED, root / MANIFEST)
    return manifest


def _manifest(digits: Digits, copies: int, variants: tuple[str, ...], seed: int, shard_samples: int) -> Manifest:
    for variant in variants:
        if variant not in VARIANTS:
            raise UsageError(f"no variant `{variant}` of bigMNIST{did_you_mean(variant, VARIANTS)}")
    if copies < 1 or not variants:
        raise UsageError(f"copies is {copies} and there are {len(variants)} variants; bigMNIST needs at least one of each")
    base = len(digits.train_labels)
    return Manifest(
        copies=copies,
        variants=variants,
        base_samples=base,
        eval_samples=len(digits.eval_labels),
        samples_per_shard=max(1, shard_samples // base) * base,
        digits=digits.source,
        digits_sha256=digits.sha256,
        seed=seed,
    )


def _begin(root: Path, manifest: Manifest) -> None:
    """From here on, shards found in the folder are this manifest's and trusted by their size alone."""
    if _manifest_in(root) is not None:
        return
    aside = root / f"{UNFINISHED}.new"
    aside.write_text(to_json(encode(manifest)) + "\n", encoding="utf-8")
    os.replace(aside, root / UNFINISHED)


def _manifest_in(root: Path) -> Manifest | None:
    """The folder's manifest, finished or not."""
    found = first_file([root], (MANIFEST, UNFINISHED))
    return None if found is None else read_manifest(found)


def _check_content(root: Path, wanted: Manifest) -> None:
    held = _manifest_in(root)
    if held is None:
        if any(root.glob("train-*.u8")):
            raise HpcddpError(f"{root} holds shards but no {MANIFEST} to say of what: remove them or choose another folder")
        return
    ours, theirs = encode(wanted), encode(held)
    differing = [f"{key} = {theirs[key]} (asked for: {ours[key]})" for key in ours if ours[key] != theirs[key]]
    if differing:
        raise HpcddpError(f"{root} holds another bigMNIST, with {'; '.join(differing)}: choose another folder or remove that one")


def _check_space(root: Path, manifest: Manifest) -> None:
    shards = [manifest.eval_shard, *manifest.train_shards]
    needed = sum(shard.samples * (IMAGE_BYTES + 1) for shard in shards if not shard.complete(root))
    free = shutil.disk_usage(root).free
    if needed > free:
        raise HpcddpError(
            f"bigMNIST needs {needed / 1e9:,.1f} GB more in {root}, where {free / 1e9:,.1f} GB are free: "
            "choose another folder or fewer copies"
        )


def _write_shard(root: Path, shard: Shard, batches: Iterable[Batch]) -> None:
    """Both files written aside, flushed and renamed, unless they are there already."""
    if shard.complete(root):
        return
    finals = (shard.images(root), shard.labels(root))
    parts = [path.with_name(f"{path.name}.part") for path in finals]
    with open(parts[0], "wb") as images_file, open(parts[1], "wb") as labels_file:
        for images, labels in batches:
            images_file.write(to_bytes(images))
            labels_file.write(to_bytes(labels.to(torch.uint8)))
        for file in (images_file, labels_file):
            file.flush()
            os.fsync(file.fileno())
    for part, final in zip(parts, finals, strict=True):
        os.replace(part, final)


def _augmented(manifest: Manifest, digits: Digits, number: int) -> Iterator[Batch]:
    """The batches of training shard `number`."""
    blocks = [(copy, variant) for copy in range(manifest.copies) for variant in manifest.variants]
    per_shard = manifest.samples_per_shard // manifest.base_samples
    for copy, variant in blocks[number * per_shard : (number + 1) * per_shard]:
        generator = generator_for("bigmnist", manifest.seed, copy, variant)
        for start in range(0, manifest.base_samples, BATCH):
            batch = slice(start, start + BATCH)
            yield augment(variant, digits.train_images[batch], generator), digits.train_labels[batch]


def _counted(batches: Iterable[Batch], done: int, total: int, progress: ProgressCallback) -> Iterator[Batch]:
    for batch in batches:
        yield batch
        done += len(batch[1])
        progress(done, total)


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """More threads gain nothing on batches this small and lose much on a busy login node (7,000 samples/s, not 140,000)."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextlib.contextmanager
def _saying_where(root: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise HpcddpError(f"cannot write bigMNIST into {root}: {error}; finished shards stay, run again to go on") from error
