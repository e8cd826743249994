"""JSON Schema of a sweep."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from hpcddp.cluster.json_schema import DRAFT, PLAIN, Schema, field_docs, kind_schema, object_schema
from hpcddp.cluster.kinds import field_kinds
from hpcddp.sweep.file import Sweep
from hpcddp.sweep.groups import AXIS_ROOTS

CONDITIONS: Schema = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}

ARGUMENT = r"^(workload\.args|env)\."
"""Axes that a sweep names: arguments of a script, variables."""


def sweep_schema() -> Schema:
    """A sweep, its groups with every key that may be an axis."""
    definitions: dict[str, Schema] = {}
    schema = object_schema(Sweep, PLAIN, definitions)
    definitions["group"] = _group(definitions)
    schema["properties"]["points"]["additionalProperties"] = {"$ref": "#/$defs/group"}
    return {"$schema": DRAFT, "title": "A sweep of hpcddp", **schema, "$defs": definitions}


def _group(definitions: dict[str, Schema]) -> Schema:
    """One entry of `points`."""
    values, lists = {}, {}
    for key, kind, description in _axes():
        said = {"description": description} if description else {}
        values[key] = {**kind_schema(kind, PLAIN, definitions), **said}
        lists[key] = {"type": "array", "items": kind_schema(kind, PLAIN, definitions), "minItems": 1, **said}
    several, one = {ARGUMENT: {"type": "array", "minItems": 1}}, {ARGUMENT: Schema()}
    definitions["axes"] = {
        "type": "object",
        "properties": lists,
        "patternProperties": several,
        "additionalProperties": False,
        "minProperties": 1,
    }
    definitions["changes"] = {"type": "object", "properties": values, "patternProperties": one, "additionalProperties": False}
    keywords = {
        "zip": {"$ref": "#/$defs/axes", "description": "Lists of one length, value by value, as one axis."},
        "include": {
            "type": "array",
            "items": {"$ref": "#/$defs/changes"},
            "description": "Additional points, regardless of `where` and `exclude`.",
        },
        "exclude": {**CONDITIONS, "description": "Exclude points for which one of these conditions holds."},
        "where": {**CONDITIONS, "description": "Keep points for which this condition holds (`ranks <= 8`), or all of a list."},
    }
    description = "A group of points: the product of its axes."
    return {
        "type": "object",
        "description": description,
        "properties": {**lists, **keywords},
        "patternProperties": several,
        "additionalProperties": False,
    }


def _axes(cls: type = Sweep, prefix: str = "") -> Iterator[tuple[str, Any, str | None]]:
    """Dotted key, type and sentence of everything that an axis may vary."""
    docs, kinds = field_docs(cls), field_kinds(cls)
    for name, kind in kinds.items():
        if prefix or name in AXIS_ROOTS:
            yield prefix + name, kind, docs.get(name)
            if dataclasses.is_dataclass(kind):
                yield from _axes(kind, f"{prefix}{name}.")  # type: ignore[arg-type]
