"""All steps of a run, and of a point's runs together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcddp.analysis.figures.distribution import ridges
from hpcddp.analysis.records.steps import RunSteps
from hpcddp.analysis.report.api import analyze
from hpcddp.analysis.runs.step_times import WIDTH, binned, distribution, pooled_bins, quantile_ns, shares_between
from hpcddp.analysis.study.frames import shown_parts, step_total_s
from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.verdicts.findings import LEAST_STEPS, Findings, bins_of, find
from hpcddp.core.records import PARTS
from tests.analysis.synthetic import MS, Bucket, Recorded, point, write_run, write_study

TIMES = st.lists(st.integers(1, 10**12), min_size=1, max_size=50)


def run_steps(times_ns: list[float], steady: list[bool]) -> RunSteps:
    times = np.array(times_ns)
    window = np.array([times[steady].sum()])
    return RunSteps(np.array(steady), times, times, {}, times[None, :], np.arange(len(times)), window, times, {})


@given(TIMES)
def test_a_quantile_is_a_step_that_was_measured(times_ns: list[int]) -> None:
    bins, ordered = binned(np.array(times_ns, dtype=np.float64)), sorted(times_ns)
    assert quantile_ns(bins, 0.5) == pytest.approx(ordered[(len(ordered) - 1) // 2], rel=0.51 * WIDTH)
    assert quantile_ns(bins, 1.0) == pytest.approx(ordered[-1], rel=0.51 * WIDTH)


@given(TIMES, TIMES)
def test_runs_add_up(a: list[int], b: list[int]) -> None:
    one, other = binned(np.array(a, dtype=np.float64)), binned(np.array(b, dtype=np.float64))
    assert pooled_bins([one, other]) == pooled_bins([other, one]) == binned(np.array(a + b, dtype=np.float64))


def test_the_warmup_is_apart_and_what_follows_a_pause_nowhere() -> None:
    """Two steps before the first that counts; the one of 90 after a pause; one that was not measured."""
    found = distribution([run_steps([70.0, 80.0, 10.0, 90.0, 10.0, np.nan], [False, False, True, False, True, True])])
    assert found.warmup == binned(np.array([70.0, 80.0]))
    assert found.timed == binned(np.array([10.0, 10.0]))


def test_shares_between_edges() -> None:
    """Of 10, 10, 20 and 40 ns: half between 5 and 15, a quarter between 15 and 30, the rest beyond."""
    assert shares_between(binned(np.array([10.0, 10.0, 20.0, 40.0])), np.array([5.0, 15.0, 30.0])).tolist() == [0.5, 0.25]


def test_columns_narrower_than_a_bin_have_their_part_of_it() -> None:
    """Steps that differ by little, as on a quiet machine: a column without a bin's middle looked as if no step were so long."""
    found = shares_between(binned(np.linspace(1e8, 1.02e8, 20_000)), np.linspace(1.001e8, 1.019e8, 61))
    assert found.tolist() == pytest.approx([0.9 / 60] * 60, rel=0.1)


def test_a_points_runs_are_pooled(tmp_path: Path) -> None:
    """Two runs, one at 100 ms and one at 110 ms, a step in ten at 150: three modes, told about the median of all."""
    where = point(1, 1)
    study = write_study(tmp_path / "s", [where], 2)
    for run, base in ((1, 100), (2, 110)):
        recorded = Recorded(step_ns=lambda rank, step, base=base: (150 if step % 10 == 0 else base) * MS, steps=30, job=str(run))  # type: ignore[misc]
        write_run(study, where, recorded, run)
    found = find(load_study(study))
    edges, rows = ridges(found.detail.times)
    (ridge,) = rows.values()
    assert ridge.steps == 60
    assert ridge.median_s == pytest.approx(0.110, rel=WIDTH)
    assert ridge.mean == pytest.approx((0.45 * 100 + 0.45 * 110 + 0.1 * 150) / 110, rel=WIDTH)
    assert [ridge.p99, ridge.longest] == pytest.approx([150 / 110, 150 / 110], rel=2 * WIDTH)
    assert ridge.warmup == pytest.approx(1500 / 110, rel=0.1)
    assert ridge.warmup_steps == 2
    assert sorted(ridge.timed_shares[ridge.timed_shares > 0].tolist()) == pytest.approx([0.1, 0.45, 0.45])
    assert edges[0] < 100 / 110 < 150 / 110 < edges[-1]


def test_few_steps_have_no_distribution(tmp_path: Path) -> None:
    few, enough = point(1, 1), point(1, 2)
    study = write_study(tmp_path / "s", [few, enough])
    write_run(study, few, Recorded(step_ns=MS, steps=LEAST_STEPS - 1))
    write_run(study, enough, Recorded(step_ns=MS, steps=LEAST_STEPS))
    found = find(load_study(study))
    (row,) = found.detail.times["row"].unique()
    assert found.shown.loc[row, "gpus"] == 2
    assert bins_of(found.detail.times, row, "timed")[0][1] == LEAST_STEPS


SAMPLES = {"data": {"samples": 640_000}}


def found_of(folder: Path, *runs: Recorded, **of_point: Any) -> Findings:
    """One point of two ranks with these runs; 64 samples a step."""
    what = point(1, 2, **of_point)
    study = write_study(folder / "s", [what], len(runs))
    for number, recorded in enumerate(runs, start=1):
        write_run(study, what, recorded, number)
    return find(load_study(study))


def bursting(rank: int, step: int) -> int:
    """Every fourth batch waits 200 ms."""
    return (210 if step % 4 == 0 else 10) * MS


def test_a_burst_every_fourth_step_is_in_all_numbers(tmp_path: Path) -> None:
    """10, 10, 10 and 210 ms: 60 on average, so 1067 samples/s; an epoch of 10,000 steps takes 600 s, a sixth of a node hour."""
    found = found_of(tmp_path, Recorded(step_ns=bursting, steps=40, launch=SAMPLES))
    (row,) = found.scaling.to_dict("records")
    assert row["samples_per_s"] == pytest.approx(64 / 0.06, rel=1e-12)
    assert (row["epoch_s"], row["node_h_per_epoch"]) == (pytest.approx(600), pytest.approx(1 / 6))
    assert (row["step_s"], row["step_median_s"], row["step_p99_s"]) == (pytest.approx(0.06), 0.01, 0.21)


def test_perfect_scaling_of_uneven_steps_is_exactly_one(tmp_path: Path) -> None:
    """Steps that no double has the mean of, a third as long on three ranks that share a global batch."""
    lengths = [3 * Random(1).randint(10 * MS, 11 * MS) for _ in range(8)]
    single, three = point(1, 1, batch_per_gpu=96), point(1, 3, batch_per_gpu=32)
    study = write_study(tmp_path / "s", [single, three], hold="global_batch")
    write_run(study, single, Recorded(step_ns=lambda rank, step: lengths[step], steps=7))
    write_run(study, three, Recorded(step_ns=lambda rank, step: lengths[step] // 3, steps=7))
    rows = find(load_study(study)).scaling
    assert rows["efficiency_1gpu"].tolist() == [1.0, 1.0]


def scaled(factor: float) -> Callable[[int, int], int]:
    """The same, longer or shorter."""
    return lambda rank, step: round(bursting(rank, step) * factor)


def all_parts(step: int) -> dict[str, float]:
    """All of a step; data is waited for in every fourth."""
    rest = 0.1 if step % 4 else 0.01
    return {**dict.fromkeys(PARTS, rest / 2), "data_wait": 1 - 6 * rest / 2 - 0.25 * rest, "comm_exposed": 0.25 * rest}


@pytest.mark.dear
def test_parts_add_up_to_the_step_with_nothing_left(tmp_path: Path) -> None:
    """In each run and at the point, whose median is of other runs than the medians of its parts would be."""
    factors = [Random(number).uniform(0.9, 1.1) for number in range(4)]
    runs = [Recorded(step_ns=scaled(each), steps=40, shares=all_parts, job=str(each)) for each in factors]
    found = found_of(tmp_path, *runs)
    parts = [f"{part}_s" for part in PARTS]
    assert found.runs[parts].sum(axis=1).tolist() == pytest.approx((found.runs["step_ns"] / 1e9).tolist(), rel=1e-6)
    assert shown_parts(found.scaling).sum(axis=1).tolist() == pytest.approx(step_total_s(found.scaling).tolist(), rel=1e-6)
    assert found.scaling["unaccounted_s"].isna().all()
    assert "unacc" not in analyze(tmp_path)[0].text


@pytest.mark.dear
def test_bursting_loader_workers_make_a_point_input_bound(tmp_path: Path) -> None:
    """Three steps in four wait for nothing, so the median step does; on average the wait is more than half of the step."""
    found = found_of(tmp_path, Recorded(step_ns=bursting, steps=40, shares=all_parts))
    assert {"input-bound", "stalls"} <= {each.name for each in found.verdicts}
    waited_ns = sum(int(all_parts(step)["data_wait"] * bursting(0, step)) for step in range(1, 41)) / 40
    plain = analyze(tmp_path)[0].plain
    (row,) = plain["points"]
    assert plain["schema"] == 2
    assert row["data_wait_mean_s"] == pytest.approx(waited_ns / 1e9, rel=1e-6)
    assert (row["step_mean_s"], row["step_median_s"]) == (pytest.approx(0.06), 0.01)
    assert not {"step_s", "step_hook_s", "forward_s", "data_wait_s", "transfer_s"} & set(row)
    assert pd.notna(row["samples_per_s"])


def test_a_part_that_no_record_has_is_left_as_unaccounted(tmp_path: Path) -> None:
    """Forward and backward are 75 % of the step: 25 % are told, not hidden."""
    (row,) = found_of(tmp_path, Recorded(step_ns=100 * MS)).scaling.to_dict("records")
    assert row["unaccounted_s"] == pytest.approx(0.025)


def test_transfer_and_peer_wait_are_the_exposed_communication_of_all_steps(tmp_path: Path) -> None:
    """All-reduces of every other step were recorded: 40 ms of these, 10 of them waiting; of all steps exposed are 60 ms."""

    def shares(step: int) -> dict[str, float]:
        exposed = 0.4 if step % 2 else 0.8
        return {"forward": 0.1, "backward": 0.1, "comm_exposed": exposed, "optimizer": 0.8 - exposed}

    def late(rank: int) -> Bucket:
        """Ready at 40 ms; rank 1's at 60: rank 0 waits 20 of 40 ms for it, on average half of that."""
        return Bucket(size_bytes=4, ready_ns=(60 if rank else 40) * MS, done_ns=80 * MS)

    recorded = Recorded(step_ns=100 * MS, steps=8, shares=shares, buckets=[late], bucket_steps=range(1, 9, 2))
    (row,) = found_of(tmp_path, recorded, comm="on").scaling.to_dict("records")
    assert row["comm_exposed_s"] == pytest.approx(0.06)
    assert (row["transfer_s"], row["peer_wait_s"]) == (pytest.approx(0.045), pytest.approx(0.015))


def test_single_steps_lie_between_boundaries_that_ranks_share(tmp_path: Path) -> None:
    """Exchanges end every 100 ms on rank 0's clock, whatever each rank does after it: no step is longer or shorter than that."""
    draw = Random(4)
    after_ns = [[draw.randint(0, 4 * MS) for _ in range(43)] for _ in range(2)]

    def lasted(rank: int, step: int) -> int:
        return 100 * MS + after_ns[rank][step + 1] - after_ns[rank][step]

    def shares(rank: int) -> Any:
        def of_step(step: int) -> dict[str, float]:
            other = (after_ns[rank][step + 1] + 0.5) / lasted(rank, step)
            return {"forward": 0.2, "backward": 0.3, "comm_exposed": 0.5 - other, "other": other}

        return of_step

    bucket = Bucket(size_bytes=4, ready_ns=60 * MS, done_ns=80 * MS)
    recorded = Recorded(
        step_ns=lasted, steps=41, shares=shares(0), shares_of_rank={1: shares(1)}, buckets=[bucket], clocks={1: 5 * MS}
    )
    on = found_of(tmp_path / "on", recorded, comm="on").runs.iloc[0]
    assert (on["step_median_s"], on["step_p05_s"]) == (pytest.approx(0.1, rel=1e-6), pytest.approx(0.1, rel=1e-6))
    off = found_of(tmp_path / "off", Recorded(step_ns=lasted, steps=41)).runs.iloc[0]
    assert off["step_p95_s"] - off["step_p05_s"] > 0.002


def test_ranks_whose_windows_do_not_go_together_are_told(tmp_path: Path) -> None:
    """One took 10 ms a step and one 12, for 20 steps: 40 ms apart, the rate is of their mean. Not within a step."""
    found = found_of(tmp_path / "apart", Recorded(step_ns=lambda rank, step: (12 if rank else 10) * MS, steps=20))
    (note,) = [note for note in found.notes if "its ranks from" in note]
    assert note.startswith(f"The timed steps of r1 of {point(1, 2).label} took its ranks from 0.200 to 0.240 s.")
    assert found.scaling["samples_per_s"].tolist() == pytest.approx([64 / 0.011])
    recorded = Recorded(step_ns=lambda rank, step: 10 * MS + (5 * MS if rank and step == 3 else 0) + 900 * rank, steps=20)
    assert not [note for note in found_of(tmp_path / "within", recorded).notes if "its ranks from" in note]
