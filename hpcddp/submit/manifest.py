"""A study's own account of what was submitted: study.json, and point.json of each point."""

from __future__ import annotations

import contextlib
import dataclasses

from hpcddp import __version__
from hpcddp.core.errors import HpcddpError
from hpcddp.core.records import write_json
from hpcddp.core.run_root import Study
from hpcddp.core.schema import encode
from hpcddp.core.study_files import StudyPoint, StudyRecord, SweepChanges, described
from hpcddp.study.scope import scope_by_file
from hpcddp.study.study_folder import study_lock
from hpcddp.study.study_records import read_study_file
from hpcddp.submit.submission_plan import SubmissionPlan, anchored
from hpcddp.sweep.expand import PlannedPoint


def write_manifest(study: Study, plan: SubmissionPlan) -> None:
    """Writes study.json and each point.json. Points submitted earlier stay in study.json: their runs are there. Each submission
    writes the point.json of all its points, so one that a machine lost as it went down is there again.
    """
    for planned in plan.points:
        point = planned.point
        write_json(study.point_file(point.label), described(anchored(point)), sync=False)  # there may be thousands
    _write(study, plan)


def update_manifest(study: Study, plan: SubmissionPlan) -> None:
    """Writes study.json where the sweep lost points or runs, unless another command holds the lock or nothing may be written."""
    if not study.study_file.is_file():
        return
    before = read_study_file(study)
    if _record(study, plan, before) != before:
        with contextlib.suppress(HpcddpError), study_lock(study):
            _write(study, plan)


def _write(study: Study, plan: SubmissionPlan) -> None:
    write_json(study.study_file, encode(_record(study, plan, read_study_file(study))))


def _record(study: Study, plan: SubmissionPlan, before: StudyRecord) -> StudyRecord:
    """What study.json shall say, where it said `before`."""
    known = ((point, before.repeat if point.repeat is None else point.repeat) for point in before.points)
    points = {point.label: dataclasses.replace(point, repeat=repeat) for point, repeat in known}
    for planned in plan.points:
        label = planned.point.label
        points[label] = _point(plan, planned, points.get(label, StudyPoint(label=label)))
    if plan.source.file.is_file():
        for label, runs in scope_by_file(plan.source.file, list(points.values())).items():
            points[label] = dataclasses.replace(points[label], in_sweep=runs)
    return StudyRecord(
        hpcddp=__version__,
        name=study.name,
        sweep=dict(plan.source.document),
        repeat=plan.source.sweep.repeat,
        points=tuple(points.values()),
    )


def _point(plan: SubmissionPlan, planned: PlannedPoint, before: StudyPoint) -> StudyPoint:
    """What study.json shall say of a point of the plan, but for `in_sweep`."""
    point, options = planned.point, _changes(plan)
    is_new = point.work != "comm" and options not in before.options
    return StudyPoint(
        label=point.label,
        id=point.id,
        groups=tuple(dict.fromkeys([*before.groups, *planned.groups])),
        repeat=plan.repeats[point.label],
        options=(*before.options, options) if is_new else before.options,
        until_ci=max(plan.more.get(point.label, 0), before.until_ci),
    )


def _changes(plan: SubmissionPlan) -> SweepChanges:
    """The options that change the sweep, with the cluster that neither the sweep nor an option names."""
    given = plan.source.options
    cluster = given.cluster or (plan.profile.name if plan.source.sweep.cluster is None else None)
    return SweepChanges(set=given.settings, cluster=cluster, also={key: tuple(values) for key, values in given.also.items()})
