from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.study.scaling import efficiency, speedup
from hpcddp.analysis.verdicts.findings import find
from tests.analysis.synthetic import MS, Recorded, point, write_run, write_study


def test_speedup_is_the_ratio_of_throughputs() -> None:
    """9217 against 370 samples per second."""
    assert speedup(Fraction(9217), Fraction(370)) == Fraction(9217, 370)


def test_efficiency_is_speedup_by_the_ratio_of_gpus() -> None:
    """64 GPUs at 1000 against 4 at 100: 10 times on 16 times as many."""
    assert efficiency(Fraction(1000), 64, Fraction(100), 4) == Fraction(10, 16)


def test_a_baseline_against_itself_is_one() -> None:
    """n = 1 gives exactly 1."""
    assert efficiency(Fraction(1, 3), 3, Fraction(1, 3), 3) == 1


def test_the_parts_are_those_of_the_middle_run(tmp_path: Path) -> None:
    """They add up to the median step: of three runs that wait for 10, 20 and 30 % of theirs, 22 ms of 110."""
    what = point(1, 1)
    study = write_study(tmp_path / "study", [what], repeat=3)
    for run, (step_ms, waits) in enumerate([(120, 0.3), (100, 0.1), (110, 0.2)], start=1):
        shares = {"data_wait": waits, "forward": 1 - waits}
        write_run(study, what, Recorded(step_ns=step_ms * MS, shares=shares, job=str(100 + run)), run)
    records = load_study(study)
    (row,) = [row for _, row in find(records).shown.iterrows()]
    assert (row["step_s"], row["data_wait_s"]) == (pytest.approx(0.110), pytest.approx(0.022))


def test_rates_are_of_runs_without_the_communication_hook(tmp_path: Path) -> None:
    """Those with it say where the step goes; it slows them down."""
    plain, hooked = point(1, 2), point(1, 2, comm="on")
    study = write_study(tmp_path / "study", [plain, hooked])
    write_run(study, plain, Recorded(step_ns=100 * MS))
    write_run(study, hooked, Recorded(step_ns=125 * MS))
    (row,) = [row for _, row in find(load_study(study)).shown.iterrows()]
    assert (row["step_s"], row["step_hook_s"]) == (pytest.approx(0.100), pytest.approx(0.125))
    assert row["samples_per_s"] == pytest.approx(plain.global_batch / 0.100)
