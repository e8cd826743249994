"""JSON Schema of a cluster profile."""

from __future__ import annotations

from hpcddp.cluster.extends import NOT_INHERITED
from hpcddp.cluster.json_schema import DRAFT, PLAIN, Form, Schema, kind_schema, object_schema
from hpcddp.cluster.kinds import field_kinds
from hpcddp.cluster.profile import ClusterProfile, Fact
from hpcddp.cluster.profile_file import NOT_IN_THE_FILE

FULL = Form(suffix=".facts", fact="Fact")
PART = Form(suffix=".facts", fact="Fact", partial=True)


def profile_schema() -> Schema:
    """A profile on its own, or one that extends another: that needs no more than a name, and null takes a value away."""
    definitions: dict[str, Schema] = {"Fact": object_schema(Fact, PLAIN, {})}
    full, part = (_document(form, definitions) for form in (FULL, PART))
    return {
        "$schema": DRAFT,
        "title": "A cluster profile of hpcddp",
        "type": "object",
        "if": {"required": ["extends"], "properties": {"extends": {"type": "string"}}},
        "then": {**part, "required": list(NOT_INHERITED)},
        "else": full,
        "$defs": definitions,
    }


def _document(form: Form, definitions: dict[str, Schema]) -> Schema:
    """The mapping at the top; what is each file's own is plain text there."""
    schema = object_schema(ClusterProfile, form, definitions, without=NOT_IN_THE_FILE)
    for key in NOT_INHERITED:
        said = {word: text for word, text in schema["properties"][key].items() if word == "description"}
        schema["properties"][key] = {**kind_schema(field_kinds(ClusterProfile)[key], PLAIN, definitions), **said}
    return schema
