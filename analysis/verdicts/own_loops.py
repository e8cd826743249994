"""Advice on loops of the user's own: a key of hpcddp's trainer is the script's there, and without a sweep there is no `--set`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from hpcddp.analysis.verdicts.context import Verdict
from hpcddp.core.point import Point

SETTING = re.compile(r"`--set '?(?P<key>[\w.]+)=(?P<value>[^`']+?)'?(?P<more> --set [^`]+)?`")

IN_SCRIPT: Mapping[str, str] = {
    "workload.batch_per_gpu": "`samples_per_step={}`, by batches of that size",
    "workload.global_batch": "batches of {} over all ranks",
    "workload.loader_workers_per_rank": "`DataLoader(..., num_workers={})`",
    "workload.ddp.bucket_cap_mb": "`DistributedDataParallel(..., bucket_cap_mb={})`",
    "workload.ddp.compression": "`model.register_comm_hook(None, {}_compress_hook)`",
    "workload.parallel": "`DistributedDataParallel`",
    "workload.fsdp.reshard_after_forward": "`fully_shard(..., reshard_after_forward=False)`",
    "workload.data.stage": "before the loop",
    "workload.data.resident": "all of it before the loop",
    "measure.input": "iterating over the loader by itself",
}
"""Key -> what a script has in its place; `{}` is the value."""

WITHOUT_SWEEP: Mapping[str, str] = {
    "measure.steps": "`measure(..., steps={})`",
    "measure.warmup_steps": "`measure(..., warmup_steps={})`",
    "measure.gc": "`gc.freeze()` before the loop",
    "measure.comm": "a sweep's `measure.comm: {}`",
    "repeat": "starting it {} times",
    "slurm.exclude": "`sbatch --exclude={}`",
    "layout.exclusive": "`sbatch --exclusive`",
}
"""The same of a script that was started by itself, besides."""

REPEAT = re.compile(r"`repeat: 6`")
NEW_POINT = re.compile(
    r"add the point to the sweep: `baseline: \{layout.nodes: \[1\], layout.gpus_per_node: \[(\d+)\]\}` under `points`"
)
NO_POINT = "the sweep has no such point"


def in_own_words(found: Iterable[Verdict], points: Iterable[Point]) -> list[Verdict]:
    """The verdicts, with advice that suits the study's loops."""
    words = _words(list(points))
    if not words:
        return list(found)
    return [replace(each, advice=_reworded(each.advice, words), evidence=_without_sweep(each.evidence, words)) for each in found]


def notes_in_own_words(found: Iterable[str], points: Iterable[Point]) -> list[str]:
    """The same of notes."""
    words = _words(list(points))
    return [_reworded(note, words) for note in found] if words else list(found)


def _words(points: list[Point]) -> Mapping[str, str]:
    """Nothing of hpcddp's own loop, nor where a study has that, too."""
    if not points or not all(point.own_loop for point in points):
        return {}
    return {**IN_SCRIPT, **WITHOUT_SWEEP} if any(point.script for point in points) else IN_SCRIPT


def _reworded(text: str, words: Mapping[str, str]) -> str:
    without_sweep = "repeat" in words

    def replaced(match: re.Match[str]) -> str:
        key, value, more = match["key"], match["value"], match["more"]
        if key in words and not more:
            return words[key].format(value)
        if not without_sweep:
            return match[0]
        settings = [f"{key}: {value}", *(each.replace("=", ": ") for each in (more or "").split(" --set ")[1:])]
        return f"`{', '.join(settings)}` in a sweep of the script"

    changed = SETTING.sub(replaced, text)
    if not without_sweep:
        return changed
    return NEW_POINT.sub(_start_on_gpus, REPEAT.sub(WITHOUT_SWEEP["repeat"].format("six"), changed))


def _start_on_gpus(baseline: re.Match[str]) -> str:
    return f"start the script on one node with `torchrun --nproc-per-node {baseline[1]}`, too, and its batch per rank as it is"


def _without_sweep(evidence: str, words: Mapping[str, str]) -> str:
    return evidence.replace(NO_POINT, "no such run is there") if "repeat" in words else evidence
