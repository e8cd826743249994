"""Runs in words."""

from hpcddp.core.run_key import RunKey, run_ranges


def test_neighbours_are_a_range_and_points_beyond_three_are_counted() -> None:
    """By label, each with its own numbers."""
    assert run_ranges(RunKey(*key) for key in [("b", 1), ("a", 5), ("a", 3), ("a", 1), ("a", 2)]) == "a r1-3, r5, b r1"
    assert run_ranges(RunKey(label, 1) for label in "abcde") == "a r1, b r1, c r1 and 2 points more"
    assert run_ranges(RunKey(label, 1) for label in "abcd") == "a r1, b r1, c r1 and 1 point more"
