"""What an earlier version recorded still analyzes: recorded/version-0.1.0.tar.gz, its bundle of six real runs on CPUs."""

from __future__ import annotations

import csv
import io
import json
import statistics
import tarfile
from collections import defaultdict
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hpcddp.cli import main

BUNDLE = Path(__file__).parents[1] / "recorded" / "version-0.1.0.tar.gz"

PARTS = ("data_wait", "h2d_exposed", "forward", "backward", "comm_exposed", "optimizer", "record", "other")

Steps = dict[int, list[dict[str, str]]]
"""Rank -> its timed rows."""


def recorded() -> dict[str, dict[str, Steps]]:
    """Label -> run -> its steps, by tarfile and csv alone."""
    found: dict[str, dict[str, Steps]] = defaultdict(lambda: defaultdict(dict))
    with tarfile.open(BUNDLE) as tar:
        for member in tar:
            if member.name.endswith(".steps.csv"):
                _, label, run, _, _, file = member.name.split("/")
                content = tar.extractfile(member)
                assert content is not None
                rows = csv.DictReader(io.TextIOWrapper(content))
                found[label][run][int(file[:5])] = [row for row in rows if row["flags"] == "0"]
    return found


def window_ns(rows: list[dict[str, str]]) -> int:
    """From the start of the first timed step to the end of the last."""
    return int(rows[-1]["start_ns"]) + int(rows[-1]["total_ns"]) - int(rows[0]["start_ns"])


def rate_per_s(steps: Steps, batch_per_rank: int) -> Fraction:
    """Samples of the timed steps over the time they took, the mean over ranks."""
    samples = sum(len(rows) for rows in steps.values()) * batch_per_rank
    return samples * 10**9 / statistics.mean(Fraction(window_ns(rows)) for rows in steps.values())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report that `analyze` writes of it."""
    out = tmp_path_factory.mktemp("report")
    result = CliRunner().invoke(main, ["analyze", str(BUNDLE), "-o", str(out)])
    assert result.exit_code == 0, result.output
    return out / "earlier"


@pytest.fixture(scope="module")
def report(folder: Path) -> dict[str, Any]:
    """What it says for scripts."""
    content: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return content


@pytest.mark.dear
def test_all_its_runs_count(report: dict[str, Any]) -> None:
    """Nothing that was recorded then is missed now."""
    assert report["runs"] == {"expected": 6, "done": 6, "pass": 6}
    assert report["rejected"] == []
    assert report["missing"] == []


@pytest.mark.dear
def test_rates_are_samples_over_the_time_that_passed(report: dict[str, Any]) -> None:
    """By code of its own on the raw rows, to nine digits; over runs the median."""
    for point in report["points"]:
        rates = [rate_per_s(steps, batch_per_rank=16) for steps in recorded()[point["label"]].values()]
        assert point["samples_per_s"] == pytest.approx(float(statistics.median(rates)), rel=1e-9)


@pytest.mark.dear
def test_parts_of_each_run_add_up_to_its_step(folder: Path) -> None:
    """Means over steps and ranks leave nothing; transfer and peer wait, where the hook ran, are what was exposed."""
    for run in csv.DictReader((folder / "runs.csv").read_text().splitlines()):
        step_s = int(run["global_batch"]) / float(run["samples_per_s"])
        assert sum(float(run[f"{part}_s"] or 0) for part in PARTS) == pytest.approx(step_s, rel=1e-6)
        if run["transfer_s"]:
            assert float(run["transfer_s"]) + float(run["peer_wait_s"]) == pytest.approx(float(run["comm_exposed_s"]), rel=1e-6)
