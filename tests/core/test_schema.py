"""Plain data to frozen records and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcddp.core.point import VARIANTS, Data, Layout, Measure, Optimizer, Point, Workload
from hpcddp.core.schema import NonNegative, Positive, SchemaError, decode, did_you_mean, encode


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


def complaint(**changed: object) -> SchemaError:
    with pytest.raises(SchemaError) as caught:
        decode(Outer, {**GOOD, **changed})
    return caught.value


names = st.text(max_size=8)
numbers = st.floats(min_value=0, allow_nan=False, allow_infinity=False)
datas = st.builds(
    Data,
    name=names,
    root=st.none() | names,
    copies=st.integers(1, 200),
    variants=st.lists(st.sampled_from(VARIANTS)).map(tuple),
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
    """decode reverses encode, with the defaults written out or left out, by way of JSON."""
    plain = json.loads(json.dumps(encode(point, keep_defaults=keep_defaults)))
    assert decode(Point, plain) == point


def test_defaults_left_out() -> None:
    """Without keep_defaults only what differs from the default is left, at every depth."""
    value = Outer(version=1, name="x", inner=Inner(rate=0.25), table={"a": 1.0})
    assert encode(value, keep_defaults=False) == {"version": 1, "name": "x", "inner": {"rate": 0.25}, "table": {"a": 1.0}}


def test_unknown_key() -> None:
    """An unknown key is refused with its place and the nearest known one."""
    error = complaint(inner={"rat": 1})
    assert error.path == ("inner", "rat")
    assert error.message == "unknown key `rat` in inner; did you mean `rate`?"


def test_missing_key() -> None:
    """A key without a default must be there."""
    with pytest.raises(SchemaError, match=r"^`name` is missing$"):
        decode(Outer, {"version": 1})


@pytest.mark.parametrize(
    ("changed", "path", "message"),
    [
        ({"count": 0}, ("count",), "0 is below 1, the least that makes sense"),
        ({"limit": 0}, ("limit",), "0 is below 1, the least that makes sense"),
        ({"inner": {"rate": -1}}, ("inner", "rate"), "-1.0 is below 0, the least that makes sense"),
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
    """A wrong type, a number out of range or not finite is refused with its place; 1 is not true and 2.0 is not 2."""
    error = complaint(**changed)
    assert (error.path, error.message) == (path, message)


def test_what_fits() -> None:
    """A whole number serves as a number, a list as a tuple, null where None is allowed; `Any` takes what it gets."""
    value = decode(Outer, {**GOOD, "inner": {"rate": 2, "words": ["a"]}, "limit": None, "anything": [1, {"a": None}]})
    assert value.inner == Inner(rate=2.0, words=("a",))
    assert isinstance(value.inner.rate, float)
    assert value.limit is None
    assert value.anything == [1, {"a": None}]


def test_did_you_mean() -> None:
    """The nearest known word; where none is near, all of them, sorted; nothing where nothing is known."""
    assert did_you_mean("juwells", ["rcc", "juwels"]) == "; did you mean `juwels`?"
    assert did_you_mean("zzz", ["rcc", "juwels"]) == "; known: juwels, rcc"
    assert did_you_mean("zzz", []) == ""
