"""Which run is meant, and many of them in a few words."""

from hpcddp.core.run_root import RunKey, run_ranges, spans


def test_neighbours_are_a_range_and_points_beyond_three_are_counted() -> None:
    """By label, each with its own numbers."""
    assert run_ranges(RunKey(*key) for key in [("b", 1), ("a", 5), ("a", 3), ("a", 1), ("a", 2)]) == "a r1-3, r5, b r1"
    assert run_ranges(RunKey(label, 1) for label in "abcde") == "a r1, b r1, c r1 and 2 points more"
    assert run_ranges(RunKey(label, 1) for label in "abcd") == "a r1, b r1, c r1 and 1 point more"


def test_sizes_sort_by_their_numbers() -> None:
    """Batch 8 before 128, 16 nodes before 100, run 2 before 10."""
    keys = [RunKey(label, 1) for label in ("n100-g4-b8", "n16-g4-b128", "n16-g4-b8")]
    assert run_ranges([*keys, RunKey("n16-g4-b8", 10)]) == "n16-g4-b8 r1, r10, n16-g4-b128 r1, n100-g4-b8 r1"


def test_spans_are_first_and_last_of_neighbours() -> None:
    """In any order, each number once; of nothing there are none."""
    assert spans([3, 1, 2, 5, 2]) == [(1, 3), (5, 5)]
    assert spans([]) == []


def test_a_run_sorts_by_label_and_number_and_reads_as_one() -> None:
    """`r10` comes after `r2`."""
    assert sorted([RunKey("b", 1), RunKey("a", 10), RunKey("a", 2)]) == [("a", 2), ("a", 10), ("b", 1)]
    assert f"{RunKey('n01-g4', 2)}" == "n01-g4 r2"
