from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcddp.core.errors import UsageError
from hpcddp.core.point import Data, Layout, Point, Workload
from hpcddp.core.schema import SchemaError
from hpcddp.sweep.groups import matching, read_group

KEYS = ("layout.nodes", "layout.gpus_per_node", "workload.batch_per_gpu", "workload.seed", "measure.steps")
lists = st.lists(st.integers(1, 9), min_size=1, max_size=3)


@st.composite
def halves(draw: st.DrawFn) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    """Axes, and lists of one length under keys of their own."""
    keys = draw(st.permutations(KEYS))
    cut = draw(st.integers(0, len(keys) - 1))
    length = draw(st.integers(1, 3))
    zipped = {key: draw(st.lists(st.integers(1, 9), min_size=length, max_size=length)) for key in keys[cut:]}
    return {key: draw(lists) for key in keys[:cut]}, zipped


def values(plain: Mapping[str, Any], **also: Any) -> list[dict[str, Any]]:
    return [dict(found.values) for found in read_group("g", plain).combinations(also)]


@given(st.dictionaries(st.sampled_from(KEYS), lists))
def test_axes_are_a_product(axes: dict[str, list[int]]) -> None:
    assert values(axes) == [dict(zip(axes, each, strict=True)) for each in itertools.product(*axes.values())]


@given(halves())
def test_lists_that_move_together_are_one_axis(both: tuple[dict[str, list[int]], dict[str, list[int]]]) -> None:
    axes, zipped = both
    rows = [dict(zip(zipped, each, strict=True)) for each in zip(*zipped.values(), strict=True)]
    assert values({**axes, "zip": zipped}) == [{**one, **row} for one in values(axes) for row in rows]
    assert values({"zip": zipped, **axes}) == [{**row, **one} for row in rows for one in values(axes)]


@given(st.dictionaries(st.sampled_from(KEYS), lists), st.lists(st.dictionaries(st.sampled_from(KEYS), st.integers(1, 9))))
def test_included_points_come_after_the_product(axes: dict[str, list[int]], more: list[dict[str, int]]) -> None:
    product = values(axes) if axes or not more else []
    assert values({**axes, "include": more}) == [*product, *more]


def test_one_more_product_spares_what_a_group_says() -> None:
    group = {"layout.nodes": [1, 2], "include": [{"layout.nodes": 4}, {"layout.nodes": 4, "measure.comm": "check"}]}
    found = values(group, **{"measure.comm": ["off", "on"]})
    comms = [(each["layout.nodes"], each["measure.comm"]) for each in found]
    assert comms == [(1, "off"), (1, "on"), (2, "off"), (2, "on"), (4, "off"), (4, "on"), (4, "check")]
    own = {"zip": {"layout.nodes": [1, 2], "measure.comm": ["on", "off"]}, "include": [{"layout.nodes": 4}]}
    assert values(own, **{"measure.comm": ["check"]}) == values(own)


@pytest.mark.parametrize(
    ("plain", "place", "message"),
    [
        ({"zip": {"layout.nodes": [1, 2, 4], "workload.seed": [1, 2]}}, ("zip", "workload.seed"), "has 2 values, but"),
        ({"zip": {"layout.nodes": [1, 2]}, "layout.nodes": [1]}, ("layout.nodes",), "is both an axis and in `zip`"),
        ({"zip": {}}, ("zip",), "`zip` has no lists. Write"),
        ({"zip": [1, 2]}, ("zip",), "is a list; a mapping is expected"),
        ({"zip": {"layout.nodes": 2}}, ("zip", "layout.nodes"), "2 is a whole number; a list is expected"),
        ({"zip": {"slurm.qos": ["a"]}}, ("zip", "slurm.qos"), "`slurm.qos` cannot be an axis"),
        ({"zipp": {"layout.nodes": [1]}}, ("zipp",), "cannot be an axis; did you mean `zip`?"),
        ({"include": {"layout.nodes": 1}}, ("include",), "is a mapping; a list is expected"),
        ({"include": [{"account": "me"}]}, ("include", 0, "account"), "`account` cannot be an axis"),
        ({"layout.nodes": []}, ("layout.nodes",), "has no values, so group `g` has no points"),
        ({"where": {"layout.nodes": 1}}, ("where",), "is a mapping; a list is expected"),
        ({"exclude": [1]}, ("exclude", 0), "1 is a whole number; text is expected"),
    ],
)
def test_what_does_not_fit_is_refused_by_its_place(plain: dict[str, Any], place: tuple[Any, ...], message: str) -> None:
    with pytest.raises(SchemaError) as refused:
        read_group("g", plain)
    assert refused.value.path == ("points", "g", *place)
    assert message in refused.value.message


POINTS = [
    Point(cluster="c", workload=Workload(model="resnet18", data=Data(name="cifar10")), layout=Layout(nodes=n, gpus_per_node=g))
    for n, g in ((1, 1), (1, 4), (2, 4), (16, 4))
]


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ([], [0, 1, 2, 3]),
        (["layout.nodes <= 2"], [0, 1, 2]),
        (["layout.nodes<=2 and layout.gpus_per_node == 4"], [1, 2]),
        (["layout.nodes >= 2", "layout.nodes < 16"], [2]),
        (["layout.nodes in [1, 16]"], [0, 1, 3]),
        (["workload.data.name == cifar10", "layout.nodes != 1"], [2, 3]),
        (["layout.nodes > 16"], []),
        (["ranks <= 8 and global_batch > 32"], [1, 2]),
    ],
)
def test_conditions(conditions: list[str], expected: list[int]) -> None:
    assert [at for at, holds in enumerate(matching(POINTS, conditions)) if holds] == expected


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("layout.node == 1", "^--where 'layout.node == 1': no key `layout.node` in a point; did you mean `layout.nodes`"),
        ("layout.nodes", "^--where 'layout.nodes': write KEY OP VALUE"),
        ("layout.nodes < many", "^--where 'layout.nodes < many': layout.nodes is 1, which `<` cannot compare with 'many'"),
        ("__import__('os')", "write KEY OP VALUE"),
    ],
)
def test_wrong_conditions(condition: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        matching(POINTS, [condition])
