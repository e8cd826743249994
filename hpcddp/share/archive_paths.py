"""Which files of a study a bundle holds, by their paths: packing and unpacking both ask here, and no other file passes."""

from __future__ import annotations

import re
from typing import Literal

Kind = Literal["records", "nodes", "scripts", "profiles", "logs"]

_LABEL = r"n\d+-g\d+-(?:b\d+|comm|script)-[0-9a-f]{12}"
_ATTEMPT = rf"{_LABEL}/r\d+/[\w.+-]*\.\d+"
_JOB = r"\.jobs/[\w.+-]+(?:/(?:\d+|preflight))?"

_KINDS: dict[Kind, str] = {
    "records": r"study\.json|prediction\.json|(?:submissions|outcomes)\.jsonl|bundle\.json"
    r"|preflight/[\w.+-]+\.\d+\.json|bench-data/[\w.+-]+/bench-data\.json"  # the last is of earlier versions, and not read
    rf"|{_LABEL}/point\.json"
    rf"|{_ATTEMPT}/(?:launch|transport|end|comm)\.json|{_ATTEMPT}/events\.jsonl|{_ATTEMPT}/epochs\.csv"
    rf"|{_ATTEMPT}/ranks/\d+\.(?:steps\.csv|buckets\.csv|error\.json|collectives\.json)",
    "nodes": rf"{_ATTEMPT}/nodes/[\w.-]+\.(?:json|node\.csv|gpus\.csv)",
    "scripts": rf"{_JOB}/job\.sbatch|{_JOB}/(?:spec|state|exit)\.json|{_JOB}/(?:tasks|steps)\.jsonl|{_JOB}/cancelled",
    "profiles": rf"{_ATTEMPT}/ranks/\d+\.trace\.json\.gz|{_ATTEMPT}/inspector/[\w.-]+\.log",
    "logs": rf"{_JOB}/[\w.+-]+\.(?:out|err)|\.jobs/runner\.log",
}

_FOLDERS = re.compile(rf"{_LABEL}(?:/r\d+(?:/[\w.+-]*\.\d+)?)?")

_REASONS = (
    (r"\.code/.*", "the snapshot of the code that ran"),
    (r"(?:report|\.analysis)/.*", "the report: `hpcddp analyze` makes it anew"),
    (r"\.jobs/(?:lock/.*|queue\.lock|runner\.(?:lock|json)|L\d+/cancel)", "locks and what only this machine's queue needs"),
    (r"\.jobs/[\w.+-]+\.smoke/.*", "what a smoke test found"),
    (r"\.jobs/[\w.+-]+\.data/.*", "how a data set was prepared"),
    (rf"{_JOB}/torchrun\.[\w.-]+\.json", "how torchrun ended on each node, from which `hpcddp status` has its words"),
    (r"\.jobs/[\w.+-]+/preflight/hosts", "the nodes that runs of one allocation had, which their records name"),
    (rf"{_ATTEMPT}/checkpoints/.*", "checkpoints: a run that is done needs none"),
    (rf"{_ATTEMPT}/\.end\.reserve", "room on the disk for end.json"),
    (r".*\.pkl", "submitit's pickles: nobody should load someone else's"),
)


def kind_of(path: str) -> Kind | None:
    """What a file is by its path below the study; None for what no bundle holds."""
    if leads_elsewhere(path):
        return None
    return next((kind for kind, pattern in _KINDS.items() if re.fullmatch(pattern, path)), None)


def is_folder_of_runs(path: str) -> bool:
    """Whether it is the folder of a point, a run or an attempt: a bundle holds these even where they are empty."""
    return _FOLDERS.fullmatch(path) is not None and not leads_elsewhere(path)


def leads_elsewhere(path: str) -> bool:
    """Whether a part of it stands for another folder, as in `.jobs/../job.sbatch`."""
    return not {"", ".", ".."}.isdisjoint(path.split("/"))


def why_left_out(path: str) -> str:
    """Why a file without a kind is left out, in words."""
    return next((reason for pattern, reason in _REASONS if re.fullmatch(pattern, path)), "files that hpcddp did not write")
