"""Node lists as Slurm writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcddp.core.written_lists import expand_node_list
from hpcddp.detect.nodes import node_list


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["gn01"], "gn01"),
        (["gn03", "gn01", "gn02", "gn07"], "gn[01-03,07]"),
        (["n9", "n10"], "n[9-10]"),
        (["n9", "n10", "n001"], "n[9-10],n001"),
        (["login", "r1i0n1", "r1i0n2"], "login,r1i0n[1-2]"),
        (["gn-1-ib", "gn-2-ib"], "gn-[1-2]-ib"),
        ([], ""),
    ],
)
def test_ranges(names: list[str], text: str) -> None:
    """Names that differ in their last number are one list, numbers of one width each."""
    assert node_list(names) == text


@given(st.sets(st.from_regex(r"[a-c]{1,2}[0-9]{0,3}", fullmatch=True)))
def test_nothing_is_lost(names: set[str]) -> None:
    """A list in full is the names it was made of."""
    assert sorted(expand_node_list(node_list(names))) == sorted(names)
