"""`hpcddp schema`, by which editors check shipped profiles and sweeps."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from hpcddp.cluster.facts import strip_facts
from hpcddp.cluster.profile import ClusterProfile
from hpcddp.cluster.profile_schema import profile_schema
from hpcddp.cluster.yamlfile import parse_yaml, read_yaml
from hpcddp.core.schema import SchemaError, decode
from hpcddp.sweep.file import Sweep
from hpcddp.sweep.groups import read_group
from hpcddp.sweep.sweep_schema import sweep_schema
from tests.commands.conftest import Run
from tests.docs.pages import ROOT

PROFILE, SWEEP = Draft202012Validator(profile_schema()), Draft202012Validator(sweep_schema())
PROFILES, SWEEPS = sorted((ROOT / "clusters").glob("*.yaml")), sorted((ROOT / "jobs").glob("*.yaml"))
DOCUMENTS = [*((file, PROFILE) for file in PROFILES), *((file, SWEEP) for file in SWEEPS)]


@pytest.mark.parametrize(("kind", "schema"), [("profile", PROFILE), ("sweep", SWEEP)])
def test_what_is_printed_is_a_schema(run: Run, kind: str, schema: Draft202012Validator) -> None:
    """Valid itself, and the one that the tests below ask."""
    printed = json.loads(run("schema", kind).stdout)
    assert printed == schema.schema
    Draft202012Validator.check_schema(printed)


@pytest.mark.parametrize("kind", ["profile", "sweep"])
def test_no_heavy_import(kind: str) -> None:
    """The schema needs neither torch nor what draws."""
    code = "import sys; from hpcddp.cli import main; main(['schema', sys.argv[1]], standalone_mode=False); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, kind], capture_output=True, text=True, check=True)
    assert not {"torch", "pandas", "matplotlib", "numpy"} & set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(("file", "schema"), DOCUMENTS, ids=lambda one: getattr(one, "stem", ""))
def test_shipped_documents_are_valid_and_name_their_schema(file: Path, schema: Draft202012Validator) -> None:
    """The line that editors read leads to the file that the user writes beside the document."""
    assert list(schema.iter_errors(read_yaml(file))) == []
    (named,) = re.findall(r"^# yaml-language-server: \$schema=(\S+)$", file.read_text(encoding="utf-8"), re.MULTILINE)
    assert named == {"clusters": "profile.schema.json", "jobs": "sweep.schema.json"}[file.parent.name]


def mappings(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of all mappings."""
    if isinstance(data, dict):
        yield path
        for key, item in data.items():
            yield from mappings(item, (*path, key))
    elif isinstance(data, list):
        for i, item in enumerate(data):
            yield from mappings(item, (*path, i))


FREE = (("sources",), ("env",), ("args",), ("node_types",), ("partitions",), ("storage",), ("points",), ("links", "topology"))
"""Ends of paths at which names are the author's."""


def changed(data: Any, path: tuple[Any, ...], value: object) -> Any:
    """A copy with `value` at `path`."""
    data = copy.deepcopy(data)
    place = data
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    return data


@pytest.mark.dear
@given(st.data(), st.sampled_from(DOCUMENTS), st.text("abcdefghijklmnopqrstuvwxyz_", min_size=1))
def test_a_key_that_does_not_exist_is_marked(
    choice: st.DataObject, document: tuple[Path, Draft202012Validator], key: str
) -> None:
    """Wherever it stands: in a part, a fact, a conflict, a rule of a list, a group."""
    data = read_yaml(document[0])
    places = [path for path in mappings(data) if path[-1:] not in FREE and path[-2:] not in FREE]
    place = choice.draw(st.sampled_from(places))
    assert not document[1].is_valid(changed(data, (*place, f"x_{key}"), 1))


VALUES: list[object] = [None, True, 0, 3, -1, 2.5, "x", "1", [], ["x"], {}]


def leaves(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of all values, mappings and lists too."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from leaves(item, (*path, key))


def is_profile(data: Any) -> bool:
    try:
        decode(ClusterProfile, strip_facts(data, (), {}))
    except SchemaError:
        return False
    return True


def is_sweep(data: Any) -> bool:
    try:
        for name, group in decode(Sweep, data).points.items():
            read_group(name, group)
    except SchemaError:
        return False
    return True


@pytest.mark.dear
@given(st.data(), st.sampled_from(PROFILES), st.sampled_from(VALUES))
def test_a_value_is_marked_where_hpcddp_refuses_it(choice: st.DataObject, file: Path, value: object) -> None:
    """Types, choices, limits and null, in plain values and in facts: schema and decoder are of one mind on a profile."""
    data = read_yaml(file)
    document = changed(data, choice.draw(st.sampled_from(list(leaves(data)))), value)
    assert PROFILE.is_valid(document) == is_profile(document)


@given(st.data(), st.sampled_from(SWEEPS), st.sampled_from(VALUES))
def test_a_sweeps_value_is_marked_where_hpcddp_refuses_it(choice: st.DataObject, file: Path, value: object) -> None:
    """The same of a sweep, but for what is in a group: values of axes are decoded later, with the point that they make."""
    data = read_yaml(file)
    paths = [path for path in leaves(data) if path[0] != "points" or not path[2:]]
    document = changed(data, choice.draw(st.sampled_from(paths)), value)
    assert SWEEP.is_valid(document) == is_sweep(document)


@pytest.mark.parametrize(
    ("text", "extending", "complete"),
    [
        ("", True, True),
        ("node_types: {fat: {gpus: null}}\n", True, True),
        ("node_types: {fat: null}\nenv: {A: null}\n", True, False),
        ("slurm: {gpu_request: null}\n", True, False),
        ("sources: {me: I}\nfabric: {name: {value: Slingshot, grade: B, source: me}}\n", True, True),
        ("slurm: {qos: [{name: a, max_nodes: {value: 2, grade: A, source: jobs}}]}\n", True, True),
        ("slurm: {account_form: {pattern: '.*_g'}}\n", True, False),
        ("node_types: {fat: {gpu: 4}}\n", False, False),
        ("slurm: {qos: [{max_nodes: x}]}\n", False, False),
        ("nod_types: {}\n", False, False),
        ("template: 1\n", False, False),
    ],
)
def test_a_profile_that_extends(text: str, extending: bool, complete: bool) -> None:
    """It needs no more than a name, and null takes away; everything else is as in a profile of its own."""
    valid = [
        PROFILE.is_valid(parse_yaml(f"schema: 1\nname: mine\n{line}\n{text}", "mine.yaml"))
        for line in ("extends: rcc", "title: Mine")
    ]
    assert valid == [extending, complete]


def test_a_field_has_its_description_and_default() -> None:
    """Of the docstring below it, in the words of YAML."""
    schema = profile_schema()
    field = schema["$defs"]["SlurmRules.facts"]["properties"]["submissions_per_s"]
    assert field["default"] == 50.0
    assert field["description"].endswith("; `null`: as fast as it answers.")
