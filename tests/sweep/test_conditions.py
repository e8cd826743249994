"""Conditions choose points."""

from __future__ import annotations

import pytest

from hpcddp.core.errors import UsageError
from hpcddp.core.point import Data, Layout, Point, Workload
from hpcddp.sweep.groups import matching

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
    """All conditions must hold; `and` joins several in one."""
    assert [at for at, holds in enumerate(matching(POINTS, conditions)) if holds] == expected


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("layout.node == 1", "^--where 'layout.node == 1': no key `layout.node` in a point; did you mean `layout.nodes`"),
        ("layout.nodes", "^--where 'layout.nodes': write KEY OP VALUE"),
        ("layout.nodes < many", "^--where 'layout.nodes < many': layout.nodes is 1; it cannot be compared by `<` with 'many'"),
        ("__import__('os')", "write KEY OP VALUE"),
    ],
)
def test_wrong_conditions(condition: str, message: str) -> None:
    """What is not a comparison of a known key is refused, and nothing is evaluated."""
    with pytest.raises(UsageError, match=message):
        matching(POINTS, [condition])
