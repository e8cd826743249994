"""What ran where and when, of two studies: whatever may explain that their numbers differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcddp.analysis.comparison.match import MeasuredPoint
from hpcddp.analysis.study.load import StudyRecords
from hpcddp.analysis.study.series import short_name, value_text
from hpcddp.analysis.study.trained import days
from hpcddp.analysis.util.regular_files import record_or_none
from hpcddp.core.launch_record import LaunchRecord, NodeRecord
from hpcddp.core.run_root import Study

RECORDED = ("launcher", "communication", "git_commit", "tf32", "clock")
"""Keys of launch.json."""

OF_NODE = ("cpu", "kernel", "gpu_driver", "cpus_usable")
"""Keys of nodes/HOST.json."""

OF_THE_JOB = ("SLURM_", "MASTER_", "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
"""Variables that differ between any two jobs."""


@dataclass(frozen=True)
class Difference:
    """A fact that is not the same in both studies; values are sorted, each once, `unknown` where it was not recorded."""

    name: str
    a: tuple[str, ...]
    b: tuple[str, ...]


@dataclass(frozen=True)
class Facts:
    """What the records of the compared runs say of machines and software."""

    values: Mapping[str, tuple[str, ...]]
    dates: str
    """`2025-03-01`, or from and to; UTC."""


def facts(study: Study, records: StudyRecords, measured_points: Iterable[MeasuredPoint]) -> Facts:
    """Reads launch.json and nodes/*.json of the groups' runs; those that are damaged say nothing."""
    attempts = {run.key: run.attempt for run in records.runs}
    found: dict[str, set[str]] = {}
    started: list[int] = []
    for group in measured_points:
        for name, value in group.key.items():
            found.setdefault(short_name(name), set()).add(value_text(value))
        for key in group.runs:
            folder = study.run_dir(*key) / str(attempts[key])
            launch = record_or_none(LaunchRecord, folder / "launch.json")
            for name, text in (*(_launched(launch) if launch else ()), *_of_nodes(folder)):
                found.setdefault(name, set()).add(text)
            if launch and launch.started_unix_ns is not None:
                started.append(launch.started_unix_ns)
    return Facts({name: tuple(sorted(texts)) for name, texts in found.items()}, days(started) or "at an unknown date")


def differences(a: Facts, b: Facts) -> list[Difference]:
    """Facts that differ, by name, apart from what the points' layouts make different."""
    unknown = ("unknown",)
    pairs = ((name, a.values.get(name, unknown), b.values.get(name, unknown)) for name in sorted({*a.values, *b.values}))
    return [Difference(name, mine, theirs) for name, mine, theirs in pairs if mine != theirs]


def _launched(launch: LaunchRecord) -> Iterator[tuple[str, str]]:
    for name, version in launch.versions.items():
        yield name, str(version or "none")
    for name in RECORDED:
        yield name.replace("_", " "), _words(getattr(launch, name))
    for name, value in launch.environment.items():
        if not name.startswith(OF_THE_JOB):
            yield f"${name}", str(value)


def _of_nodes(attempt: Path) -> Iterator[tuple[str, str]]:
    for file in sorted(attempt.glob("nodes/*.json")):
        node = record_or_none(NodeRecord, file)
        yield from ((name.replace("_", " "), str(value)) for name in OF_NODE if (value := getattr(node, name, None)) is not None)


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_words(each)}" for name, each in sorted(value.items()))
    return {True: "yes", False: "no", None: "unknown"}.get(value, str(value))
