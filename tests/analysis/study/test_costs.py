"""What an epoch costs: formulas by hand, and where they are shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from hpcddp.analysis import How, analyze
from hpcddp.analysis.proposal.proposal import propose
from hpcddp.analysis.study.costs import energy_kwh, unit_hours
from hpcddp.analysis.util.wording import duration
from hpcddp.core.point import Data
from hpcddp.core.records import write_json
from hpcddp.core.run_root import Study
from tests.analysis.synthetic import MS, point, write_marconi100, write_runs, write_study

pytestmark = pytest.mark.usefixtures("undrawn")


def report(root: Path, **changes: Any) -> tuple[str, dict[str, Any]]:
    """Two nodes of four GPUs, 32 x 8 samples in 100 ms: 2560 samples/s."""
    each = point(2, 4)
    write_runs(write_study(root / "s", [each]), each, [100 * MS], **changes)
    (result,) = analyze(root)
    return result.text, result.plain["points"][0]


def test_hours_count_whole_units() -> None:
    """4 nodes for 15 minutes: one node hour."""
    assert unit_hours(4, 900.0) == 1


def test_energy_of_an_epoch() -> None:
    """3600 J per 1000 samples, 2 million samples: 7.2 MJ = 2 kWh."""
    assert energy_kwh(2_000_000, 3600.0) == 2


def test_costs_are_in_the_report(tmp_path: Path) -> None:
    """256 000 samples as launch.json tells, at 2560 samples/s: 100 s, 200 node seconds, 800 GPU seconds, 128 kJ."""
    telemetry = {"telemetry": {"energy_j_per_1000_samples": 500}}
    text, row = report(tmp_path, launch={"data": {"samples": 256_000}}, end=telemetry)
    found = [row[name] for name in ("epoch_samples", "epoch_s", "node_h_per_epoch", "gpu_h_per_epoch", "gpu_kwh_per_epoch")]
    assert found == pytest.approx([256_000, 100, 200 / 3600, 800 / 3600, 128e3 / 3.6e6])
    assert "epoch  node h\n" in text
    assert " 1:40  0.0556" in text
    (in_file,) = pd.read_csv(tmp_path / "s/report/scaling.csv").to_dict(orient="records")
    assert in_file["gpu_h_per_epoch"] == pytest.approx(800 / 3600)


@pytest.mark.dear
def test_a_slow_run_is_billed(tmp_path: Path) -> None:
    """Four runs of 100 ms and one of 115: the median rate is that of 100 ms, an epoch of 100 s takes 103 s on average."""
    each = point(2, 4)
    study = write_study(tmp_path / "s", [each], 5)
    write_runs(study, each, [100 * MS] * 4 + [115 * MS], launch={"data": {"samples": 256_000}})
    (result,) = analyze(tmp_path, how=How(train_epochs=10))
    row = result.plain["points"][0]
    assert row["samples_per_s"] == pytest.approx(2560)
    found = [row[name] for name in ("epoch_s", "epoch_s_low", "epoch_s_high", "node_h_per_epoch", "gpu_h_to_train")]
    assert found == pytest.approx([103, 100, 115, 206 / 3600, 8240 / 3600])
    costs = propose(study, nodes=2, epochs=10).costs
    assert costs is not None
    hours = costs.node_h
    assert (hours.value, hours.low, hours.high) == pytest.approx((206 / 3600, 200 / 3600, 230 / 3600))


def asking(study: Study, train_epochs: int) -> Path:
    """The study's folder; its sweep now says how many epochs a training takes."""
    described = json.loads(study.study_file.read_bytes())
    write_json(study.study_file, {**described, "sweep": {**described["sweep"], "train_epochs": train_epochs}})
    return study.folder


@pytest.mark.dear
def test_a_training_is_so_many_epochs(tmp_path: Path) -> None:
    """90 x 139 s on 16 nodes are 3:28:30, 55.6 node hours and 222 GPU hours; on one GPU 86:39:00. Each with its runs' folder."""
    study = write_marconi100(tmp_path / "m100", repeat=3)
    (result,) = analyze(asking(study, 90))
    _, block = result.text.split("  a training of 90 epochs: training alone, without start, evaluation and checkpoints (means)\n")
    head, first, *_, last = block.split("\n\n")[0].splitlines()
    assert head.split() == ["nodes", "x", "GPUs", "n", "time", "(range)", "node", "h", "GPU", "h", "runs", "in"]
    small, large = (point(*layout, work="epoch").label for layout in ((1, 1), (16, 4)))
    assert first.split() == ["1", "x", "1", "3", "86:39:00", "(86:18:12-86:59:48)", "86.7", "86.7", small]
    assert last.split() == ["16", "x", "4", "3", "3:28:30", "(3:27:40-3:29:20)", "55.6", "222", large]
    row = result.plain["points"][-1]
    found = [row[name] for name in ("train_epochs", "train_s", "node_h_to_train", "gpu_h_to_train", "gpu_kwh_to_train")]
    hours = 90 * 139 / 3600
    assert found == [90, *(pytest.approx(value, rel=1e-6) for value in (3600 * hours, 16 * hours, 64 * hours)), None]
    assert "What a training costs" in (study.folder / "report/index.html").read_text()
    assert (study.folder / "report/training.tex").is_file()


def test_epochs_that_are_asked_for_stand_above_the_sweeps(tmp_path: Path) -> None:
    """`analyze --epochs 1` of a sweep that says 90; without either there is no training, and no column on the terminal."""
    each = point(1, 1)
    study = write_study(tmp_path / "s", [each])
    write_runs(study, each, [100 * MS], launch={"data": {"samples": 3_200_000}})
    (plain,) = analyze(tmp_path)
    assert plain.plain["points"][0]["train_s"] is None
    assert "a training of" not in plain.text
    (result,) = analyze(asking(study, 90), how=How(train_epochs=1))
    assert result.plain["points"][0]["train_s"] == pytest.approx(10_000)
    assert "a training of 1 epoch:" in result.text


def test_the_catalogue_knows_what_old_records_do_not_tell(tmp_path: Path) -> None:
    """ImageNet's 1 281 167; energy is unknown."""
    _, row = report(tmp_path)
    assert row["epoch_s"] == pytest.approx(1_281_167 / 2560)
    assert row["gpu_kwh_per_epoch"] is None


def test_data_of_unknown_size_have_no_epoch(tmp_path: Path) -> None:
    """The user's own: no column on the terminal, nothing guessed."""
    each = point(1, 1, data=Data(name="mine:data"))
    write_runs(write_study(tmp_path / "s", [each]), each, [MS])
    (result,) = analyze(tmp_path)
    assert result.plain["points"][0]["epoch_s"] is None
    assert "node h" not in result.text
    (result,) = analyze(tmp_path, how=How(train_epochs=90))
    assert (result.plain["points"][0]["train_epochs"], "a training of" in result.text) == (None, False)


def test_without_data_or_training_there_is_no_epoch(tmp_path: Path) -> None:
    """`input: io` loads and does not train."""
    each = point(1, 1, input="io")
    write_runs(write_study(tmp_path / "s", [each]), each, [MS])
    (result,) = analyze(tmp_path)
    assert result.plain["points"][0]["epoch_s"] is None
    assert "node h" not in result.text


def test_cpus_have_no_gpu_hours(tmp_path: Path) -> None:
    """Node hours they have."""
    each = point(1, 2, device="cpu")
    write_runs(write_study(tmp_path / "s", [each]), each, [MS], gpu=None)
    (result,) = analyze(tmp_path)
    row = result.plain["points"][0]
    assert row["gpu_h_per_epoch"] is None
    assert row["node_h_per_epoch"] == pytest.approx(1_281_167 / 64_000 / 3600)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.5, "0.500 s"), (59.9, "59.9 s"), (59.96, "1:00"), (3466, "57:46"), (3599.6, "1:00:00"), (90061, "25:01:01")],
)
def test_durations(seconds: float, text: str) -> None:
    """As a clock shows them, from a minute on."""
    assert duration(seconds) == text
