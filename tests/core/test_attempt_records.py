"""Records of this and other versions as frozen values, and back to the same bytes."""

from __future__ import annotations

import json
import tarfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import pytest

from hpcddp.core.attempt_records import TrainingEnd
from hpcddp.core.launch_record import NodeRecord, NodeTypeFacts, ProfileFacts, TrainingLaunch
from hpcddp.core.schema import AtLeast, SchemaError, added_later, decode_record, encode

BUNDLE = Path(__file__).parents[1] / "analysis" / "recorded" / "version-0.1.0.tar.gz"

KINDS = {"launch.json": TrainingLaunch, "end.json": TrainingEnd, "vm.json": NodeRecord}

ADDED = {"step_rows": 1, "gates": [], "freed_memory": None, "interval_of": None}
"""What 0.1.0 did not write at first, with its default."""


def without_added(plain: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
    """What an older version would have written."""
    return {
        key: without_added(value, old[key]) if isinstance(value, dict) else value
        for key, value in plain.items()
        if key in old or value != ADDED.get(key, "")
    }


def test_recorded_files_are_read_and_written_alike() -> None:
    """Every file of the bundle, but for keys that came later."""
    with tarfile.open(BUNDLE) as tar:
        for member in tar:
            kind = KINDS.get(Path(member.name).name)
            if kind:
                content = tar.extractfile(member)
                assert content is not None
                plain = json.load(content)
                assert without_added(encode(decode_record(kind, plain)), plain) == plain


@dataclass(frozen=True, kw_only=True)
class Sample:
    name: str
    size: Annotated[int, AtLeast(1)] = 1
    words: tuple[str, ...] = ()
    table: dict[str, float] = field(default_factory=dict)
    extra: int | None = added_later(None)


def test_unknown_keys_are_passed_over_and_null_is_the_default() -> None:
    """What a newer version wrote, and an older one did not."""
    assert decode_record(Sample, {"name": "x", "newer": [1], "size": None, "words": None}) == Sample(name="x")


def test_what_was_added_later_is_written_where_it_is_known() -> None:
    """Not with its default."""
    assert encode(Sample(name="x")) == {"name": "x", "size": 1, "words": [], "table": {}}
    assert encode(Sample(name="x", extra=0))["extra"] == 0


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"name": None}, "name: None is nothing; text is expected"),
        ({"size": 0}, "size: 0 is below 1, the least that makes sense"),
        ({"size": 2**63}, f"size: {2**63} does not fit into 64 bits"),
        ({"words": ["a", 1]}, "words.1: 1 is a whole number; text is expected"),
        ({"table": {"a": -(2**63)}}, f"table.a: {-(2**63)} does not fit into 64 bits"),
        ({"table": {"a": True}}, "table.a: True is true/false; a number is expected"),
    ],
)
def test_what_no_version_wrote_is_refused(changed: dict[str, Any], message: str) -> None:
    """With its place."""
    with pytest.raises(SchemaError) as caught:
        decode_record(Sample, {"name": "x", **changed})
    assert str(caught.value) == message


def test_an_unknown_node_type_has_no_facts() -> None:
    """The profile's default where the point names none."""
    facts = decode_record(ProfileFacts, {"node_types": {"fat": {"smt": 2}}, "default_node_type": "fat", "more": 1})
    assert facts.node_type(None) == NodeTypeFacts(smt=2)
    assert facts.node_type("thin") == NodeTypeFacts()
