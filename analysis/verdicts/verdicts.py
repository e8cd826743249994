"""Verdicts: named findings about a study, each with its evidence and the next thing to do. A closed list; sound studies get none.

Each function of ALL is given a Case (context.py) and yields Verdicts; every threshold has its reason, and stands above its use.

What is advised is decided here, in the words of the study's loops: no key of a sweep is advised two values. The weightiest
verdict decides; one that would set another value refers to it. Numbers of which more does no harm become the largest that anybody
needs. In loops of the user's own a key of hpcddp's trainer is the script's, and without a sweep there is no `--set`.
"""

from __future__ import annotations

import itertools
import shlex
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.util.files import Failures
from hpcddp.analysis.util.wording import WIDE
from hpcddp.analysis.verdicts import binding, comm, comparability, gates, input, steps, straggler
from hpcddp.analysis.verdicts.context import HOSTS, Advice, Case, PointRow, Set, Verdict, phrase
from hpcddp.core.point import Point, to_json
from hpcddp.core.text import natural

ALL: Mapping[str, Callable[[Case], Iterator[Verdict]]] = {
    "no run counts": gates.nothing_counts,
    "unsynchronised ranks": gates.unsynchronised,
    "wrong evaluation": gates.wrong_evaluation,
    "clock throttling": gates.clock_throttling,
    "shared node": gates.shared_node,
    "damaged data": gates.damaged_data,
    "mixed hardware": comparability.mixed_hardware,
    "mixed software": comparability.mixed_software,
    "contradicting figures": comparability.contradicting,
    "warm-up inside the window": steps.warmup_inside,
    "too few steps": steps.too_few_steps,
    "noisy baseline": comparability.noisy_baseline,
    "suspect baseline": comparability.suspect_baseline,
    "burst network": steps.burst_network,
    "TCP instead of RDMA": partial(comm.transport_verdict, lambda run, network: comm.tcp_fault(network), comm.OF_TCP),
    "idle adapters": partial(comm.transport_verdict, lambda run, network: comm.adapter_fault(network), comm.OF_ADAPTERS),
    "no GPUDirect RDMA": partial(comm.transport_verdict, lambda run, network: comm.gdr_fault(network, run.gpu), comm.OF_GDR),
    "CPU starvation": binding.cpu_starvation,
    "shared cores": binding.cores_shared,
    "far socket": binding.far_socket,
    "input-bound": input.input_bound,
    "slower computation": comparability.slower_computation,
    "stalls": steps.stalling_points,
    "straggler": straggler.straggler,
    "slow link": straggler.slow_link,
    "slow node": straggler.slow_nodes,
    "uneven ranks": input.uneven_ranks,
    "latency-bound": comm.latency_bound,
    "communication-bound": comm.communication_bound,
    "out of line with prediction": comparability.out_of_line,
    "baseline missing": comparability.baseline_missing,
}
"""Name of a verdict -> the function that finds it."""

CAUSES: Mapping[str, tuple[Callable[[Case, PointRow], float | None], str, str]] = {
    "CPU starvation": (binding.starved_share, "too few processor cores", "CPU"),
    "input-bound": (input.input_share, "waiting for data", "input"),
    "slower computation": (comparability.slower_share, "computation that is slower with more ranks", "compute"),
    "stalls": (steps.stalled_share, "steps that sometimes stall", "stalls"),
    "straggler": (straggler.waited_share, "waiting for one slow rank or node", "straggler"),
    "slow link": (straggler.link_share, "waiting for gradients over one slow link", "slow link"),
    "uneven ranks": (input.uneven_share, "ranks that wait for each other in turn", "sync wait"),
    "latency-bound": (comm.latency_share, "many small messages between ranks", "latency"),
    "communication-bound": (comm.comm_share, "exchanging gradients", "exchange"),
}
"""What may hold a point back, how much of it, how the sentence says it, and a table's row."""

DOUBTS: Mapping[str, str] = {
    "too few steps": "too few timed steps",
    "noisy baseline": "a baseline whose runs differ",
    "suspect baseline": "a baseline that is slower than larger points",
    "mixed hardware": "GPUs of several types",
    "mixed software": "several versions of software",
    "contradicting figures": "figures that contradict each other",
    "warm-up inside the window": "warm-up among the timed steps",
    "burst network": "a network that is faster in bursts",
    "shared node": "other jobs on the nodes",
}
"""Verdicts that leave the numbers of runs that count open, and how the sentence says it."""

MARGIN = " " * 11
OF_A_KIND = 2
"""Verdicts of one name that the terminal shows; report.json has them all."""


def verdicts(case: Case, failures: Failures) -> list[Verdict]:
    """All verdicts on a study: the weightiest first, of equal weights those of most runs, then in the order of ALL."""
    none = list[Verdict]()
    each = [failures.contain(f"the verdict `{name}`", partial(_all_of, name, find, case), none) for name, find in ALL.items()]
    return sorted(itertools.chain.from_iterable(each), key=lambda verdict: (-verdict.weight, -len(verdict.runs)))


def _all_of(name: str, find: Callable[[Case], Iterator[Verdict]], case: Case) -> list[Verdict]:
    return [replace(verdict, name=name) for verdict in find(case)]


def cause(case: Case, row: PointRow) -> tuple[str, str] | None:
    """What holds a point back most, in a newcomer's words and in a table's; None where nothing does that verdicts know."""
    shares = {(words, short): share for find, words, short in CAUSES.values() if (share := find(case, row)) is not None}
    return max(shares, key=lambda words: shares[words], default=None)


def doubts(found: Sequence[Verdict], runs: Sequence[Run]) -> list[str]:
    """Why numbers of these runs are not certain, in the sentence's words."""
    mine = {run.name for run in runs if run.state == "counts"}
    return list(dict.fromkeys(DOUBTS[each.name] for each in found if each.name in DOUBTS and mine.intersection(each.runs)))


def verdict_rows(found: Sequence[Verdict]) -> list[dict[str, Any]]:
    """Verdicts as report.json has them."""
    rows = [{**vars(each), "numbers": dict(each.numbers), "runs": list(each.runs)} for each in found]
    return [{name: value for name, value in row.items() if name not in ("todo", "brief")} for row in rows]


def verdict_lines(found: Sequence[Verdict], width: int = WIDE) -> list[str]:
    """Verdicts as the terminal shows them: each with its evidence and advice, which is shown once for several in a row."""
    names = dict.fromkeys(verdict.name for verdict in found)
    of_name = {name: [verdict for verdict in found if verdict.name == name] for name in names}
    shown = [verdict for alike in of_name.values() for verdict in alike[:OF_A_KIND]]
    lines = []
    for verdict, after in zip(shown, [*shown[1:], None], strict=False):
        lines += _wrapped(f"{verdict.name} {verdict.where}: {verdict.evidence}", "  VERDICT  ", width)
        left = len(of_name[verdict.name]) - OF_A_KIND
        if left > 0 and (after is None or after.name != verdict.name):
            lines.append(f"{MARGIN}and {left} more of this name: see report.json")
        if after is None or after.advice != verdict.advice:
            lines += _wrapped(verdict.advice, MARGIN, width)
    return lines


def _wrapped(text: str, before: str, width: int) -> list[str]:
    """Lines of at most `width`; text between backticks is not broken, so that it can be copied."""
    pieces = text.split("`")
    glued = "`".join(piece.replace(" ", "\0") if index % 2 else piece for index, piece in enumerate(pieces))
    lines = textwrap.wrap(glued, width - len(before), break_long_words=False, break_on_hyphens=False)
    return [f"{before if index == 0 else ' ' * len(before)}{line}".replace("\0", " ") for index, line in enumerate(lines)]


IN_SCRIPT: Mapping[str, str] = {
    "workload.batch_per_gpu": "`samples_per_step={}` and batches of that size",
    "workload.global_batch": "batches of {} over all ranks",
    "workload.loader_workers_per_rank": "`DataLoader(..., num_workers={})`",
    "workload.ddp.bucket_cap_mb": "`DistributedDataParallel(..., bucket_cap_mb={})`",
    "workload.ddp.compression": "`model.register_comm_hook(None, {}_compress_hook)`",
    "workload.parallel": "`DistributedDataParallel`",
    "workload.fsdp.reshard_after_forward": "`fully_shard(..., reshard_after_forward=False)`",
    "workload.data.stage": "before the loop",
    "workload.data.resident": "before the loop",
    "workload.data.decoder": "the decoder {}",
    "measure.input": "a loop over the loader without training",
}
"""Key -> what a script has in its place; `{}` is the value."""

WITHOUT_SWEEP: Mapping[str, str] = {
    "measure.steps": "`measure(..., steps={})`",
    "measure.warmup_steps": "`measure(..., warmup_steps={})`",
    "measure.gc": "`gc.freeze()` before the loop",
    "measure.comm": "a sweep's `measure.comm: {}`",
    "repeat": "{} starts of the script",
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
        pieces = [
            piece if isinstance(piece, str) else Set({key: shared.get(key, value) for key, value in piece.values.items()})
            for piece in phrase(advice)
        ]
        mine = {key: value for piece in pieces if isinstance(piece, Set) for key, value in piece.values.items()}
        other = next((key for key, value in mine.items() if key in chosen and chosen[key][0] != value), None)
        if other is None:
            chosen.update({key: (value, name) for key, value in mine.items() if key not in chosen})
        elif name:
            value, first = chosen[other]
            pieces = [f"Follow the verdict `{first}` first: ", Set({other: value}), "."]
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


def _referred(piece: str | Set, chosen: Mapping[str, tuple[object, str]]) -> str | Set:
    """A note's setting, or in its place the verdict that has decided otherwise."""
    if isinstance(piece, str):
        return piece
    first = next((chosen[key][1] for key, value in piece.values.items() if key in chosen and chosen[key][0] != value), None)
    return piece if first is None else f"the advice of the verdict `{first}`"


def _words(points: Sequence[Point]) -> Mapping[str, str]:
    """Nothing of hpcddp's own loop, nor where a study has that, too."""
    if not points or not all(point.own_loop for point in points):
        return {}
    return {**IN_SCRIPT, **WITHOUT_SWEEP} if any(point.script for point in points) else IN_SCRIPT


def _set_words(values: Mapping[str, object], words: Mapping[str, str]) -> str:
    """What the script has in place of its keys, then the others as a sweep has them."""
    given = {key: f"{value:g}" if isinstance(value, float) else value for key, value in values.items()}
    texts = {key: value if isinstance(value, str) else to_json(value) for key, value in given.items()}
    in_script = [key for key in texts if key in IN_SCRIPT and words]
    rest = [key for key in texts if key not in in_script]
    if all(key in words for key in rest):
        in_script, rest = [*in_script, *rest], []
    in_sweep = ", ".join(f"{key}: {texts[key]}" for key in rest)
    by_option = " ".join(f"--set {shlex.quote(f'{key}={texts[key]}')}" for key in rest)
    said = f"`{in_sweep}` in a sweep of the script" if "repeat" in words else f"`{by_option}`"
    return " with ".join([*(words[key].format(texts[key]) for key in in_script), *([said] if rest else [])])
