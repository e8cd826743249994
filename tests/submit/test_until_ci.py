"""How many runs a point gets with --until-ci."""

from __future__ import annotations

import pytest

from hpcddp.submit.until_ci import how_well, open_points, rejected_words, repeats_until


@pytest.mark.parametrize(
    ("had", "known", "wanted"),
    [
        (0, None, 6),
        (3, (3, None), 6),
        (6, (6, 2.1), 7),
        (6, (6, 2.0), 6),
        (9, (9, 5.0), 10),
        (20, (20, 5.0), 20),
        (7, None, 7),
        (8, (2, None), 12),
    ],
)
def test_runs_are_added_while_the_interval_is_too_wide(had: int, known: tuple[int, float | None] | None, wanted: int) -> None:
    """To 2 %, 20 runs at most: six at first, one at a time then; none while runs are not over; after a change of software six
    of the new kind.
    """
    assert repeats_until(["p"], {"p": had}, {"p": known} if known else {}, 2.0, 20) == {"p": wanted}


def test_how_well_a_point_is_known() -> None:
    """In words; a point that would need more runs than it may have says so."""
    known, had = {"p": (7, 2.345), "q": (1, None)}, {"p": 7, "q": 1, "r": 3}
    assert how_well("p", had, known, 2.0, 8) == "p: its median is known to 2.3 % from 7 runs"
    assert how_well("p", had, known, 2.0, 7).endswith("2.3 % from 7 runs; no more are added: --max-repeat is 7")
    assert how_well("p", had, known, 3.0, 7) == "p: its median is known to 2.3 % from 7 runs"
    assert how_well("q", had, known, 2.0, 8) == "q: its median is not known from 1 run"
    assert how_well("r", had, known, 2.0, 8) == "r: its median is not known: its runs are not all done"
    assert rejected_words("r", [2, 3]).endswith("to have it again, remove r/r2 and r/r3, then submit again")


def test_points_that_are_less_well_known_than_asked() -> None:
    """Known to exactly that is known; below six runs, or with a run that does not count, it is not."""
    assert open_points("pqrs", {"p": (7, 2.0), "q": (7, 2.1), "r": (5, None)}, 2.0) == ["q", "r", "s"]
