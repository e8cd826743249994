"""Reads a folder of bigMNIST and compares it with its manifest."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from hpcddp.core.catalog import MNIST
from hpcddp.core.errors import UsageError
from hpcddp.data.bigmnist.manifest import MANIFEST, UNFINISHED, Manifest, Shard, read_manifest
from hpcddp.data.writing.parts import sha256_of
from hpcddp.data.writing.pool import Advance, run_tasks
from hpcddp.data.writing.verified import Damage, Progress, Verified, counted, files, readable


@readable()
def verify_bigmnist(root: Path, *, progress: Progress, processes: int = 1) -> Verified:
    """Every byte against the checksums; UsageError where there is no finished bigMNIST."""
    if not (root / MANIFEST).is_file():
        held = "an unfinished bigMNIST" if (root / UNFINISHED).is_file() else f"no {MANIFEST}"
        raise UsageError(f"{root} holds {held}: `hpcddp data prepare bigmnist --root {root}` makes what is missing")
    manifest = read_manifest(root / MANIFEST)
    shards = [manifest.eval_shard, *manifest.train_shards]
    advance = counted(0, sum(shard.samples for shard in shards), progress)
    names = {path.name for shard in shards for path in shard.sizes(root)}
    without_sums = len(names - set(manifest.sha256))
    found = run_tasks(partial(_checked, root=root, manifest=manifest), shards, processes, advance)
    return Verified(
        root=root,
        what=f"{files(2 * len(shards))} with {manifest.samples:,} samples for training and {manifest.eval_samples:,} more",
        damaged=tuple(sorted(damage for damages in found for damage in damages)),
        remedy="remove these files and prepare with the same options again, which makes them anew",
        remark=_of_earlier_version(without_sums, len(names)),
    )


def _of_earlier_version(without_sums: int, in_all: int) -> str:
    which = "it" if without_sums == in_all else files(without_sums)
    return f"an earlier version prepared {which} without checksums: lengths and labels were compared" if without_sums else ""


def _checked(shard: Shard, advance: Advance, *, root: Path, manifest: Manifest) -> list[Damage]:
    found = []
    for path, size_bytes in shard.sizes(root).items():
        try:
            reason = _reason(path, size_bytes, manifest.sha256.get(path.name), labels=path == shard.labels(root))
        except OSError as error:
            reason = error.strerror or str(error)
        if reason:
            found.append((path.name, reason))
    advance(shard.samples)
    return found


def _reason(path: Path, size_bytes: int, sha256: str | None, *, labels: bool) -> str | None:
    """What is wrong with a file; None where nothing is."""
    held_bytes = path.stat().st_size
    if held_bytes != size_bytes:
        return f"it has {held_bytes:,} bytes, not {size_bytes:,}"
    with path.open("rb") as file:
        held = sha256_of(file)
    if sha256 not in (None, held):
        return f"its SHA-256 is {held}, not {sha256}"
    if labels and (largest := max(path.read_bytes())) >= MNIST.classes:
        return f"it holds the label {largest}; digits have 0 to {MNIST.classes - 1}"
    return None
