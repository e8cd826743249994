"""The benchmark of a step on a GPU: that it runs, and how it judges."""

from __future__ import annotations

from typing import Any

import pytest

from tests.bench.gpu_step import HOST_BOUND_US, LINES, as_result, compared, summary
from tests.gpu.device import is_real


@pytest.mark.skipif(is_real(), reason="python -m tests.bench.gpu_step runs all of it")
@pytest.mark.parametrize("loop", ["fused", "on"])
def test_both_loops_train_in_alternating_blocks(loop: str) -> None:
    """As many pairs of blocks as the point has, but for the warm-up's, and the last, which nobody times."""
    row = compared(loop, False)
    assert row["blocks"] == 3
    assert row["bare_ms"] > 0


def rows(**changes: tuple[float, float]) -> list[dict[str, Any]]:
    """Lines whose loops take nothing more; `changes`: the interval of a loop that is not compiled, in percent."""
    found = []
    for loop, compiled in LINES:
        low, high = changes.get(loop.replace(" ", "_"), (0.0, 0.0)) if not compiled else (0.0, 0.0)
        middle = (low + high) / 2
        times = {"bare_ms": 50.0, "added_us": middle * 500, "added_percent": middle, "low_percent": low, "high_percent": high}
        found.append({"loop": loop, "compiled": compiled, "batch": 128, "blocks": 12, **times})
    return found


@pytest.mark.parametrize(
    ("interval", "holds"), [((0.5, 1.9), True), ((2.1, 2.5), False), ((1.0, 3.0), None)], ids=["below", "above", "across"]
)
def test_a_bound_is_judged_by_the_interval(interval: tuple[float, float], holds: bool | None) -> None:
    """What lies across it is not resolved, and fails nothing."""
    result = summary(rows(on=interval))
    (row,) = (row for row in result["steps"] if row["loop"] == "on" and not row["compiled"])
    assert row["holds"] is holds
    assert result["holds"] is (holds is not False)


def test_loops_by_hand_are_not_judged() -> None:
    """They say how well the others are known, and what torch's defaults cost."""
    assert summary(rows(equal=(5.0, 6.0), fused=(-9.0, -8.0)))["holds"]


def test_host_time_has_a_bound_of_its_own() -> None:
    """In microseconds, whatever the step takes: 0.3 % of 50 ms are too many. The hook's time is what it adds to that."""
    assert not summary(rows(host_off=(0.3, 0.4)))["holds"]
    result = summary(rows(host_off=(0.1, 0.1), host_on=(0.3, 0.3)))
    assert (result["holds"], result["host_us"], result["hook_us"]) == (True, 50.0, 100.0)


def test_its_result_is_a_line_as_a_tests() -> None:
    """Figures by name, with interval and bound."""
    figures = as_result(summary(rows(on=(0.5, 1.5))))["figures"]
    assert figures["on_added_percent"] == {"value": 1.0, "low": 0.5, "high": 1.5, "most": 2.0}
    assert figures["host_us"]["most"] == HOST_BOUND_US
    assert figures["off_compiled_bare_images_per_s"]["value"] == 2560.0
