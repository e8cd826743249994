"""Where a study's files lie: the one place that knows the layout of a run root.

    RUNS/NAME/
      study.json  prediction.json  submissions.jsonl  outcomes.jsonl
      .code/HASH/                      the snapshot the jobs run
      preflight/JOBID.RESTART.json     how fast each node of a job was before its runs
      .jobs/lock/                      who submits (see study/study_folder.py)
      .jobs/JOBID/                     script, logs, submitit's files; a task of an array has .jobs/ARRAYID/TASK/,
                                       a run in one allocation with others .jobs/JOBID/TASK/
      n04-g4-b32-3fa9c1d2e07b/         a point
        point.json
        r1/JOBID.RESTART/              a run, an attempt: its records (see records.py)

RUNS may be moved whole: nothing in it holds an absolute path that is read back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from hpcddp.core.errors import UsageError
from hpcddp.core.text import count, first_few, natural

POINTS_SHOWN = 3
"""So many labels fit a line or two of a terminal; a study may have thousands."""


class RunKey(NamedTuple):
    """The label of a point and the number of one of its runs, which count from 1; as text `n01-g4-b32-3fa9c1d2e07b r2`."""

    label: str
    run: int

    def __str__(self) -> str:
        return f"{self.label} r{self.run}"


def run_order(key: RunKey) -> tuple[object, ...]:
    """Sorts runs by their points' sizes, whose numbers a label has in front: n16 before n100, b32 before b128."""
    return natural(key.label), key.run


def run_ranges(runs: Iterable[RunKey]) -> str:
    """`n01-g1-b8 r1-3, r5, n02-g1-b8 r1 and 17 points more`."""
    by_label: dict[str, list[int]] = {}
    for label, run in sorted(runs, key=run_order):
        by_label.setdefault(label, []).append(run)
    shown = [f"{label} {run_numbers(numbers)}" for label, numbers in list(by_label.items())[:POINTS_SHOWN]]
    more = len(by_label) - len(shown)
    return ", ".join(shown) + (f" and {count(more, 'point')} more" if more else "")


def run_numbers(numbers: Iterable[int]) -> str:
    """`r1-3, r5`"""
    return ", ".join(f"r{first}" if first == last else f"r{first}-{last}" for first, last in spans(numbers))


def spans(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """First and last of the numbers that follow each other: of 3, 1, 2, 5 `[(1, 3), (5, 5)]`."""
    known = set(numbers)
    firsts = sorted(number for number in known if number - 1 not in known)
    lasts = sorted(number for number in known if number + 1 not in known)
    return list(zip(firsts, lasts, strict=True))


NAMED = 8
"""Points named in a sentence."""


@dataclass(frozen=True)
class Study:
    """The folder of one study."""

    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def study_file(self) -> Path:
        """What was submitted, as study_files.py has it."""
        return self.folder / "study.json"

    @property
    def prediction_file(self) -> Path:
        """What its points were expected to bring, as core/prediction.py has it."""
        return self.folder / "prediction.json"

    @property
    def submissions_file(self) -> Path:
        """A line before each submission (`"event": "intent"`) and one after (`"submitted"` with the job id, or `"refused"`)."""
        return self.folder / "submissions.jsonl"

    @property
    def outcomes_file(self) -> Path:
        """How jobs ended that left no end.json (see study_files.py)."""
        return self.folder / "outcomes.jsonl"

    @property
    def code(self) -> Path:
        return self.folder / ".code"

    @property
    def jobs(self) -> Path:
        return self.folder / ".jobs"

    @property
    def submit_lock(self) -> Path:
        """Held by the one process that submits."""
        return self.jobs / "lock"

    def job_dir(self, job: str) -> Path:
        """Of a job, of a task of an array (`12_7`), or of a run in one allocation with others (`12+7`)."""
        return self.jobs.joinpath(*re.split(r"[_+]", job, maxsplit=1))

    def smoke_dir(self, job: str) -> Path:
        """What the ranks of a smoke test found."""
        return self.jobs / f"{job}.smoke"

    def survey_dir(self, job: str) -> Path:
        """What the nodes of a survey found."""
        return self.jobs / f"{job}.survey"

    def data_dir(self, job: str) -> Path:
        """What became of a data set in a job that prepares, packs or checks it (see data_job.py)."""
        return self.jobs / f"{job}.data"

    @property
    def preflights(self) -> Path:
        """What preflight found, a file for each start of a job."""
        return self.folder / "preflight"

    def preflight_file(self, job: str, restart: int) -> Path:
        return self.preflights / f"{job}.{restart}.json"

    def has_point(self, label: str) -> bool:
        """A point is dropped from a study by removing its folder."""
        return (self.folder / label).is_dir()

    def point_file(self, label: str) -> Path:
        """`{"schema": 1, "id": ..., "point": {...}}`."""
        return self.folder / label / "point.json"

    def run_dir(self, label: str, run: int) -> Path:
        """Repetitions count from 1."""
        return self.folder / label / f"r{run}"

    def begun(self) -> list[RunKey]:
        """Every run that has a folder."""
        folders = (folder for folder in self.folder.glob("*/r*") if folder.name[1:].isdecimal())
        return [RunKey(folder.parent.name, int(folder.name[1:])) for folder in folders]

    def attempt_dir(self, label: str, run: int, job: str, restart: int) -> Path:
        return self.run_dir(label, run) / f"{job}.{restart}"

    def attempts(self, label: str, run: int) -> list[Path]:
        """The run's attempts so far, oldest first (by job, then restart)."""
        found = [path for path in self.run_dir(label, run).glob("*.*") if path.is_dir()]
        return sorted(found, key=lambda path: _attempt_key(path.name))


def job_of(attempt: Path) -> str:
    """The job that made the attempt."""
    return attempt.name.rpartition(".")[0]


def newest_of(attempts: Sequence[Path], job: str) -> Path | None:
    """The job's last attempt among those of a run, oldest first: its earlier ones ended when it was requeued."""
    return next((attempt for attempt in reversed(attempts) if job_of(attempt) == job), None)


def studies(root: Path) -> list[Study]:
    """The studies at `root`: itself or, failing that, its direct sub-folders, sorted by name. A study has a study.json, or (jobs
    submitted by hand, under `adhoc/`) at least one point.
    """
    if _is_study(root):
        return [Study(root)]
    return [Study(folder) for folder in sorted(root.iterdir()) if folder.is_dir() and _is_study(folder)]


def single_study(root: Path) -> Study:
    """The one study at `root`; UsageError where there is none, or several to choose from."""
    found = studies(root) if root.is_dir() else []
    if len(found) == 1:
        return found[0]
    if not found:
        raise UsageError(f"{root} contains no study. Give the folder of one, with a study.json.")
    raise UsageError(f"{root} contains {len(found)} studies ({', '.join(each.name for each in found)}); give one of them")


def point_folder(given: Path) -> Path:
    """The folder of a point or a run, by STUDY/LABEL or STUDY/LABEL/r2 with as much of the label as tells it from others;
    UsageError names what there is where that is none, or several.
    """
    if given.is_dir():
        return given
    of_run = re.fullmatch(r"r\d+", given.name) is not None
    begun = given.parent if of_run else given
    labels = sorted(file.parent.name for file in begun.parent.glob("*/point.json"))
    found = [label for label in labels if label.startswith(begun.name)]
    if len(found) == 1:
        return begun.with_name(found[0]) / given.name if of_run else begun.with_name(found[0])
    if found:
        raise UsageError(f"{given}: {len(found)} points match: {first_few(found, NAMED)}. Give more characters of one.")
    known = f"it has {first_few(labels, NAMED)}" if labels else "give a point's folder within a study"
    raise UsageError(f"{given}: no point `{begun.name}` in {begun.parent}; {known}")


def _is_study(folder: Path) -> bool:
    try:
        return (folder / "study.json").is_file() or next(folder.glob("*/point.json"), None) is not None
    except PermissionError:
        return False  # somebody's, among those to look at


def _attempt_key(name: str) -> tuple[list[int], str, int]:
    job, _, restart = name.rpartition(".")
    return ([int(number) for number in re.findall(r"\d+", job)], job, int(restart) if restart.isdecimal() else 0)
