"""Points beside what was predicted of them: outside their band they are told, with the part of the step that is why."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.verdicts.context import Verdict
from hpcddp.analysis.verdicts.findings import Findings, find
from hpcddp.core.point import Point
from hpcddp.core.prediction import PredictedPoint
from hpcddp.core.run_root import Study
from hpcddp.predict.model import Anchor, Bucket, Network, predict
from tests.analysis.simulation import BUCKET_BYTES, COMPUTE_MS, OPTIMIZER_MS, TRANSFER_MS, Case
from tests.analysis.synthetic import point, predicted, write_measured, write_prediction
from tests.analysis.verdicts.test_planted import ON, SIZES, Plan, study_of, wide

NODE_MS, BETWEEN_MS = COMPUTE_MS + TRANSFER_MS + OPTIMIZER_MS, 10.0
"""A step on the node that is predicted from; what the last bucket takes between two nodes, with nothing left to hide it."""

NETWORK = Network(bytes_per_s=BUCKET_BYTES / BETWEEN_MS * 1e3, latency_s=0.0)
BUCKETS = [Bucket(BUCKET_BYTES, 0.5), Bucket(BUCKET_BYTES, 1.0)]


def by_model(each: Point, anchor: Point) -> PredictedPoint:
    """As the model has it, of a node whose step is known without noise and that never waits for data."""
    of = Anchor(nodes=1, gpus_per_node=4, batch_per_gpu=each.workload.batch_per_gpu, step_s=NODE_MS / 1e3, waits=0.0, ahead=0.3)
    made = predict(each.label, of, each.layout.nodes, of.batch_per_gpu, BUCKETS, NETWORK)
    return PredictedPoint(**{**vars(made), "anchor": anchor.label})


def study(folder: Path, case: Case, seed: int = 1, **changes: Any) -> tuple[Verdict, ...]:
    """What is said of two nodes, simulated so, beside what the model has of them."""

    def of(each: Point) -> Case:
        return case if wide(each) else Case()

    points, _ = study_of(folder, Plan(case=of, changes=changes), SIZES[0], seed)
    write_prediction(Study(folder), by_model(points[-1], points[1]))
    return out_of_line(find(load_study(Study(folder))))


def out_of_line(found: Findings) -> tuple[Verdict, ...]:
    return tuple(each for each in found.verdicts if each.name == "out of line with prediction")


SOUND_MS = TRANSFER_MS + BETWEEN_MS


@pytest.mark.parametrize("seed", range(10))
def test_what_is_as_predicted_is_in_line(tmp_path: Path, seed: int) -> None:
    assert study(tmp_path / "s", Case(transfer_ms=SOUND_MS), 100 * seed) == ()


FAULTS: Mapping[str, tuple[Case, str, tuple[float, float], str]] = {
    "a slow link": (Case(transfer_ms=SOUND_MS + 30), "Exposed communication", (SOUND_MS + 30, SOUND_MS), "hpcddp bench comm"),
    "starved": (Case(transfer_ms=SOUND_MS, data_ms=lambda rank: 30.0), "Waiting for data", (30, 0), "measure.input=io"),
    "slower computation": (
        Case(transfer_ms=SOUND_MS, compute_ms=COMPUTE_MS + 30),
        "The rest of the step, mainly computation,",
        (COMPUTE_MS + OPTIMIZER_MS + 30, COMPUTE_MS + OPTIMIZER_MS),
        "hpcddp submit SWEEP.yaml --preflight",
    ),
    "a faster link": (Case(transfer_ms=0.0), "Exposed communication", (0, SOUND_MS), "Compare the profile's network"),
}
"""What two nodes do -> the part that is named, how long it takes and should take in ms, and what to do."""


@pytest.mark.parametrize("changes", [{}, ON], ids=["step rows", "hook"])
@pytest.mark.parametrize("fault", FAULTS)
def test_the_part_that_grew_is_named(tmp_path: Path, fault: str, changes: Mapping[str, Any]) -> None:
    """Of a faster point the part that shrank; what the anchor's ranks wait for within their node is no growth."""
    case, part, (here_ms, then_ms), advice = FAULTS[fault]
    (verdict,) = study(tmp_path / "s", case, **changes)
    assert verdict.where == "at 2x4"
    assert f". {part} takes " in verdict.evidence
    assert advice in verdict.advice
    assert verdict.numbers["part_s"] == pytest.approx(here_ms / 1e3, abs=5e-3)
    assert verdict.numbers["predicted_part_s"] == pytest.approx(then_ms / 1e3, abs=5e-3)


ONE, TWO, FOUR = point(1, 4), point(2, 4), point(4, 4)
RATE = TWO.global_batch / 0.1


def measured(folder: Path) -> Study:
    return write_measured(folder, [ONE, TWO, FOUR])


def test_points_with_one_next_step_are_one_verdict(tmp_path: Path) -> None:
    """Of it the point that is furthest off is shown, beside where its prediction is from; a faster point is another's."""
    given = measured(tmp_path / "s")
    write_prediction(given, *(predicted(each, rate, anchor=ONE.label) for each, rate in ((TWO, 1.2 * RATE), (FOUR, 3 * RATE))))
    (found,) = out_of_line(find(load_study(given)))
    assert found.where == "at 2x4 and 4x4"
    assert found.evidence.startswith(
        f"4x4 reaches 5,120 samples/s instead of 6,912 to 8,448 (run r1), predicted from {ONE.label}. The rest of the step"
    )
    write_prediction(given, *(predicted(each, rate, anchor=ONE.label) for each, rate in ((TWO, 1.2 * RATE), (FOUR, RATE))))
    assert {each.where for each in out_of_line(find(load_study(given)))} == {"at 2x4", "at 4x4"}


@pytest.mark.parametrize("content", ["{", '{"points": 3}', '{"points": [{"label": "a", "low": "x"}]}', "[]"])
def test_a_damaged_prediction_is_none(tmp_path: Path, content: str) -> None:
    given = measured(tmp_path / "s")
    given.prediction_file.write_text(content)
    found = find(load_study(given))
    assert out_of_line(found) == ()
    assert found.scaling["predicted_low"].isna().all()
    assert "prediction.json cannot be read, and no run is compared with it." in found.notes


def test_without_a_prediction_nothing_is_said(tmp_path: Path) -> None:
    records = load_study(measured(tmp_path / "s"))
    assert (dict(records.predicted), records.warnings) == ({}, ())


@pytest.mark.parametrize(
    "known", [{"high": 10.0}, {"reason": "fsdp"}, {"samples_per_s": 10.0, "low": 11.0, "high": 12.0}, {"low": 0.0, "high": 0.0}]
)
def test_only_a_number_within_a_band_is_compared(tmp_path: Path, known: Mapping[str, float]) -> None:
    """An upper bound, a reason, and what cannot be: none is a prediction to be out of line with."""
    given = measured(tmp_path / "s")
    write_prediction(given, PredictedPoint(label=TWO.label, anchor=ONE.label, **known))  # type: ignore[arg-type]
    assert dict(load_study(given).predicted) == {}
