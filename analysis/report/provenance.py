"""What stands behind a report's numbers: machines, software, settings and checks, as the records of its runs have them.

Read for display only: whatever is missing or odd is left out, nothing here decides anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.util.regular_files import object_or_nothing
from hpcddp.core.run_root import Study
from hpcddp.core.text import count

SHOWN_HOSTS = 32
SHOWN_TEXT = 300
"""Characters of one value; the records have the rest."""


@dataclass(frozen=True)
class Gate:
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
    gates: Sequence[Gate]
    gates_of: Mapping[str, str]


@dataclass(frozen=True)
class _Attempt:
    launch: Mapping[str, Any]
    end: Mapping[str, Any]
    run: Run

    @property
    def gates(self) -> list[Mapping[str, Any]]:
        found = self.end.get("gates")
        return [gate for gate in found if isinstance(gate, dict) and "name" in gate] if isinstance(found, list) else []


def provenance(study: Study, runs: Iterable[Run]) -> Provenance:
    """Of the attempts that count, and of those that were rejected."""
    folders = [(run, study.run_dir(*run.key) / run.attempt) for run in runs if run.attempt]
    read = object_or_nothing
    attempts = [_Attempt(read(folder / "launch.json"), read(folder / "end.json"), run) for run, folder in folders]
    nodes = _nodes(folder for _, folder in folders)
    facts = {name: _counted(values) for name, values in _facts(attempts, nodes).items()}
    return Provenance(
        facts={name: values for name, values in facts.items() if values},
        gates=_gates(attempts),
        gates_of={attempt.run.name: _passed(attempt.gates) for attempt in attempts if attempt.gates},
    )


def _facts(attempts: Sequence[_Attempt], nodes: Mapping[str, Mapping[str, Any]]) -> dict[str, list[str]]:
    """Every value once per run (of nodes, once per node)."""
    launches = [attempt.launch for attempt in attempts]
    hosts = sorted({str(host) for launch in launches for host in _list(launch.get("hosts"))})
    return {
        "cluster": [attempt.run.point.cluster for attempt in attempts if attempt.run.point],
        "started": _span([launch.get("started_unix_ns") for launch in launches]),
        f"hosts ({len(hosts)})": [", ".join([*hosts[:SHOWN_HOSTS], *(["…"] if len(hosts) > SHOWN_HOSTS else [])])]
        if hosts
        else [],
        "processor": [f"{node['cpu']}, {node.get('cpus')} CPUs" for node in nodes.values() if node.get("cpu")],
        "GPU": [str(gpu) for launch in launches for gpu in _list(launch.get("gpus"))],
        "GPU driver": [str(node["gpu_driver"]) for node in nodes.values() if node.get("gpu_driver")],
        "software": [_joined(_pairs(launch.get("versions")), f"env {launch.get('env_id')}") for launch in launches if launch],
        "code": [f"git {launch['git_commit']}" for launch in launches if launch.get("git_commit")],
        "communication": [str(launch["communication"]) for launch in launches if launch.get("communication")],
        "launched by": [_joined(launch.get("backend"), launch.get("launcher")) for launch in launches],
        "data": [str(_dict(launch.get("data")).get("name", "")) for launch in launches],
        "clock": [str(launch["clock"]) for launch in launches if launch.get("clock")],
        "TF32": [_pairs(launch["tf32"]) for launch in launches if launch.get("tf32")],
        "warm-up": [_warmup(attempt.run) for attempt in attempts if attempt.run.trains],
        "timed steps": [f"{attempt.run.steady_steps}" for attempt in attempts if attempt.run.steady_steps],
        "stopped by": [attempt.run.stopped_by for attempt in attempts if attempt.run.stopped_by],
    }


def _warmup(run: Run) -> str:
    assert run.point is not None
    found = run.warmup_detected_steps
    ended = "; where it ended is unknown" if found is None else f"; it ended after {found}"
    return f"{count(run.point.measure.warmup_steps, 'step')} left out{ended}"


def _gates(attempts: Sequence[_Attempt]) -> list[Gate]:
    """In the order the runs made them."""
    by_name: dict[str, list[Mapping[str, Any]]] = {}
    for attempt in attempts:
        for gate in attempt.gates:
            by_name.setdefault(str(gate["name"]), []).append(gate)
    return [_gate(name, found) for name, found in by_name.items()]


def _gate(name: str, found: Sequence[Mapping[str, Any]]) -> Gate:
    failed = [gate for gate in found if gate.get("passed") is not True]
    return Gate(name, len(found) - len(failed), len(found), str((failed or found)[0].get("evidence", ""))[:SHOWN_TEXT])


def _passed(gates: Sequence[Mapping[str, Any]]) -> str:
    return f"{sum(gate.get('passed') is True for gate in gates)} of {len(gates)}"


def _nodes(attempts: Iterable[Path]) -> dict[str, Mapping[str, Any]]:
    """Host -> its record, each read once."""
    found: dict[str, Mapping[str, Any]] = {}
    for attempt in attempts:
        for file in sorted((attempt / "nodes").glob("*.json")):
            if file.stem not in found:
                found[file.stem] = object_or_nothing(file)
    return found


def _counted(values: Iterable[str]) -> list[str]:
    """Each once, the commonest first, with how many runs have it where there are several."""
    counts = Counter(value[:SHOWN_TEXT] for value in values if value)
    several = len(counts) > 1
    return [
        f"{value} ({count}×)" if several else value
        for value, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]


def _span(times_ns: Sequence[Any]) -> list[str]:
    """From the first run's start to the last one's, UTC."""
    known = sorted(each for each in times_ns if isinstance(each, int) and 0 < each < 4e18)
    days = [datetime.fromtimestamp(each / 1e9, UTC).strftime("%Y-%m-%d %H:%M") for each in (known[:1] + known[-1:])]
    return [" to ".join(dict.fromkeys(days)) + " UTC"] if days else []


def _pairs(plain: Any) -> str:
    return ", ".join(f"{name} {value}" for name, value in _dict(plain).items() if value is not None)


def _joined(*words: Any) -> str:
    return ", ".join(str(word) for word in words if word)


def _list(plain: Any) -> Iterator[Any]:
    yield from plain if isinstance(plain, list) else ()


def _dict(plain: Any) -> dict[str, Any]:
    return plain if isinstance(plain, dict) else {}
