"""study.json: what was asked for, checked. Without it nobody knows what is missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict

from hpcddp.analysis.records.rows import Rejected
from hpcddp.analysis.records.schema import Count, Some, check_shape
from hpcddp.analysis.util.regular_files import is_there, read_raw
from hpcddp.core.errors import HpcddpError
from hpcddp.core.run_root import Study
from hpcddp.core.text import escape_controls

MOST_RUNS = 1_000_000
HOLDS = ("batch_per_gpu", "global_batch")


@dataclass(frozen=True)
class StudyFile:
    """`repeats`: label -> runs that are expected, of the points that are still there; `train_epochs`: of a whole training;
    `in_sweep`: label -> runs that the sweep had at the last submission, where that is known.
    """

    name: str
    hold: str
    repeats: Mapping[str, int]
    train_epochs: int | None = None
    in_sweep: Mapping[str, int] = field(default_factory=dict)


class _Entry(TypedDict, total=False):
    label: str
    repeat: Some
    in_sweep: Count


class _Sweep(TypedDict, total=False):
    hold: str
    train_epochs: Some | None


class _StudyFile(TypedDict, total=False):
    name: str
    repeat: Some
    points: list[_Entry]
    sweep: _Sweep


def read_study_file(study: Study) -> StudyFile:
    """HpcddpError where it is damaged; jobs submitted by hand have none."""
    file, name = study.study_file, study.folder.resolve().name
    if not is_there(file):
        return StudyFile(name, HOLDS[0], {})
    try:
        plain = read_raw(file)
        check_shape(plain, _StudyFile, "study.json")
        return _asked(plain, name, study)
    except FileNotFoundError as error:
        raise HpcddpError(f"{file} is damaged: it links to nothing") from error
    except Rejected as error:
        raise HpcddpError(f"{file} is damaged: {error}") from error
    except KeyError as key:
        raise HpcddpError(f"{file} is damaged: it lacks {key}") from key


def _asked(plain: Mapping[str, Any], name: str, study: Study) -> StudyFile:
    repeats = {entry["label"]: entry.get("repeat") or plain["repeat"] for entry in plain["points"]}
    sweep = plain.get("sweep", {})
    hold = sweep.get("hold", HOLDS[0])
    for label in repeats:
        if label in ("", ".", "..") or "/" in label or not label.isprintable():
            raise Rejected(f"{label!r} is no label of a point")
    if sum(repeats.values()) > MOST_RUNS:
        raise Rejected(f"it asks for {sum(repeats.values()):,} runs")
    if hold not in HOLDS:
        raise Rejected(f"hold is {hold!r}")
    there = {label: repeat for label, repeat in repeats.items() if study.has_point(label)}
    in_sweep = {entry["label"]: entry["in_sweep"] for entry in plain["points"] if "in_sweep" in entry}
    return StudyFile(escape_controls(plain.get("name", name)), hold, there, sweep.get("train_epochs"), in_sweep)
