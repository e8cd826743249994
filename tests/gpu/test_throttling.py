"""The gate on a GPU's clocks: it judges by what the driver says of the timed steps."""

from __future__ import annotations

import os
from pathlib import Path
from statistics import median

import pytest

from hpcddp.worker.gates import CLOCK_FALL, HARMFUL, THROTTLED_SHARE
from hpcddp.worker.telemetry.reader_process import THROTTLE
from tests.gpu import ranks
from tests.gpu.device import is_real
from tests.gpu.marks import touches
from tests.gpu.results import Figures

GATE = "GPU clocks held"

BITS = {word: bit for bit, word in THROTTLE.items()}


def run(study: Path, reasons: str = "0") -> ranks.Attempt:
    """One GPU, read ten times a second; `reasons`: what the stand-in's driver says."""

    def say() -> None:
        os.environ["HPCDDP_TEST_THROTTLE"] = reasons

    measure = {"stop": "seconds", "seconds": float(ranks.steps(8, 1)), "telemetry_hz": 10.0}
    return ranks.run_point(study, ranks.gpu_point(1, precision="bf16", measure=measure), before=say)


@touches(
    "hpcddp/worker/telemetry/gpu.py",
    "hpcddp/worker/telemetry/reader_process.py",
    stand_in="clocks and reasons are made up",
)
def test_the_gate_says_what_the_readings_say(tmp_path: Path, figures: Figures) -> None:
    """Passed unless a harmful reason, or a fall of the clock at the power cap, is in the readings of the timed steps."""
    if is_real():
        pytest.importorskip("pynvml", reason="needs nvidia-ml-py")
    attempt = run(tmp_path)
    attempt.check_done()
    steps = attempt.timed_steps(0)
    begin_ns, end_ns = steps[0]["start_ns"] or 0, (steps[-1]["start_ns"] or 0) + (steps[-1]["total_ns"] or 0)
    rows = [row for row in attempt.readings() if begin_ns <= (row["unix_ns"] or 0) <= end_ns]
    reasons, mhz = [row["throttle_reasons"] or 0 for row in rows], [row["sm_mhz"] or 0 for row in rows]
    harmful, capped = (share(reasons, words) for words in (HARMFUL, ("sw_power_cap",)))
    quarter = -(-len(mhz) // 4)
    fell = 1 - median(mhz[-quarter:]) / median(mhz[:quarter])
    each = max(share(reasons, (word,)) for word in HARMFUL)
    assert attempt.gate(GATE)["passed"] == (each <= THROTTLED_SHARE and not (capped > THROTTLED_SHARE and fell > CLOCK_FALL))
    figures.add("sm_mhz_median", median(mhz), least=1.0)
    figures.add("sm_mhz_fell_percent", 100 * fell)
    figures.add("harmful_percent", 100 * harmful)
    figures.add("power_capped_percent", 100 * capped)


def share(reasons: list[int], words: tuple[str, ...]) -> float:
    """Of the readings that have one of these."""
    return sum(any(reading & BITS[word] for word in words) for reading in reasons) / len(reasons)


@pytest.mark.skipif(is_real(), reason="a test makes no GPU hot")
@pytest.mark.parametrize("word", ["hw_thermal_slowdown"])
def test_a_gpu_that_is_held_back_fails_the_gate(tmp_path: Path, word: str) -> None:
    """By heat, hardware or power supply: the reason is named, and the run is over all the same."""
    attempt = run(tmp_path, hex(BITS[word]))
    gate = attempt.gate(GATE)
    assert not gate["passed"]
    assert f"{word} in 100% of the readings" in gate["evidence"]
    attempt.check_done()
