"""Data sets of a plan's points, and which of them are seen from here to be missing."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from hpcddp.core.errors import HpcddpError
from hpcddp.core.jobspec import expanded
from hpcddp.core.point import Point
from hpcddp.core.prepared import FILES, prepare_task, prepared_for, unprepared
from hpcddp.sweep.expand import PlannedPoint


def with_data_on_disk(points: Sequence[PlannedPoint], data_roots: Mapping[str, str]) -> Iterator[tuple[Point, str]]:
    """For each data set with its folder, as the job is given it, the first point that reads it; of bigMNIST those first that need
    most copies, which others can read, too.
    """
    found = dict[tuple[object, str], Point]()
    for planned in points:
        data = planned.point.workload.data
        root = data.root or data_roots.get(data.name)
        if planned.point.reads_data and data.name in FILES and root is not None:
            found.setdefault((data, root), planned.point)
    for (_, root), point in sorted(found.items(), key=lambda item: -prepared_for(item[1].workload.data)[0]):
        yield point, root


def root_here(root: str, *, runs_here: bool) -> Path | None:
    """The folder as this machine sees it; None where it does not, or where only the job knows a variable in it. `runs_here`:
    what this machine does not see is nowhere.
    """
    try:
        folder = Path(os.path.abspath(expanded(root, "data root")))
    except HpcddpError:
        folder = Path(root)
    return folder if runs_here or folder.is_dir() else None


def missing_data(
    points: Sequence[PlannedPoint], data_roots: Mapping[str, str], *, runs_here: bool, prepares: bool
) -> Iterator[str]:
    """A sentence for each data set that runs are sure not to find. `prepares`: what hpcddp can make comes before them."""
    for point, root in with_data_on_disk(points, data_roots):
        data, folder = point.workload.data, root_here(root, runs_here=runs_here)
        found = None if folder is None else unprepared(data, folder)
        if found is not None and not (prepares and found.is_missing and prepare_task(data, root)):
            yield found.text
