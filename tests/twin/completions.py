"""What slurmctld itself writes down of every job that ends.

slurmdbd of Slurm 22.05 may hear of a job's start after its end: then sacct has it as `allocation`, or running for good.
"""

from __future__ import annotations

import re
from pathlib import Path

_LINE = re.compile(
    r"JobId=(?P<number>\d+) .*? Name=(?P<JobName>.*) JobState=(?P<State>\S+) Partition=.*"
    r" EndTime=(?P<End>\S+) NodeList=(?P<NodeList>\S+)"
    r"(?:.* ArrayJobId=(?P<array>\d+) ArrayTaskId=(?P<task>\d+))?.* ExitCode=(?P<ExitCode>\S+)"
)


def completions_file(folder: Path) -> Path:
    """Of the twin in this folder: JobCompLoc."""
    return folder / "log" / "completions"


def completions(folder: Path) -> dict[str, dict[str, str]]:
    """Job id as sacct has it -> name, state, end, nodes and exit code of its last end, under sacct's names for them."""
    file = completions_file(folder)
    found = (_LINE.match(line) for line in (file.read_text().splitlines() if file.exists() else []))
    return dict(_job(match.groupdict()) for match in found if match)


def _job(job: dict[str, str]) -> tuple[str, dict[str, str]]:
    number, array, task = (job.pop(name) for name in ("number", "array", "task"))
    return (f"{array}_{task}" if array else number), job
