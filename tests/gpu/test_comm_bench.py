"""The collectives alone, on NCCL."""

from __future__ import annotations

import json
from pathlib import Path

from hpcddp.core.point import comm_point
from tests.gpu import ranks
from tests.gpu.marks import touches
from tests.gpu.results import Figures


@touches(
    "hpcddp/worker/comm/bench.py",
    "hpcddp/worker/comm/collectives.py",
    stand_in="NCCL is gloo, and sizes end at 4 MiB",
)
def test_collectives_are_timed_and_correct(tmp_path: Path, figures: Figures) -> None:
    """Every operation at every size that fits gives what it should, in a time above 0."""
    attempt = ranks.run_point(tmp_path, comm_point(ranks.gpu_point()))
    assert [outcome.code for outcome in attempt.outcomes] == [0] * len(attempt.outcomes), attempt.outcomes[0].output
    found = json.loads((attempt.folder / "comm.json").read_text())
    assert found["backend"] == "nccl"
    for name, operation in found["ops"].items():
        assert operation["not_supported"] is None, name
        for row in operation["sizes"]:
            assert row["correct"], (name, row)
            assert row["time_s"] > 0
    reduced = found["ops"]["all_reduce"]["sizes"]
    figures.add("all_reduce_smallest_us", 1e6 * reduced[0]["time_s"])
    figures.add("all_reduce_largest_gb_per_s", reduced[-1]["algbw_bytes_per_s"] / 1e9)
