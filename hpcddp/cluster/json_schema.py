"""JSON Schema (draft 2020-12) of documents, made of the dataclasses that decode them and their docstrings, for editors; and
that of a profile.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import re
import textwrap
import types
import typing
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from hpcddp.cluster.extends import NOT_INHERITED
from hpcddp.cluster.kinds import accepts_null, field_kinds
from hpcddp.cluster.profile import ClusterProfile, Fact
from hpcddp.cluster.profile_file import NOT_IN_THE_FILE
from hpcddp.core.schema import encode


@functools.cache
def field_docs(cls: type) -> dict[str, str]:
    """Field -> the docstring below it, in one line, with None, True and False as null, true and false."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(tree, ast.ClassDef)
    found = {}
    for field, below in zip(tree.body, tree.body[1:], strict=False):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = as_yaml(" ".join(text.split()))
            case _:
                pass
    return found


def as_yaml(text: str) -> str:
    """What Python calls None, True and False is null, true and false in a sweep or profile."""
    return re.sub(r"\b(None|True|False)\b", lambda word: f"`{'null' if word[0] == 'None' else word[0].lower()}`", text)


DRAFT = "https://json-schema.org/draft/2020-12/schema"

Schema = dict[str, Any]

NULL: Schema = {"type": "null"}

SCALARS: Mapping[Any, Schema] = {
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    type(None): NULL,
}
"""What is none of these may be anything."""


@dataclass(frozen=True)
class Form:
    """How a document may write what a dataclass holds."""

    suffix: str = ""
    """Of the names of its definitions."""
    fact: str | None = None
    """The name of the definition of `{value:, grade:, source:}`, which a value may be written as."""
    partial: bool = False
    """Whether keys may be missing that are required otherwise, and null takes a value away."""


PLAIN = Form()


def object_schema(cls: type, form: Form, definitions: dict[str, Schema], without: Collection[str] = ()) -> Schema:
    """The schema of a mapping with the fields of a dataclass; those of dataclasses in it go into `definitions`."""
    docs, kinds = field_docs(cls), field_kinds(cls)
    fields, properties = [field for field in dataclasses.fields(cls) if field.name not in without], {}
    for field in fields:
        said = {"description": docs[field.name]} if field.name in docs else {}
        properties[field.name] = {**value_schema(kinds[field.name], form, definitions), **said, **_default(field)}
    unset = dataclasses.MISSING
    needed = [field.name for field in dataclasses.fields(cls) if field.default is unset and field.default_factory is unset]
    required = [] if form.partial else needed
    schema: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    words = as_yaml(" ".join((cls.__doc__ or "").split()))
    return {"description": words, **schema, **({"required": required} if required else {})}


def value_schema(kind: Any, form: Form, definitions: dict[str, Schema]) -> Schema:
    """The schema of a value of that type, plain, as a fact, or null in place of another one."""
    plain = kind_schema(kind, form, definitions)
    ways = [plain]
    if form.fact is not None:
        of_fact = kind_schema(kind, PLAIN, definitions)
        ways.append({"allOf": [{"$ref": f"#/$defs/{form.fact}"}, {"properties": {"value": of_fact}}]})
    if form.partial and not accepts_null(kind):
        ways.append(NULL)
    return {"anyOf": ways} if ways[1:] else plain


def kind_schema(kind: Any, form: Form, definitions: dict[str, Schema]) -> Schema:
    """The schema of a value of that type as it is."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        return {**kind_schema(args[0], form, definitions), "minimum": args[1].minimum}
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [kind_schema(one, form, definitions) for one in args]}
    if origin is typing.Literal:
        return {"enum": list(args)}
    if origin is tuple:
        return {"type": "array", "items": value_schema(args[0], dataclasses.replace(form, partial=False), definitions)}
    if origin is not None:
        return {"type": "object", "additionalProperties": value_schema(args[1], form, definitions)}
    return _defined(kind, form, definitions) if dataclasses.is_dataclass(kind) else dict(SCALARS.get(kind, {}))


def _defined(cls: Any, form: Form, definitions: dict[str, Schema]) -> Schema:
    """A reference to the definition of the dataclass, which is made where there is none yet."""
    name = cls.__name__ + (".part" if form.partial else form.suffix)
    if name not in definitions:
        definitions[name] = {}
        definitions[name] = object_schema(cls, form, definitions)
    return {"$ref": f"#/$defs/{name}"}


def _default(field: dataclasses.Field[Any]) -> Schema:
    """The default, of a value that is no mapping."""
    if field.default is dataclasses.MISSING or dataclasses.is_dataclass(field.default):
        return {}
    return {"default": encode(field.default)}


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
