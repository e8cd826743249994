"""A study's own account of what was submitted: study.json, and point.json of each point."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from hpcddp import __version__
from hpcddp.core.errors import HpcddpError
from hpcddp.core.point import Point, point_to_dict
from hpcddp.core.records import SCHEMA, write_json
from hpcddp.core.run_root import Study
from hpcddp.study.lock import study_lock
from hpcddp.study.status import read_study_file
from hpcddp.submit.scope import recorded_options, scope_by_file
from hpcddp.submit.submission_plan import SubmissionPlan, anchored


def write_manifest(study: Study, plan: SubmissionPlan) -> None:
    """Writes study.json and each point.json. Points submitted earlier stay in study.json: their runs are there.

    Each submission writes the point.json of all its points, so one that a machine lost as it went down is there again.
    """
    for planned in plan.points:
        point = planned.point
        described_point = {"schema": SCHEMA, "id": point.id, "point": point_to_dict(anchored(point))}
        write_json(study.point_file(point.label), described_point, sync=False)  # there may be thousands
    write_json(study.study_file, _content(study, plan, read_study_file(study)))


def update_manifest(study: Study, plan: SubmissionPlan) -> None:
    """Writes study.json where nothing is submitted, but points or runs were taken out of the sweep. Does nothing where another
    command holds the lock or nothing may be written: no command depends on it yet.
    """
    if not study.study_file.is_file():
        return
    before = read_study_file(study)
    if _content(study, plan, before) != before:
        with contextlib.suppress(HpcddpError), study_lock(study):
            write_json(study.study_file, _content(study, plan, read_study_file(study)))


def _content(study: Study, plan: SubmissionPlan, before: Mapping[str, Any]) -> dict[str, Any]:
    """What study.json shall say, where it said `before`."""
    entries: dict[str, dict[str, Any]] = {}
    for entry in before["points"]:
        entries[entry["label"]] = {"repeat": before["repeat"], **entry}
    repeats = plan.repeats
    for planned in plan.points:
        label = planned.point.label
        own = _point_entry(plan, planned.point, planned.groups, entries.get(label, {}))
        entries[label] = {**own, "repeat": repeats[label]}
    if plan.source.file.is_file():
        for label, runs in scope_by_file(plan.source.file, list(entries.values())).items():
            entries[label]["in_sweep"] = runs
    return {
        "schema": SCHEMA,
        "hpcddp": __version__,
        "name": study.name,
        "sweep": dict(plan.source.document),
        "repeat": plan.source.sweep.repeat,
        "points": list(entries.values()),
    }


def _point_entry(plan: SubmissionPlan, point: Point, groups: tuple[str, ...], old: Mapping[str, Any]) -> dict[str, Any]:
    """What study.json shall say of a point of the plan, but for its repeat, where it said `old`. A benchmark of communication is
    in no sweep file, so it has no options.
    """
    entry: dict[str, Any] = {
        "label": point.label,
        "id": point.id,
        "groups": list(dict.fromkeys([*old.get("groups", []), *groups])),
    }
    if point.work != "comm":
        mine, earlier = recorded_options(plan), old.get("options", [])
        entry["options"] = [*earlier, *([] if mine in earlier else [mine])]
    if until_ci := max(plan.more.get(point.label, 0), old.get("until_ci", 0)):
        entry["until_ci"] = until_ci
    return entry
