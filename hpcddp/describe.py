"""A study's own account of what it was asked for: study.json, and point.json of each point."""

from __future__ import annotations

from typing import Any

from hpcddp import __version__
from hpcddp.order import Order, anchored
from hpcddp.point import point_to_dict
from hpcddp.records import SCHEMA, write_json
from hpcddp.runroot import Study
from hpcddp.status import read_study_file


def describe(study: Study, order: Order) -> None:
    """study.json and each point.json. Points asked for earlier stay in study.json: their runs are there.

    Each submission writes the point.json of all its points, so one that a machine lost as it went down is there again.
    """
    repeats = order.repeats
    entries: dict[str, dict[str, Any]] = {}
    before = read_study_file(study)
    for entry in before["points"]:
        entries[entry["label"]] = {"repeat": before["repeat"], **entry}
    for planned in order.points:
        point, old = planned.point, entries.get(planned.point.label, {})
        groups = list(dict.fromkeys([*old.get("groups", []), *planned.groups]))
        entries[point.label] = {"label": point.label, "id": point.id, "groups": groups, "repeat": repeats[point.label]}
        described_point = {"schema": SCHEMA, "id": point.id, "point": point_to_dict(anchored(point))}
        write_json(study.point_file(point.label), described_point, sync=False)  # there may be thousands
    described = {
        "schema": SCHEMA,
        "hpcddp": __version__,
        "name": study.name,
        "sweep": dict(order.source.document),
        "repeat": order.source.sweep.repeat,
        "points": list(entries.values()),
    }
    write_json(study.study_file, described)
