from __future__ import annotations

import json
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcddp.core.attempt_records import TrainingEnd
from hpcddp.core.launch_record import NodeRecord, NodeTypeFacts, ProfileFacts, TrainingLaunch
from hpcddp.core.point import VARIANTS, Data, Layout, Measure, Optimizer, Point, Workload
from hpcddp.core.schema import NonNegative, Positive, SchemaError, added_later, decode, decode_record, did_you_mean, encode


@dataclass(frozen=True, kw_only=True)
class Inner:
    rate: NonNegative = 0.5
    words: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Outer:
    version: Literal[1]
    name: str
    count: Positive = 1
    limit: Positive | None = None
    on: bool = False
    inner: Inner = Inner()
    several: tuple[Inner, ...] = ()
    table: Mapping[str, float] = field(default_factory=dict)
    anything: Any = None


GOOD = {"version": 1, "name": "x"}


names = st.text(max_size=8)
numbers = st.floats(min_value=0, allow_nan=False, allow_infinity=False)
datas = st.builds(
    Data, name=names, root=st.none() | names, copies=st.integers(1, 200), variants=st.lists(st.sampled_from(VARIANTS)).map(tuple)
)
workloads = st.builds(
    Workload,
    model=names,
    data=datas,
    precision=st.sampled_from(("fp32", "bf16")),
    batch_per_gpu=st.integers(1, 4096),
    global_batch=st.none() | st.integers(1),
    channels_last=st.booleans(),
    optimizer=st.builds(Optimizer, lr=numbers, momentum=numbers),
)
layouts = st.builds(Layout, nodes=st.integers(1, 16), node_type=st.none() | names, exclusive=st.booleans())
measures = st.builds(Measure, steps=st.integers(1), evaluate=st.booleans())
points = st.builds(
    Point, cluster=names, workload=workloads, layout=layouts, measure=measures, device=st.sampled_from(("cuda", "cpu"))
)


@pytest.mark.dear
@given(points, st.booleans())
def test_round_trip(point: Point, keep_defaults: bool) -> None:
    plain = json.loads(json.dumps(encode(point, keep_defaults=keep_defaults)))
    assert decode(Point, plain) == point


def test_defaults_left_out() -> None:
    value = Outer(version=1, name="x", inner=Inner(rate=0.25), table={"a": 1.0})
    assert encode(value, keep_defaults=False) == {"version": 1, "name": "x", "inner": {"rate": 0.25}, "table": {"a": 1.0}}


def test_missing_key() -> None:
    with pytest.raises(SchemaError, match=r"^`name` is missing$"):
        decode(Outer, {"version": 1})


@pytest.mark.parametrize(
    ("changed", "path", "message"),
    [
        ({"inner": {"rat": 1}}, ("inner", "rat"), "unknown key `rat` in inner; did you mean `rate`?"),
        ({"count": 0}, ("count",), "0 is below the minimum 1"),
        ({"limit": 0}, ("limit",), "0 is below the minimum 1"),
        ({"inner": {"rate": -1}}, ("inner", "rate"), "-1.0 is below the minimum 0"),
        ({"inner": {"rate": float("nan")}}, ("inner", "rate"), "nan is not a finite number"),
        ({"inner": {"rate": float("inf")}}, ("inner", "rate"), "inf is not a finite number"),
        ({"count": True}, ("count",), "True is true/false; a whole number is expected"),
        ({"count": 2.0}, ("count",), "2.0 is a number; a whole number is expected"),
        ({"count": "2"}, ("count",), "'2' is text; a whole number is expected"),
        ({"name": 2}, ("name",), "2 is a whole number; text is expected"),
        ({"name": None}, ("name",), "None is nothing; text is expected"),
        ({"on": 1}, ("on",), "1 is a whole number; true/false is expected"),
        ({"version": 2}, ("version",), "2 is not one of 1"),
        ({"version": True}, ("version",), "True is not one of 1"),
        ({"version": 1.0}, ("version",), "1.0 is not one of 1"),
        ({"inner": []}, ("inner",), "[] is a list; a mapping is expected"),
        ({"several": [{}, {"words": "ab"}]}, ("several", 1, "words"), "'ab' is text; a list is expected"),
        ({"table": {"a": "b"}}, ("table", "a"), "'b' is text; a number is expected"),
        ({"table": {3: 1}}, ("table",), "3 is a whole number; text is expected"),
    ],
)
def test_what_does_not_fit(changed: Mapping[str, object], path: tuple[object, ...], message: str) -> None:
    with pytest.raises(SchemaError) as caught:
        decode(Outer, {**GOOD, **changed})
    assert (caught.value.path, caught.value.message) == (path, message)


def test_what_fits() -> None:
    value = decode(Outer, {**GOOD, "inner": {"rate": 2, "words": ["a"]}, "limit": None, "anything": [1, {"a": None}]})
    assert (value.inner, type(value.inner.rate)) == (Inner(rate=2.0, words=("a",)), float)
    assert (value.limit, value.anything) == (None, [1, {"a": None}])


def test_did_you_mean() -> None:
    assert did_you_mean("juwells", ["rcc", "juwels"]) == "; did you mean `juwels`?"
    assert did_you_mean("zzz", ["rcc", "juwels"]) == "; known: juwels, rcc"
    assert did_you_mean("zzz", []) == ""


BUNDLE = Path(__file__).parents[1] / "analysis" / "recorded" / "version-0.1.0.tar.gz"
KINDS = {"launch.json": TrainingLaunch, "end.json": TrainingEnd, "vm.json": NodeRecord}

ADDED = {"step_rows": 1, "gates": [], "freed_memory": None, "interval_of": None}
"""What 0.1.0 did not write at first, with its default."""


def without_added(plain: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
    return {
        key: without_added(value, old[key]) if isinstance(value, dict) else value
        for key, value in plain.items()
        if key in old or value != ADDED.get(key, "")
    }


def test_recorded_files_are_read_and_written_alike() -> None:
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
    size: Positive = 1
    words: tuple[str, ...] = ()
    table: dict[str, float] = field(default_factory=dict)
    extra: int | None = added_later(None)


def test_unknown_keys_are_passed_over_and_null_is_the_default() -> None:
    assert decode_record(Sample, {"name": "x", "newer": [1], "size": None, "words": None}) == Sample(name="x")


def test_what_was_added_later_is_written_where_it_is_known() -> None:
    assert encode(Sample(name="x")) == {"name": "x", "size": 1, "words": [], "table": {}}
    assert encode(Sample(name="x", extra=0))["extra"] == 0


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"name": None}, "name: None is nothing; text is expected"),
        ({"size": 2**63}, f"size: {2**63} does not fit into 64 bits"),
        ({"words": ["a", 1]}, "words.1: 1 is a whole number; text is expected"),
        ({"table": {"a": -(2**63)}}, f"table.a: {-(2**63)} does not fit into 64 bits"),
    ],
)
def test_what_no_version_wrote_is_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaError) as caught:
        decode_record(Sample, {"name": "x", **changed})
    assert str(caught.value) == message


def test_an_unknown_node_type_has_no_facts() -> None:
    facts = decode_record(ProfileFacts, {"node_types": {"fat": {"smt": 2}}, "default_node_type": "fat", "more": 1})
    assert facts.node_type(None) == NodeTypeFacts(smt=2)
    assert facts.node_type("thin") == NodeTypeFacts()
