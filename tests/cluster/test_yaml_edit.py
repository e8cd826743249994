"""Values changed in YAML text: the document has the new value, and every other line is as it was."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcddp.cluster.yaml_edit import with_value
from hpcddp.cluster.yamlfile import parse_yaml
from hpcddp.core.errors import UsageError

TEXT = """\
# The head.
name: mine          # its own
sources: {guide: the user guide}

node_types:
  fat:
    count:   {value: null, grade: "?", source: guide}   # not known
    gpu_link:
      value: >-
        NVLink inside each
        pair
      grade: A
      source: guide
    # what follows is of the fabric

fabric: {}
links:
"""


def expected(path: tuple[str, ...], value: object) -> Any:
    """The document with the value put there."""
    document = copy.deepcopy(parse_yaml(TEXT, "text"))
    node = document
    for key in path[:-1]:
        if not node.get(key):
            node[key] = {}
        node = node[key]
    node[path[-1]] = value
    return document


PATHS = [
    ("name",),
    ("sources", "survey"),
    ("node_types", "fat", "count"),
    ("node_types", "fat", "gpu_link"),
    ("node_types", "fat", "links", "topology"),
    ("node_types", "fat", "sockets"),
    ("node_types", "thin", "sockets"),
    ("fabric", "latency_us"),
    ("links", "socket_gbs"),
    ("storage", "scratch", "gbs"),
]

texts = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=12)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=8
)


@given(path=st.sampled_from(PATHS), value=values)
def test_the_value_is_there_and_nothing_else_changed(path: tuple[str, ...], value: object) -> None:
    """Whatever the value, and whether its key was there, in a block or in braces, or not."""
    assert parse_yaml(with_value(TEXT, path, value), "text") == expected(path, value)


@pytest.mark.parametrize("path", PATHS)
def test_comments_and_other_lines_stay(path: tuple[str, ...]) -> None:
    """No line goes but those of the value itself, and no comment."""
    changed = with_value(TEXT, path, {"value": 2, "grade": "A", "source": "survey"})
    gone = [line for line in TEXT.splitlines() if line not in changed.splitlines()]
    assert len(gone) <= (6 if path[-1] == "gpu_link" else 1), gone
    assert all(comment in changed for comment in ("# The head.", "# its own", "# not known", "# what follows is of the fabric"))


def test_two_values_one_after_the_other() -> None:
    """Text that was changed is changed again."""
    once = with_value(TEXT, ("fabric", "latency_us"), 1.5)
    twice = with_value(once, ("fabric", "protocol"), "rdma")
    assert parse_yaml(twice, "text")["fabric"] == {
        "latency_us": 1.5,
        "protocol": "rdma",
    }


def test_path_through_a_value_is_refused() -> None:
    """A word has no entries."""
    with pytest.raises(UsageError, match="name is no mapping"):
        with_value(TEXT, ("name", "first"), 1)
