"""What stands behind a report's numbers beside what was trained: machines, settings and checks, as the records have them.

Read for display only: whatever is missing or odd is left out, nothing here decides anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from hpcddp.analysis.runs.run import Run, by_reason
from hpcddp.analysis.util.files import record_or_none
from hpcddp.analysis.verdicts.context import DOUBTFUL, WRONG, Verdict
from hpcddp.analysis.verdicts.findings import Findings
from hpcddp.core.attempt_records import GateResult
from hpcddp.core.launch_record import LaunchRecord, NodeRecord
from hpcddp.core.run_root import Study
from hpcddp.core.text import count, natural
from hpcddp.core.transport_record import transport_words

SHOWN_HOSTS = 32
SHOWN_TEXT = 300
"""Characters of one value; the records have the rest."""


@dataclass(frozen=True)
class GateCount:
    """A check over all runs that made it."""

    name: str
    passed: int
    runs: int
    evidence: str
    """Of a run that failed it where there is one."""


@dataclass(frozen=True)
class Provenance:
    """`facts`: what -> its values, the commonest first; `gates_of`: run name -> `9 of 9`."""

    facts: Mapping[str, Sequence[str]]
    gates: Sequence[GateCount]
    gates_of: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class _CheckedEnd:
    """Of end.json, what is shown."""

    gates: tuple[GateResult, ...] = ()


@dataclass(frozen=True)
class _Attempt:
    run: Run
    folder: Path
    launch: LaunchRecord | None
    gates: tuple[GateResult, ...]


def provenance(study: Study, runs: Iterable[Run]) -> Provenance:
    """Of the attempts that count, and of those that were rejected."""
    attempts = []
    for run in runs:
        if run.attempt:
            folder = study.run_dir(*run.key) / run.attempt
            launch, end = record_or_none(LaunchRecord, folder / "launch.json"), record_or_none(_CheckedEnd, folder / "end.json")
            attempts.append(_Attempt(run, folder, launch, end.gates if end else ()))
    facts = {name: counted for name, values in _facts(attempts).items() if (counted := _counted(values))}
    checked = {each.run.name: each.gates for each in attempts if each.gates}
    passed = {name: f"{sum(gate.passed for gate in gates)} of {len(gates)}" for name, gates in checked.items()}
    return Provenance(facts, _gates(attempts), passed)


def _facts(attempts: Sequence[_Attempt]) -> dict[str, list[str]]:
    """Every value once per run (of nodes, once per node)."""
    launches, nodes = [attempt.launch for attempt in attempts if attempt.launch], _nodes(attempts)
    hosts = sorted({host for launch in launches for host in launch.hosts}, key=natural)
    return {
        f"hosts ({len(hosts)})": [", ".join([*hosts[:SHOWN_HOSTS], *(["…"] if len(hosts) > SHOWN_HOSTS else [])])],
        "processor": [f"{node.cpu}, {node.cpus} CPUs" for node in nodes if node.cpu],
        "GPU driver": [node.gpu_driver for node in nodes if node.gpu_driver],
        "code": [f"git {launch.git_commit}" for launch in launches if launch.git_commit],
        "communication": [launch.communication for launch in launches if launch.communication],
        "network": [transport_words(run.network.transport) for run in (each.run for each in attempts) if run.network],
        "launched by": [", ".join(filter(None, (launch.backend, launch.launcher))) for launch in launches],
        "clock": [launch.clock for launch in launches if launch.clock],
        "TF32": [", ".join(f"{key} {on}" for key, on in each.tf32.items() if on is not None) for each in launches if each.tf32],
        "warm-up": [_warmup(attempt.run) for attempt in attempts if attempt.run.trains],
        "timed steps": [f"{attempt.run.steady_steps}" for attempt in attempts if attempt.run.steady_steps],
        "stopped by": [attempt.run.stopped_by for attempt in attempts if attempt.run.stopped_by],
    }


def _warmup(run: Run) -> str:
    assert run.point is not None
    found = run.warmup_detected_steps
    ended = "; where it ended is unknown" if found is None else f"; it ended after {found}"
    return f"{count(run.point.measure.warmup_steps, 'step')} left out{ended}"


def _gates(attempts: Sequence[_Attempt]) -> list[GateCount]:
    """In the order the runs made them."""
    by_name: dict[str, list[GateResult]] = {}
    for attempt in attempts:
        for gate in attempt.gates:
            by_name.setdefault(gate.name, []).append(gate)
    failed = {name: [gate for gate in found if not gate.passed] for name, found in by_name.items()}
    return [
        GateCount(name, len(found) - len(failed[name]), len(found), (failed[name] or found)[0].evidence[:SHOWN_TEXT])
        for name, found in by_name.items()
    ]


def _nodes(attempts: Sequence[_Attempt]) -> list[NodeRecord]:
    """Of each host the first record."""
    files = {file.stem: file for attempt in reversed(attempts) for file in attempt.folder.glob("nodes/*.json")}
    return [node for file in files.values() if (node := record_or_none(NodeRecord, file))]


def _counted(values: Iterable[str]) -> list[str]:
    """Each once, the commonest first, with how many runs have it where there are several."""
    counts = sorted(Counter(value[:SHOWN_TEXT] for value in values if value).items(), key=lambda item: (-item[1], item[0]))
    return [f"{value} ({count}×)" if len(counts) > 1 else value for value, count in counts]


METHOD = {
    "step": "A run's step is the time its timed steps took / their number, the mean over ranks; throughput is the samples of "
    "these steps / that time. A point's is the median over its runs. Median and quantiles of steps say what a typical one is.",
    "interval": "From six runs on, the 95 % interval of the median over runs (order statistics, no distribution assumed). With "
    "two to five runs, the range, which contains the true median in 50 % (two) to 94 % (five) of studies. The number of runs is "
    "n. Time, hours and energy of an epoch are means over runs, with the least and the most of any run.",
    "efficiency": "Throughput per GPU relative to the baseline's. One GPU and one full node are both shown, because neither "
    "alone tells how a step to more nodes fares. Its interval draws the runs of both medians (bootstrap), or is their extremes.",
    "parts of a step": "Each lies between two marks on one timeline: events in the compute stream on CUDA, the host's clock on a "
    "CPU. They are means over timed steps and ranks and add up to the step; a point's are of its middle run, or of its two.",
    "communication": "Exposed is what backward did not hide; exchange is bytes in flight, sync wait is another rank being late. "
    "The breakdown comes from runs with a communication hook, throughput from runs without it.",
    "not counted": "Warm-up steps, the step after a pause, and runs that failed a check: those are shown as rejected, with the "
    "reason. GPU types, node types and software environments are never averaged together.",
}
"""Term, what it means."""


@dataclass(frozen=True)
class Remark:
    """One of them, with what to do about it and the runs that show it."""

    kind: str
    """A verdict's name, `rejected`, `missing` or `note`."""
    grave: str
    """`wrong`, `doubtful` or ``, as it is coloured."""
    text: str
    advice: str = ""
    runs: Sequence[str] = ()


def study_remarks(found: Findings) -> list[Remark]:
    """What is wrong first."""
    grave = {"rejected": "wrong", "missing": "doubtful"}
    of_runs = [
        Remark(state, grave[state], reason, runs=tuple(run.name for run in same))
        for state in grave
        for reason, same in by_reason(run for run in found.records.runs if run.state == state).items()
    ]
    return [*map(_of_verdict, found.verdicts), *of_runs, *(Remark("note", "", note) for note in found.notes)]


def by_kind(found: Findings) -> list[tuple[str, list[tuple[Remark, str]]]]:
    """(kind, its remarks, each with its advice); what several in a row advise stands with the first of them."""
    groups = [(kind, list(same)) for kind, same in groupby(study_remarks(found), key=lambda remark: remark.kind)]
    return [
        (kind, [(one, "" if i and one.advice == same[i - 1].advice else one.advice) for i, one in enumerate(same)])
        for kind, same in groups
    ]


def _of_verdict(verdict: Verdict) -> Remark:
    grave = "wrong" if verdict.weight >= WRONG else "doubtful" if verdict.weight >= DOUBTFUL else ""
    text = f"{verdict.where}: {verdict.evidence}" if verdict.where else verdict.evidence
    return Remark(verdict.name, grave, text, verdict.advice, verdict.runs)
