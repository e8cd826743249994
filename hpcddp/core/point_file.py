"""point.json: what a point is, beside its runs. Standard library only, Python 3.10."""

from __future__ import annotations

from hpcddp.core.point import Point, point_to_dict
from hpcddp.core.records import SCHEMA, write_json
from hpcddp.core.run_root import Study


def described(point: Point) -> dict[str, object]:
    """What the file holds."""
    return {"schema": SCHEMA, "id": point.id, "point": point_to_dict(point)}


def describe_point(study: Study, point: Point) -> None:
    """Writes the file where there is none: runs that no login side submitted bring it themselves."""
    file = study.point_file(point.label)
    if not file.exists():
        write_json(file, described(point))
