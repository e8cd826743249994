"""The rate of a loop over epochs is that of a clock of the script's own, which stops for evaluations and checkpoints."""

from __future__ import annotations

import pytest

from tests.probe.clocked import rate_by_clock


@pytest.mark.timed
@pytest.mark.parametrize(
    ("way", "ranks", "evaluates"),
    [
        ("by hand", 1, True),
        ("by hand", 4, False),
        ("Lightning", 1, False),
        ("Lightning", 2, True),
        ("transformers", 1, True),
        ("transformers", 2, False),
    ],
)
def test_the_rate_is_that_of_the_clock(way: str, ranks: int, evaluates: bool) -> None:
    """Within 1 %; `python -m tests.bench.probe` has all of them."""
    assert rate_by_clock(way, ranks, evaluates) == pytest.approx(1, abs=0.01)
