"""Rates beside samples per second, where a script says what a step is worth."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from hpcddp.analysis.report.api import analyze
from tests.probe.loops import BATCH, Loop, network, study_at
from tests.probe.records import measured, only


def in_one_process() -> None:
    """The plain loop."""
    Loop(network()).run()


def with_rates() -> None:
    """Of a model whose samples have ten tokens each."""
    Loop(network(), options={"tokens_per_step": 10 * BATCH, "flops_per_step": 3e6 * BATCH}).run()


def test_a_second_rate(tmp_path: Path, undrawn: None) -> None:
    """Tokens/s and operations/s where the script says how many they are; a report of others has no such column."""
    run = only(measured(tmp_path, 1, with_rates))
    assert (run.used.tokens_per_sample, run.used.flops_per_sample) == (10.0, 3_000_000)
    folder = study_at(tmp_path / "runs").folder
    (report,) = analyze(folder)
    assert "tokens/s" in report.text
    (row,) = report.plain["points"]
    assert row["tokens_per_s"] == pytest.approx(10 * row["samples_per_s"])
    in_file = pd.read_csv(folder / "report" / "scaling.csv").iloc[0]
    assert in_file["tokens_per_s"] == pytest.approx(10 * in_file["samples_per_s"])


def test_no_second_rate(tmp_path: Path, undrawn: None) -> None:
    """Where nobody said it, nothing speaks of it."""
    measured(tmp_path, 1, in_one_process)
    folder = study_at(tmp_path / "runs").folder
    (report,) = analyze(folder)
    assert "tokens" not in report.text
    assert not any("tokens" in name for row in report.plain["points"] for name in row)
    written = [file for file in (folder / "report").rglob("*") if file.suffix in (".csv", ".md", ".tex", ".json")]
    assert len(written) > 3
    assert [file.name for file in written if "tokens" in file.read_text()] == []
