"""A study's own account of what it was asked for: study.json, and point.json of each point."""

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
from hpcddp.submit.scope import options_of, scope_by_file
from hpcddp.submit.submission_plan import SubmissionPlan, anchored


def describe(study: Study, plan: SubmissionPlan) -> None:
    """study.json and each point.json. Points asked for earlier stay in study.json: their runs are there.

    Each submission writes the point.json of all its points, so one that a machine lost as it went down is there again.
    """
    for planned in plan.points:
        point = planned.point
        described_point = {"schema": SCHEMA, "id": point.id, "point": point_to_dict(anchored(point))}
        write_json(study.point_file(point.label), described_point, sync=False)  # there may be thousands
    write_json(study.study_file, _described(study, plan, read_study_file(study)))


def describe_again(study: Study, plan: SubmissionPlan) -> None:
    """study.json alone, where nothing is submitted and the sweep is another than it says: points or runs may have gone. Not where
    another command is at work, or nothing may be written: nothing depends on it yet.
    """
    if not study.study_file.is_file():
        return
    before = read_study_file(study)
    if _described(study, plan, before) != before:
        with contextlib.suppress(HpcddpError), study_lock(study):
            write_json(study.study_file, _described(study, plan, read_study_file(study)))


def _described(study: Study, plan: SubmissionPlan, before: Mapping[str, Any]) -> dict[str, Any]:
    """study.json, where it said `before`."""
    entries: dict[str, dict[str, Any]] = {}
    for entry in before["points"]:
        entries[entry["label"]] = {"repeat": before["repeat"], **entry}
    repeats = plan.repeats
    for planned in plan.points:
        label = planned.point.label
        own = _entry(plan, planned.point, planned.groups, entries.get(label, {}))
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


def _entry(plan: SubmissionPlan, point: Point, groups: tuple[str, ...], old: Mapping[str, Any]) -> dict[str, Any]:
    """Of a point that the plan has, but for its repeat, where study.json said `old`. A benchmark of communication is in no sweep
    file, so it has no options.
    """
    entry: dict[str, Any] = {
        "label": point.label,
        "id": point.id,
        "groups": list(dict.fromkeys([*old.get("groups", []), *groups])),
    }
    if point.work != "comm":
        mine, earlier = options_of(plan), old.get("options", [])
        entry["options"] = [*earlier, *([] if mine in earlier else [mine])]
    if until_ci := max(plan.more.get(point.label, 0), old.get("until_ci", 0)):
        entry["until_ci"] = until_ci
    return entry
