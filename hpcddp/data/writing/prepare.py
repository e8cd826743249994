"""Makes bigMNIST: every digit in every variant, copy after copy, with random draws of each copy's own. And scikit-learn's digits
in the shape of CIFAR-10.

Killed and started again, it keeps the finished shards and ends with the same bytes. A shard is finished when its checksums
stand in the manifest, which is written anew after each. The draws of a (copy, variant) block depend on the seed, the copy and the
variant only, so that a shard has the same bytes whichever process makes it, and whatever was made before.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Generator, Iterator
from functools import partial
from pathlib import Path

import torch
from torch.nn import functional

from hpcddp.core.errors import HpcddpError, UsageError
from hpcddp.core.point import VARIANTS
from hpcddp.core.schema import did_you_mean, encode
from hpcddp.data.bigmnist.augment import augment
from hpcddp.data.bigmnist.shards import IMAGE_BYTES, MANIFEST, UNFINISHED, Manifest, Shard, read_manifest
from hpcddp.data.roots import first_file
from hpcddp.data.sampling import generator_for
from hpcddp.data.small_sets import DIGITS_FILES, Digits
from hpcddp.data.source import Batch, to_bytes
from hpcddp.data.writing import folder as disk
from hpcddp.data.writing.folder import OnProgress, counted
from hpcddp.data.writing.pool import Advance, run_tasks

SHARD_SAMPLES = 600_000
"""About: a shard holds whole blocks. 470 MB: 120 shards in the full set, and seconds of work to lose when killed."""


def prepare_bigmnist(  # noqa: PLR0913 - the contract with the command
    root: Path,
    *,
    digits: Digits,
    copies: int,
    variants: tuple[str, ...],
    seed: int,
    progress: OnProgress,
    remark: Callable[[str], None] = lambda _: None,
    processes: int = 1,
    shard_samples: int = SHARD_SAMPLES,
) -> Manifest:
    """Writes bigMNIST into `root`, or what `root` lacks of it; `remark` is given a sentence where another process is at it.

    Raises UsageError for an unknown variant or where `root` holds something else, HpcddpError where it cannot hold all of it.
    """
    wanted = _manifest(digits, copies, variants, seed, shard_samples)
    with _write_errors(root, wanted):
        root.mkdir(parents=True, exist_ok=True)
        found = _checked_content(root, wanted)
        if not _missing(root, found) and (root / MANIFEST).exists():
            return found
        needed_bytes = _missing_bytes(root, found) - disk.bytes_of_parts(root)
        disk.check_space(root, needed_bytes, "bigMNIST", "choose another folder or fewer copies")
        with disk.root_lock(root, remark) as lock, disk.without_parts(root):
            manifest = _checked_content(root, wanted)
            with contextlib.closing(_written(root, manifest, digits, processes, progress)) as states:
                for manifest in states:
                    lock.check()
                    _write_manifest(root, manifest)
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


def _checked_content(root: Path, wanted: Manifest) -> Manifest:
    """The folder's manifest, finished or not, or else `wanted`; UsageError where the folder holds something else."""
    file = first_file([root], (MANIFEST, UNFINISHED))
    if file is None:
        if any(root.glob("train-*.u8")):
            raise UsageError(f"{root} holds shards but no {MANIFEST} that describes them. Delete them, or choose another folder.")
        return wanted
    held = read_manifest(file)
    ours, theirs = (encode(dataclasses.replace(manifest, sha256={})) for manifest in (wanted, held))
    differing = [f"{key} = {theirs[key]} (requested: {ours[key]})" for key in ours if ours[key] != theirs[key]]
    if differing:
        raise UsageError(
            f"{root} holds another bigMNIST, with {'; '.join(differing)}. Choose another folder, or delete that one."
        )
    return held


def _missing(root: Path, manifest: Manifest) -> list[Shard]:
    """The shards that are still to be made. In a finished folder those of an earlier version have no checksum."""
    shards = [manifest.eval_shard, *manifest.train_shards]
    trusted = (root / MANIFEST).exists()
    return [
        shard
        for shard in shards
        if not shard.complete(root) or not (trusted or {path.name for path in shard.sizes(root)} <= set(manifest.sha256))
    ]


def _missing_bytes(root: Path, manifest: Manifest) -> int:
    return sum(shard.samples * (IMAGE_BYTES + 1) for shard in _missing(root, manifest))


def _written(
    root: Path, manifest: Manifest, digits: Digits, processes: int, progress: OnProgress
) -> Generator[Manifest, None, None]:
    """Makes what is missing: the manifest before the first shard, and after each with the shard's checksums."""
    missing = _missing(root, manifest)
    done = manifest.samples - sum(shard.samples for shard in missing if shard != manifest.eval_shard)
    yield manifest
    advance = counted(done, manifest.samples, progress)
    work = partial(write_bigmnist_shard, root=root, manifest=manifest, digits=digits)
    with contextlib.closing(run_tasks(work, missing, processes, advance)) as results:
        for sums in results:
            manifest = dataclasses.replace(manifest, sha256=dict(sorted({**manifest.sha256, **sums}.items())))
            yield manifest


def _write_manifest(root: Path, manifest: Manifest) -> None:
    """Under the name that it has already; before there is one, nothing in the folder is taken for finished."""
    file = root / (MANIFEST if (root / MANIFEST).exists() else UNFINISHED)
    disk.write_complete(file, f"{json.dumps(encode(manifest), indent=1)}\n".encode())


@contextlib.contextmanager
def _write_errors(root: Path, wanted: Manifest) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise disk.write_error(error, root, "bigMNIST", lambda: _missing_bytes(root, _checked_content(root, wanted))) from error


BATCH = 1024
"""Digits augmented at a time: few enough that their working memory stays in a core's cache, twice as fast as 4096."""


def write_bigmnist_shard(shard: Shard, advance: Advance, *, root: Path, manifest: Manifest, digits: Digits) -> dict[str, str]:
    """Writes both files of `shard`; their names with the SHA-256 of what was written."""
    finals = (shard.images(root), shard.labels(root))
    digests = (hashlib.sha256(), hashlib.sha256())
    with disk.written_aside(finals[0]) as images_file, disk.written_aside(finals[1]) as labels_file:
        for images, labels in _batches(shard, manifest, digits):
            for file, digest, tensor in zip((images_file, labels_file), digests, (images, labels.to(torch.uint8)), strict=True):
                content = to_bytes(tensor)
                file.write(content)
                digest.update(content)
            if shard != manifest.eval_shard:
                advance(len(labels))
    return {final.name: digest.hexdigest() for final, digest in zip(finals, digests, strict=True)}


def _batches(shard: Shard, manifest: Manifest, digits: Digits) -> Iterator[Batch]:
    if shard == manifest.eval_shard:
        yield digits.eval_images, digits.eval_labels
        return
    blocks = [(copy, variant) for copy in range(manifest.copies) for variant in manifest.variants]
    per_shard = manifest.samples_per_shard // manifest.base_samples
    number = manifest.train_shards.index(shard)
    for copy, variant in blocks[number * per_shard : (number + 1) * per_shard]:
        generator = generator_for("bigmnist", manifest.seed, copy, variant)
        for start in range(0, manifest.base_samples, BATCH):
            batch = slice(start, start + BATCH)
            yield augment(variant, digits.train_images[batch], generator), digits.train_labels[batch]


MARGIN = 2
"""Pixels around an image of 28 x 28."""


def prepare_digits(root: Path, digits: Digits) -> int:
    """Writes both splits into `root`; how many digits. HpcddpError where it cannot be written."""
    splits = {"train": (digits.train_images, digits.train_labels), "eval": (digits.eval_images, digits.eval_labels)}
    try:
        root.mkdir(parents=True, exist_ok=True)
        for split, (images, labels) in splits.items():
            planes = functional.pad(images, (MARGIN,) * 4).expand(-1, 3, -1, -1).flatten(1)
            records = torch.cat([labels[:, None].to(torch.uint8), planes], dim=1)
            disk.write_complete(root / DIGITS_FILES[split], to_bytes(records))
    except OSError as error:
        raise HpcddpError(f"cannot write digits into {root}: {error}") from error
    return sum(len(labels) for _, labels in splits.values())
