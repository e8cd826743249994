"""Two studies beside each other: what is matched, how the ratio is judged, what is said to differ."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from hpcddp.analysis.comparison.compare import StudyComparison, compare_studies, compared_plain, judgement_of
from hpcddp.analysis.comparison.figure import compare_figure
from hpcddp.analysis.comparison.text import compared_text, comparison_notes, comparison_sentence, to_junit
from hpcddp.analysis.study.accuracy import BY_ALL, GIVEN
from hpcddp.analysis.study.effects import Ratio
from hpcddp.core.errors import UsageError
from hpcddp.core.point import Point
from hpcddp.core.records import write_json
from hpcddp.core.run_root import Study
from tests.analysis.study.test_accuracy import falling, sized, training, trainings
from tests.analysis.study.test_accuracy import study as evaluated
from tests.analysis.synthetic import FAILED, MS, Recorded, point, write_measured, write_run, write_study

SIX = (100, 101, 102, 103, 104, 105)


def against(
    tmp_path: Path, a: Mapping[Point, Sequence[float]], b: Mapping[Point, Sequence[float]], threshold: float = 0.05
) -> StudyComparison:
    old, new = write_measured(tmp_path / "old", a), write_measured(tmp_path / "new", b)
    return compare_studies(old, new, threshold, ("old", "new"))


def elsewhere(*layout: int, **changes: Any) -> Point:
    """A point of another cluster, with its own node type and cores."""
    return dataclasses.replace(point(*layout, node_type="a40", physical_cores_per_rank=8, **changes), cluster="rcc")


def test_the_ratio_is_that_of_median_throughputs(tmp_path: Path) -> None:
    found = against(tmp_path, {point(1, 1): (100, 100, 100)}, {point(1, 1): (100, 110, 120)})
    (row,) = compared_plain(found)["points"]
    assert (row["ratio"], row["low"], row["high"]) == pytest.approx((100 / 110, 100 / 120, 1.0))
    assert (row["interval"], row["n_a"], row["n_b"], row["samples_per_s_a"]) == ("range", 3, 3, 320.0)


def test_a_study_against_itself_is_exactly_one(tmp_path: Path) -> None:
    same = write_measured(tmp_path / "s", {point(1, 1): SIX, point(2, 1): SIX})
    found = compare_studies(same, same, 0.05)
    assert [row["ratio"] for row in compared_plain(found)["points"]] == [1.0, 1.0]
    assert (found.differences, found.regressions, found.a.unmatched, found.b.unmatched) == ([], [], [], [])
    assert comparison_sentence(found) == "B trains 1.000 times as fast as A at 2 matched points; slower by more than 5 % at none."


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (Ratio(0.94, 0.93, 0.9499, "95 %"), "slower"),
        (Ratio(0.94, 0.93, 0.9501, "95 %"), "unclear"),
        (Ratio(0.97, 0.951, 1.049, "95 %"), "same"),
        (Ratio(1.0, 1.0, 1.0, "95 %"), "same"),
        (Ratio(0.981, 0.974, 0.988, "95 %"), "slightly slower"),
        (Ratio(1.02, 1.01, 1.03, "95 %"), "slightly faster"),
        (Ratio(0.98, 0.94, 0.99, "95 %"), "unclear"),
        (Ratio(0.981, 0.974, 0.988, "range"), "same"),
        (Ratio(1.07, 1.051, 1.1, "95 %"), "faster"),
        (Ratio(0.94, 0.80, 1.20, "range"), "slower"),
        (Ratio(0.96, 0.80, 1.20, "range"), "same"),
        (Ratio(0.94, None, None, None), "slower"),
    ],
)
def test_slower_is_the_whole_interval_or_the_median(found: Ratio, expected: str) -> None:
    assert judgement_of(found, 0.05) == expected


def test_a_slower_point_is_named_first(tmp_path: Path) -> None:
    found = against(tmp_path, {point(1, 1): SIX, point(2, 1): SIX}, {point(1, 1): SIX, point(2, 1): [ms * 1.1 for ms in SIX]})
    assert [each.a.label for each in found.regressions] == [point(2, 1).label]
    assert comparison_sentence(found).endswith("slower by more than 5 % at 1: 2 x 1 (0.909).")
    assert list(comparison_notes(found)) == []


def test_a_point_that_is_slightly_slower_is_told_and_no_regression(tmp_path: Path) -> None:
    six = [100 + run / 10 for run in range(6)]
    b = {point(1, 1): SIX, point(2, 1): [ms * 1.02 for ms in six]}
    found = against(tmp_path, {point(1, 1): SIX, point(2, 1): six}, b)
    assert [each.judgement for each in found.points] == ["same", "slightly slower"]
    assert found.regressions == []
    assert comparison_sentence(found).endswith("slower by more than 5 % at none; slower by less at 1.")
    assert re.search(r"2 x 1 .*0\.980.* slightly slower$", compared_text(found), re.MULTILINE)
    assert compared_plain(found)["points"][1]["verdict"] == "slightly slower"


def test_few_runs_are_judged_by_the_median_and_said_so(tmp_path: Path) -> None:
    found = against(tmp_path, {point(1, 1): SIX}, {point(1, 1): [ms * 1.2 for ms in SIX[:5]]})
    assert [each.judgement for each in found.points] == ["slower"]
    assert "every point has fewer than six runs on a side" in compared_text(found)
    assert "slower (median)" in compared_text(found)


def test_other_clusters_match_by_layout_and_workload(tmp_path: Path) -> None:
    a = {point(1, 1, node_type="v100", physical_cores_per_rank=16): SIX, point(1, 2): SIX}
    b = {elsewhere(1, 1): [ms / 2 for ms in SIX], elsewhere(1, 2, batch_per_gpu=64): SIX}
    old, new = write_measured(tmp_path / "old", a), write_measured(tmp_path / "new", b, gpu="A40", env_id="env-2")
    found = compare_studies(old, new, 0.05)
    assert [(each.a.layout, each.ratio.ratio, each.judgement) for each in found.points] == [((1, 1), 2.0, "faster")]
    assert {each.name for each in found.differences} == {"cluster", "node type", "cores/rank", "GPU", "env"}
    assert found.a.unmatched[0].reason == f"nearest is {elsewhere(1, 2, batch_per_gpu=64).label}: batch/GPU 32, there 64"


def test_the_nearest_point_is_that_of_the_nearest_size(tmp_path: Path) -> None:
    both = {point(1, 1): SIX}
    found = against(tmp_path, {**both, point(4, 1): SIX}, {**both, point(2, 1): SIX})
    assert found.a.unmatched[0].reason.startswith(f"nearest is {point(2, 1).label}: ")


@pytest.mark.dear
def test_the_nearest_point_of_a_size_is_that_of_the_nearest_values(tmp_path: Path) -> None:
    batches = [point(1, 2, batch_per_gpu=batch) for batch in (8, 96, 1024)]
    found = against(
        tmp_path, {point(1, 1): SIX, point(1, 2, batch_per_gpu=64): SIX}, {each: SIX for each in (point(1, 1), *batches)}
    )
    assert found.a.unmatched[0].reason == f"nearest is {batches[1].label}: batch/GPU 64, there 96"


def test_on_the_same_cluster_node_types_are_other_points(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no point of old is in new.*node type v100, there a40"):
        against(tmp_path, {point(1, 1, node_type="v100"): SIX}, {point(1, 1, node_type="a40"): SIX})


def test_several_that_fit_are_not_guessed_at(tmp_path: Path) -> None:
    a = write_measured(tmp_path / "old", {point(1, 1): (100,), point(2, 1): (100,)})
    write_run(a, point(1, 1), Recorded(step_ns=90 * MS, gpu="A40"), 2)
    b = write_measured(tmp_path / "new", {point(1, 1): (100,), point(2, 1): (100,)}, gpu="H100")
    found = compare_studies(a, b, 0.05)
    assert [each.a.layout for each in found.points] == [(2, 1)]
    assert [each.reason.partition(" n01")[0] for each in found.a.unmatched] == ["not the only one that fits"] * 2
    assert found.b.unmatched[0].reason.startswith("more than one fits: ")


def test_the_same_gpu_is_preferred(tmp_path: Path) -> None:
    a = write_measured(tmp_path / "old", {point(1, 1): (100,)})
    write_run(a, point(1, 1), Recorded(step_ns=10 * MS, gpu="A40"), 2)
    found = compare_studies(a, write_measured(tmp_path / "new", {point(1, 1): (100,)}, env_id="env-2"), 0.05)
    assert [each.ratio.ratio for each in found.points] == [1.0]


def test_how_long_is_timed_does_not_tell_points_apart(tmp_path: Path) -> None:
    found = against(tmp_path, {point(1, 1): (100,)}, {point(1, 1, steps=9): (100,)})
    assert [(each.name, each.a, each.b) for each in found.differences] == [("steps", ("5",), ("9",))]


def test_what_differs_is_read_from_the_records(tmp_path: Path) -> None:
    launch = {"versions": {"torch": "2.8.0"}, "environment": {"NCCL_DEBUG": "INFO", "SLURM_JOB_ID": "9", "MASTER_ADDR": "r1"}}
    a, b = (
        write_measured(tmp_path / "old", {point(1, 1): (100,)}),
        write_measured(tmp_path / "new", {point(1, 1): (100,)}, launch=launch),
    )
    write_json(b.attempt_dir(point(1, 1).label, 1, "101", 0) / "nodes" / "r000.json", {"gpu_driver": "570"})
    found = compare_studies(a, b, 0.05)
    differences = {each.name: (each.a, each.b) for each in found.differences}
    unknown = ("unknown",)
    assert differences == {
        "torch": (("2.7.1",), ("2.8.0",)),
        "$NCCL_DEBUG": (unknown, ("INFO",)),
        "gpu driver": (unknown, ("570",)),
    }
    assert "differs   $NCCL_DEBUG  unknown -> INFO" in compared_text(found)


def test_a_point_whose_runs_do_not_count_is_unfinished(tmp_path: Path) -> None:
    a = write_measured(tmp_path / "old", {point(1, 1): (100,), point(2, 1): (100,)})
    b = write_study(tmp_path / "new", [point(1, 1), point(2, 1)])
    write_run(b, point(1, 1), Recorded(step_ns=100 * MS))
    write_run(b, point(2, 1), Recorded(step_ns=100 * MS, gates=FAILED))
    (left,) = compare_studies(a, b, 0.05).unfinished
    assert (left.label, "check `equal steps`" in left.reason) == (point(2, 1).label, True)


def test_an_empty_side_is_named(tmp_path: Path) -> None:
    write_study(tmp_path / "empty", [point(1, 1)])
    with pytest.raises(UsageError, match="empty: no run of it counts"):
        compare_studies(write_measured(tmp_path / "s", {point(1, 1): (1,)}), Study(tmp_path / "empty"), 0.05)


def test_a_hook_on_one_side_is_noted(tmp_path: Path) -> None:
    found = against(tmp_path, {point(1, 2): (100,)}, {point(1, 2, comm="on"): (101,)})
    assert any("only one side has runs without the communication hook" in note for note in comparison_notes(found))


@pytest.mark.dear
def test_the_table_fits_a_terminal(tmp_path: Path) -> None:
    points = [point(nodes, 1, batch_per_gpu=batch) for nodes in (1, 16) for batch in (32, 256)]
    found = against(tmp_path, {each: SIX for each in points}, {each: [ms * 1.01 for ms in SIX] for each in points})
    table = [line for line in compared_text(found).splitlines() if line.startswith("  ")]
    assert len(table) == 5
    assert max(map(len, table)) <= 100


def test_junit_has_a_case_per_point(tmp_path: Path) -> None:
    points = [point(nodes, 1) for nodes in (1, 2, 4, 8)]
    a = write_measured(tmp_path / "old", {each: (100,) for each in points})
    b = write_study(tmp_path / "a <b>\x01&", points[:3])
    write_run(b, points[0], Recorded(step_ns=100 * MS))
    write_run(b, points[1], Recorded(step_ns=200 * MS))
    suite = ET.fromstring(to_junit(compare_studies(a, b, 0.05)))
    assert {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "4",
        "failures": "1",
        "errors": "1",
        "skipped": "1",
    }
    kinds = {str(case.get("name")): [child.tag for child in case] for case in suite}
    assert [kinds[each.label] for each in points] == [["system-out"], ["failure", "system-out"], ["error"], ["skipped"]]
    assert suite[0].get("classname") == r"a <b>\x01&"


def test_the_figure_has_a_line_per_point(tmp_path: Path) -> None:
    found = against(tmp_path, {point(1, 1): SIX, point(2, 1): (100,)}, {point(1, 1): SIX, point(2, 1): (125,)})
    (ax,) = compare_figure(found).axes
    markers = [line for line in ax.get_lines() if line.get_marker() == "o"]
    assert [np.asarray(line.get_xdata()).tolist() for line in markers] == [[1.0], [0.8]]
    assert [line.get_markerfacecolor() == "white" for line in markers] == [False, True]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["1 x 1", "2 x 1"]


def test_readings_that_differ_are_told(tmp_path: Path) -> None:

    def drawing(watts: float, util: float) -> dict[str, Any]:
        gpu = {"gpu": 0, "readings": 60, "util_percent_mean": util, "power_w_mean": watts, "sm_mhz_median": 1530}
        return {"end": {"telemetry": {"nodes": [{"host": "r000", "readings": 60, "cpu_foreign_share": 0.01, "gpus": [gpu]}]}}}

    before = write_measured(tmp_path / "old", {point(1, 1): [100]}, **drawing(250.0, 96.0))
    after = write_measured(tmp_path / "new", {point(1, 1): [100]}, **drawing(310.0, 92.0))
    found = compare_studies(before, after, 0.05)
    assert "readings  1 x 1: power per GPU 250 W -> 310 W\n" in compared_text(found)
    (row,) = compared_plain(found)["points"]
    assert row["readings"]["gpu_util_percent"] == {"a": 96.0, "b": 92.0}
    assert row["readings"]["gpu_temperature_c_peak"] == {"a": None, "b": None}
    assert "readings " not in compared_text(compare_studies(before, before, 0.05))


CORRECT = [9_700 + run for run in range(6)]


def accuracies_against(tmp_path: Path, a: Sequence[int | None], b: Sequence[int | None]) -> StudyComparison:
    mine = evaluated(tmp_path / "a", {sized(1): a}, loss=falling)
    return compare_studies(mine, evaluated(tmp_path / "b", {sized(1): b}, loss=falling), 0.05)


def accuracy(found: StudyComparison) -> Any:
    (row,) = compared_plain(found)["points"]
    return row["accuracy"]


def test_at_equal_samples_with_its_interval(tmp_path: Path) -> None:
    found = accuracies_against(tmp_path, CORRECT, [each + 40 for each in CORRECT])
    plain = accuracy(found)
    assert (plain["difference"], plain["interval"], plain["why_not"]) == (pytest.approx(0.004), "95 %", None)
    assert plain["low"] <= 0.004 <= plain["high"]
    assert (plain["b"]["correct"], plain["b"]["samples"], plain["b"]["samples_trained"]) == (9_742.5, 10_000, [1_920])
    text = " ".join(compared_text(found).split())
    assert "97.02 % (9,702.5 of 10,000) -> 97.42 % (9,742.5 of 10,000), 0.40 points higher (95 %" in text
    assert "each after 1,920 samples; training loss 9.55 to 7.55 -> 9.55 to 7.55 (first and last 10 steps)" in text


def test_one_side_alone_is_not_compared(tmp_path: Path) -> None:
    found = accuracies_against(tmp_path, CORRECT, [None] * 6)
    assert (accuracy(found)["difference"], accuracy(found)["b"]) == (None, None)
    assert "not compared: only A has runs that were evaluated" in compared_text(found)


def test_where_nothing_was_evaluated_nothing_is_said(tmp_path: Path) -> None:
    found = accuracies_against(tmp_path, [None], [None])
    assert accuracy(found) is None
    assert "accuracy" not in compared_text(found)


def test_other_amounts_of_training_are_not_compared(tmp_path: Path) -> None:
    mine, theirs = {sized(1, steps=29): CORRECT}, {sized(1, steps=59): CORRECT}
    a = evaluated(tmp_path / "a", mine)
    b = evaluated(tmp_path / "b", theirs, steps=59)
    found = compare_studies(a, b, 0.05)
    assert accuracy(found)["difference"] is None
    assert "A trained 1,920 samples, B 3,840 samples; only equal amounts are compared" in " ".join(compared_text(found).split())


def test_trainings_that_end_apart_are_compared_where_both_were(tmp_path: Path) -> None:
    mine = trainings(tmp_path / "a", {training(1, target_accuracy=0.9): [((50, 90), 10.0)] * 2})
    theirs = trainings(tmp_path / "b", {training(1, target_accuracy=0.9): [((50, 80, 95), 10.0)] * 2})
    found = compare_studies(mine, theirs, 0.05)
    plain = accuracy(found)
    assert (plain["difference"], plain["a"]["correct"], plain["b"]["correct"]) == (pytest.approx(-0.1), 900, 800)
    assert (plain["a"]["samples_trained"], plain["b"]["samples_trained"], plain["b"]["loss_end"]) == ([128], [128], None)
    assert "10.00 points lower" in compared_text(found)
    assert "each after 128 samples, the last at which all were evaluated" in " ".join(compared_text(found).split())


Trained = tuple[tuple[int, ...], float]
"""Accuracies of a run's epochs, per cent, and seconds of an epoch."""


def times_against(tmp_path: Path, a: list[Trained], b: list[Trained], target: float | None = 0.9) -> tuple[Any, str]:
    changes = {} if target is None else {"target_accuracy": target}
    found: StudyComparison = compare_studies(
        trainings(tmp_path / "a", {training(1, **changes): a}), trainings(tmp_path / "b", {training(1, **changes): b}), 0.05
    )
    (row,) = compared_plain(found)["points"]
    return row["to_accuracy"], " ".join(compared_text(found).split())


def test_the_ratio_of_times_has_the_interval_of_its_runs(tmp_path: Path) -> None:
    """A needs two epochs of 10 s, B three of 5 s: 20 s by 15 s, though samples pass twice as fast."""
    found, text = times_against(
        tmp_path, [((50, 90), 10 + run / 10) for run in range(6)], [((50, 80, 95), 5 + run / 20) for run in range(6)]
    )
    assert (found["target"], found["target_of"], found["interval"], found["why_not"]) == (0.9, GIVEN, "95 %", None)
    assert found["ratio"] == pytest.approx(20 / 15)
    assert 1.25 < found["low"] <= found["ratio"] <= found["high"] < 1.42
    assert (found["a"]["train_s"], found["b"]["epochs"], found["b"]["reached"]) == (pytest.approx(20.5), 3, 6)
    assert "time to 1 x 1: 90.00 % after 20.5 s (2 epochs) -> 15.4 s (3 epochs): B is there 1.333 times as fast (95 %" in text


def test_without_a_target_it_is_what_all_runs_of_both_reached(tmp_path: Path) -> None:
    """80 of A's runs, 75 of B's worst: 75, which A has after its second epoch and B after its first or third."""
    found, text = times_against(tmp_path, [((50, 80), 10.0)] * 2, [((75, 90), 10.0), ((50, 60, 75), 10.0)], target=None)
    assert (found["target"], found["target_of"], found["ratio"]) == (0.75, BY_ALL, pytest.approx(1.0))
    assert "75.00 %, the highest that all runs reached, after" in text


def test_a_run_that_did_not_reach_it_says_so_in_place_of_a_ratio(tmp_path: Path) -> None:
    found, text = times_against(tmp_path, [((50, 90), 10.0)] * 2, [((50, 95), 10.0), ((50, 60), 10.0)])
    assert (found["ratio"], found["b"]["reached"], found["b"]["train_s"]) == (None, 1, None)
    assert "not compared: 2 of 2 runs of A and 1 of 2 runs of B reached 90.00 %" in text


def test_one_epoch_is_no_plural(tmp_path: Path) -> None:
    _, text = times_against(tmp_path, [((95,), 10.0)] * 2, [((95,), 10.0), ((50, 95), 10.0)])
    assert "90.00 % after 10.0 s (1 epoch) -> 15.0 s (1.5 epochs)" in text


def compared(tmp_path: Path, a: dict[int, float], b: dict[int, float], runs: int = 6) -> StudyComparison:
    """Steps of so many ms with so many loader workers, 0.2 % longer from run to run."""

    def steps(of: dict[int, float]) -> dict[Point, list[float]]:
        slower = [1 + 0.002 * run for run in range(runs)]
        return {point(1, 4, loader_workers_per_rank=workers): [ms * each for each in slower] for workers, ms in of.items()}

    return against(tmp_path, steps(a), steps(b))


@pytest.mark.dear
def test_an_effect_that_differs_is_said(tmp_path: Path) -> None:
    found = compared(tmp_path, {2: 100, 8: 50}, {2: 100, 8: 100})
    (effect,) = compared_plain(found)["effects"]
    assert (effect["value"], effect["base"]) == ("8", "2")
    assert (effect["key"], effect["where"], effect["differs"]) == ("workload.loader_workers_per_rank", "1x4", True)
    assert (effect["a"]["ratio"], effect["b"]["ratio"]) == (pytest.approx(2.0), pytest.approx(1.0))
    assert "effects   at 1x4, workers 8 is 2.00 (95 % " in compared_text(found)


def test_an_effect_that_is_the_same_is_in_the_json_alone(tmp_path: Path) -> None:
    found = compared(tmp_path, {2: 100, 8: 50}, {2: 120, 8: 60})
    assert [effect["differs"] for effect in compared_plain(found)["effects"]] == [False]
    assert "effects" not in compared_text(found)


def test_a_single_run_shows_no_difference(tmp_path: Path) -> None:
    found = compared(tmp_path, {2: 100, 8: 50}, {2: 100, 8: 100}, runs=1)
    assert [effect["differs"] for effect in compared_plain(found)["effects"]] == [False]


def test_a_key_that_one_study_did_not_vary_has_no_effect_in_both(tmp_path: Path) -> None:
    assert compared(tmp_path, {2: 100, 8: 50}, {2: 100}).effects == []
