"""What a report advises: one place decides on each setting, and says it in the words of the study's loops.

No key of a sweep is advised two values. The weightiest verdict decides; one that would set another value refers to it instead.
Numbers of which more does no harm become the largest that anybody needs. In loops of the user's own a key of hpcddp's trainer is
the script's, and without a sweep there is no `--set`.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace

from hpcddp.analysis.verdicts.context import HOSTS, Advice, Set, Verdict, phrase
from hpcddp.core.point import Point, to_json
from hpcddp.core.text import natural

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
    "workload.data.decoder": "decoding with {}",
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

LARGEST = ("measure.steps", "measure.warmup_steps", "repeat")
"""Keys of which the largest value does for all who advise less."""


def decided(found: Sequence[Verdict], notes: Sequence[Advice], points: Sequence[Point]) -> tuple[list[Verdict], list[str]]:
    """The verdicts, the weightiest first, with their advice in words, and the notes: no key has two values in them."""
    shared = _shared([*(each.todo for each in found), *notes])
    words, chosen = _words(points), dict[str, tuple[object, str]]()

    def text(advice: Advice, name: str) -> str:
        pieces = [_with(piece, shared) for piece in phrase(advice)]
        mine = {key: value for piece in pieces if isinstance(piece, Set) for key, value in piece.values.items()}
        other = next((key for key, value in mine.items() if key in chosen and chosen[key][0] != value), None)
        if other is None:
            chosen.update({key: (value, name) for key, value in mine.items() if key not in chosen})
        elif name:
            value, first = chosen[other]
            pieces = [f"do first what the verdict `{first}` advises, ", Set({other: value})]
        else:
            pieces = [_referred(piece, chosen) for piece in pieces]
        return "".join(piece if isinstance(piece, str) else _set_words(piece.values, words) for piece in pieces)

    return [replace(each, advice=text(each.todo, each.name)) for each in found], [text(note, "") for note in notes]


def _shared(advice: Sequence[Advice]) -> dict[str, object]:
    """Key -> the one value that serves all, of keys that have such a value."""
    given = [pair for each in advice for piece in phrase(each) if isinstance(piece, Set) for pair in piece.values.items()]
    found: dict[str, object] = {key: max(int(str(n)) for k, n in given if k == key) for key, _ in given if key in LARGEST}
    hosts = {host for key, value in given if key == HOSTS for host in str(value).split(",")}
    return {**found, HOSTS: ",".join(sorted(hosts, key=natural))}


def _with(piece: str | Set, shared: Mapping[str, object]) -> str | Set:
    return piece if isinstance(piece, str) else Set({key: shared.get(key, value) for key, value in piece.values.items()})


def _referred(piece: str | Set, chosen: Mapping[str, tuple[object, str]]) -> str | Set:
    """A note's setting, or in its place the verdict that has decided otherwise."""
    if isinstance(piece, str):
        return piece
    first = next((chosen[key][1] for key, value in piece.values.items() if key in chosen and chosen[key][0] != value), None)
    return piece if first is None else f"do what the verdict `{first}` advises"


def _words(points: Sequence[Point]) -> Mapping[str, str]:
    """Nothing of hpcddp's own loop, nor where a study has that, too."""
    if not points or not all(point.own_loop for point in points):
        return {}
    return {**IN_SCRIPT, **WITHOUT_SWEEP} if any(point.script for point in points) else IN_SCRIPT


def _set_words(values: Mapping[str, object], words: Mapping[str, str]) -> str:
    """What the script has in place of its keys, then the others as a sweep has them."""
    texts = {key: _yaml(value) for key, value in values.items()}
    in_script = [key for key in texts if key in IN_SCRIPT and words]
    rest = [key for key in texts if key not in in_script]
    if all(key in words for key in rest):
        in_script, rest = [*in_script, *rest], []
    in_sweep = ", ".join(f"{key}: {texts[key]}" for key in rest)
    by_option = " ".join(f"--set {shlex.quote(f'{key}={texts[key]}')}" for key in rest)
    said = f"`{in_sweep}` in a sweep of the script" if "repeat" in words else f"`{by_option}`"
    return " with ".join([*(words[key].format(texts[key]) for key in in_script), *([said] if rest else [])])


def _yaml(value: object) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return value if isinstance(value, str) else to_json(value)
