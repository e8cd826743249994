"""Lists of processors as Linux writes them."""

from __future__ import annotations

import pytest

from hpcddp.core.written_lists import cpu_list, parse_cpu_list


@pytest.mark.parametrize(("text", "numbers"), [("", set()), ("0\n", {0}), ("0-3,64-66,9", {0, 1, 2, 3, 9, 64, 65, 66})])
def test_a_list_is_read(text: str, numbers: set[int]) -> None:
    """Numbers and spans, in any order."""
    assert parse_cpu_list(text) == numbers


def test_a_list_is_written_as_it_was_read() -> None:
    """Shortest, in ascending order."""
    assert cpu_list(parse_cpu_list("64-66,9,0-2,3")) == "0-3,9,64-66"


@pytest.mark.parametrize("text", ["x", "3-1", "-1", "0-99999999999", "1-2-3"])
def test_what_is_no_list_is_refused(text: str) -> None:
    """A damaged record must not ask for memory without end."""
    with pytest.raises(ValueError, match=r"list of processors|invalid literal"):
        parse_cpu_list(text)
