"""A run that several attempts made: each step counts once, by the attempt that `history` names for it."""

from __future__ import annotations

import itertools
import json
import random
import shutil
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hpcddp.analysis.export.exported import exported
from hpcddp.analysis.records.attempts import merged_loader, merged_nodes, read_attempts
from hpcddp.analysis.records.json_files import read_launch, read_training_end
from hpcddp.analysis.records.steps import joined, mean_step_ns
from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.runs.step_times import binned
from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.verdicts.findings import find
from hpcddp.core.attempt_records import GpuTelemetry, LoaderTimes, NodeTelemetry
from hpcddp.core.records import steps_file, write_json
from hpcddp.core.run_root import Study
from tests.analysis.synthetic import FAILED, MS, Bucket, Recorded, point, write_run, write_study

POINT = point(1, 2)
RUN = f"r1 of {POINT.label}"


@pytest.fixture
def study(tmp_path: Path) -> Study:
    """One point of two ranks, no run yet."""
    return write_study(tmp_path / "s", [POINT])


def only(study: Study) -> Run:
    """The study's one run, with nothing odd about it."""
    records = load_study(study)
    assert records.warnings == ()
    return records.runs[0]


def history(*stretches: tuple[str, int, int]) -> dict[str, Any]:
    """What end.json has of whose steps count: (attempt, first step, steps)."""
    return {"history": [{"attempt": name, "first_step": first, "steps": steps} for name, first, steps in stretches]}


def interrupted(study: Study, job: str, first_step: int, steps: int, step_ns: Any, **end: Any) -> Path:
    """An attempt of so many steps, the first of them warm-up."""
    state = {"state": "interrupted", "reason": "told to stop", **end}
    return write_run(study, POINT, Recorded(step_ns=step_ns, job=job, first_step=first_step, steps=steps - 1, **state))


def killed(study: Study, job: str, first_step: int, steps: int, step_ns: Any, **end: Any) -> Path:
    """The same of an attempt that ended in the middle of a row of rank 1, without a word."""
    attempt = interrupted(study, job, first_step, steps, step_ns, **end)
    (attempt / "end.json").unlink()
    with steps_file(attempt, 1).open("ab") as file:
        file.write(b"%d,0,17" % (first_step + steps))
    return attempt


def ended(study: Study, step_ns: Any, *stretches: tuple[str, int, int], **changes: Any) -> Path:
    """The attempt that ended the run, whose last stretch is its own."""
    name, first, steps = stretches[-1]
    end = {**history(*stretches), **changes.pop("end", {})}
    recorded = Recorded(step_ns=step_ns, job=name.partition(".")[0], first_step=first, steps=steps - 1, end=end, **changes)
    return write_run(study, POINT, recorded)


TWO = (("7.0", 0, 6), ("8.0", 6, 6))


def thrice(study: Study, **first: Any) -> list[Path]:
    """6 steps of 8 ms, 5 of 9 and 4 of 10, each attempt's first one warm-up and ten times as long."""
    return [
        interrupted(study, "7", 0, 6, 8 * MS, **first),
        interrupted(study, "8", 6, 5, 9 * MS),
        ended(study, 10 * MS, ("7.0", 0, 6), ("8.0", 6, 5), ("9.0", 11, 4)),
    ]


def test_the_steps_of_all_attempts_count(study: Study) -> None:
    """Less the first of each: its warm-up. 5 of 8, 4 of 9 and 3 of 10 ms are 106 ms for 12."""
    thrice(study)
    run = only(study)
    assert (run.state, run.attempt, run.restarts, run.lost_steps) == ("counts", "9.0", 2, 0)
    assert run.steady_steps == 5 + 4 + 3
    assert run.step_ns == pytest.approx(106 / 12 * MS)
    assert run.typical is not None
    assert run.typical.median_ns == 9 * MS
    assert run.distribution is not None
    assert run.distribution.timed == binned(np.array([8.0] * 5 + [9.0] * 4 + [10.0] * 3) * MS)
    assert run.distribution.warmup == binned(np.array([80.0, 90.0, 100.0]) * MS)
    (note,) = [note for note in find(load_study(study)).notes if "restart" in note]
    assert note.startswith(f"1 of 1 run resumed after a restart ({RUN} after 2). Their times cover all attempts")


@pytest.mark.parametrize("seed", range(5))
def test_each_of_200_steps_counts_exactly_once(study: Study, seed: int) -> None:
    """Attempts that were told to stop, that were killed and had gone on after the checkpoint, and that came to none."""
    rng = random.Random(seed)
    cuts = [0, *sorted(rng.sample(range(2, 199), 4)), 200]
    stretches = []
    for job, (first, stop) in enumerate(itertools.pairwise(cuts), start=10):
        killed(study, f"{job}0", first, rng.randint(1, 30), 77 * MS)  # no checkpoint: nothing of it counts
        stretches.append((f"{job}1.0", first, stop - first))
        if stop == 200:
            last = ended(study, step_ns, *stretches)
        elif rng.random() < 0.5:
            interrupted(study, f"{job}1", first, stop - first, step_ns)
        else:
            killed(study, f"{job}1", first, stop - first + rng.randint(0, 2000), step_ns)
    launch, end, warnings = read_launch(last, POINT), read_training_end(last), list[str]()
    steps = joined([part.steps for part in read_attempts(last, launch, end, POINT, warnings)])
    assert steps.step.tolist() == list(range(200))
    warm = set(cuts[:-1])
    assert steps.step_ns.tolist() == [(step_ns(0, step) + 0.5) * (10 if step in warm else 1) for step in range(200)]
    assert mean_step_ns(steps) == Fraction(sum(2 * step_ns(0, step) + 1 for step in range(200) if step not in warm), 2 * 195)
    assert steps.own_ns.shape == (2, 200)
    assert all("count by their rows alone" in warning for warning in warnings)
    run = load_study(study).runs[0]
    assert (run.state, run.steady_steps, run.restarts, run.lost_steps) == ("counts", 195, 4, 0)


def step_ns(rank: int, step: int) -> int:
    """Every step another time, rank 1's 1 ns longer."""
    return 10 * MS + 1000 * step + rank


def test_rows_without_a_checksum_are_told(study: Study) -> None:
    killed(study, "7", 0, 9, 8 * MS)
    ended(study, 8 * MS, *TWO)
    records = load_study(study)
    assert (records.runs[0].state, records.runs[0].steady_steps) == ("counts", 5 + 5)
    words = "count by their rows alone: it did not end, so nothing else checks them"
    assert records.warnings == (f"{RUN}: steps 0 to 5 (attempt 7.0) {words}",)


def test_the_warm_up_of_a_killed_attempt_is_as_long_as_the_longest(study: Study) -> None:
    """Where runs find their own: 3 steps after the restart, so 3 of the attempt that could not say."""
    killed(study, "7", 0, 8, 8 * MS)
    ended(study, 8 * MS, ("7.0", 0, 8), ("8.0", 8, 8), protocol={"steady_from_step": 11})
    assert load_study(study).runs[0].steady_steps == 5 + 5


def test_an_attempt_counts_up_to_the_checkpoint_that_was_taken_up(study: Study) -> None:
    """It was told to stop after 9 steps, but that checkpoint was damaged, and the one after 6 was taken."""
    interrupted(study, "7", 0, 9, 8 * MS)
    ended(study, 8 * MS, *TWO)
    assert only(study).steady_steps == 5 + 5


def spoil(attempt: Path) -> None:
    file = steps_file(attempt, 1)
    file.write_bytes(file.read_bytes().replace(b"9000000", b"9000001", 1))


def cut_short(attempt: Path) -> None:
    """No word of its end, and two steps of its rows."""
    (attempt / "end.json").unlink()
    file = steps_file(attempt, 0)
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:3]))


def other_software(attempt: Path) -> None:
    write_json(attempt / "launch.json", {**json.loads((attempt / "launch.json").read_text()), "env_id": "env-2"})


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (spoil, f"rank 1: {POINT.label}/r1/8.0/ranks/00001.steps.csv does not match its checksum in end.json"),
        (cut_short, f"rank 0: {POINT.label}/r1/8.0/ranks/00000.steps.csv has 2 of 5 rows"),
        (shutil.rmtree, "launch.json is damaged or missing"),
        (other_software, "it ran with environment env-2, the run's last attempt with environment env-1"),
    ],
)
def test_what_is_lost_of_an_attempt_is_told(study: Study, damage: Any, why: str) -> None:
    damage(thrice(study)[1])
    records = load_study(study)
    run = records.runs[0]
    assert (run.state, run.steady_steps, run.restarts, run.lost_steps) == ("counts", 5 + 3, 2, 5)
    assert records.warnings == (f"{RUN}: steps 6 to 10 (attempt 8.0) are missing: {why}",)
    assert f"The times of {RUN} lack 5 steps whose records are lost." in find(records).notes
    assert [series.steps for run in exported(study).runs for series in run.series[:1]] == [(*range(6), *range(11, 15))]


HISTORIES: Sequence[tuple[Mapping[str, Any], str]] = [
    (history(("7.0", 0, 6), ("9.0", 11, 4)), "history goes on at step 11 after 6 steps"),
    (history(("7.0", 0, 6), ("8.0", 5, 6), ("9.0", 11, 4)), "history goes on at step 5 after 6 steps"),
    (history(("7.0", 0, 6), ("7.0", 6, 5), ("9.0", 11, 4)), "names what are no attempts"),
    (history(("../../7.0", 0, 11), ("9.0", 11, 4)), "names what are no attempts"),
    (history(("9.0", 0, 11), ("8.0", 11, 4)), "history continues after 9.0, which ended the run"),
    (history(("7.0", 0, 11), ("9.0", 11, 5)), "the rows of attempt 9.0 are not those of steps 11 to 15"),
    (history(("7.0", 0, 11), ("9.0", 11, 2**60)), "the rows of attempt 9.0 are not those of steps 11 to"),
    (history(("7.0", 0, 0), ("9.0", 0, 4)), "below 1"),
    ({"history": ["7.0"]}, "history[0] is '7.0', not a mapping"),
]


@pytest.mark.parametrize(("history", "why"), HISTORIES, ids=[why for _, why in HISTORIES])
def test_a_history_that_cannot_be_rejects(study: Study, history: Mapping[str, Any], why: str) -> None:
    end = thrice(study)[-1] / "end.json"
    write_json(end, {**json.loads(end.read_text()), **history})
    run = load_study(study).runs[0]
    assert run.state == "rejected"
    assert why in (run.reason or "")


def test_a_failed_gate_of_an_earlier_attempt_rejects(study: Study) -> None:
    thrice(study, gates=FAILED)
    run = only(study)
    assert (run.state, run.reason) == ("rejected", "check `equal steps`: attempt 7.0: rank 1 made 4 of 6 steps")


def test_what_attempts_know_is_put_together(study: Study) -> None:
    def telemetry(joules: float, foreign: float) -> dict[str, Any]:
        return {"energy_j_per_1000_samples": joules, "nodes": [{"host": "r000", "cpu_foreign_share": foreign}]}

    first = {"telemetry": telemetry(100.0, 0.3), "loss_first": 4.0}
    moved = {"host": "n9", "peak_memory_bytes": {"allocated": 9}}
    interrupted(study, "7", 0, 31, 8 * MS, gpu="A100", end=first, of_rank=moved)
    last = {"telemetry": telemetry(200.0, 0.1), "loss_first": 3.0}
    here = {"peak_memory_bytes": {"allocated": 7}}
    ended(study, 8 * MS, ("7.0", 0, 31), ("8.0", 31, 11), end=last, of_rank=here)
    run = only(study)
    assert (run.gpu, run.loss_first, run.loss_last, run.used.peak_memory_bytes) == ("A100 + V100", 4.0, 0.5, 9)
    assert run.used.energy_j_per_1000_samples == (100 * 30 + 200 * 10) / 40
    assert run.signals is not None
    assert run.signals.foreign == {"r000": 0.3}
    assert run.rank_map is not None
    assert run.rank_map.hosts == ("n9 + r000", "n9 + r001")


BUCKETS = [Bucket(size_bytes=4_000, ready_ns=3 * MS, done_ns=5 * MS), Bucket(size_bytes=100, ready_ns=4 * MS, done_ns=7 * MS)]
SHARES = {"forward": 0.25, "backward": 0.5, "comm_exposed": 0.125, "optimizer": 1 / 8}


def test_all_reduces_are_read_with_the_clocks_of_their_attempt(study: Study) -> None:
    """Rank 1's clock is 5 ms behind in one attempt and 2 s ahead in the next: the exchange is that of clocks that agree."""
    shared: dict[str, Any] = {"buckets": BUCKETS, "shares": SHARES}
    uninterrupted = write_study(study.folder.parent / "whole", [POINT])
    write_run(uninterrupted, POINT, Recorded(step_ns=8 * MS, steps=10, **shared))
    interrupted(study, "7", 0, 6, 8 * MS, clocks={1: -5 * MS}, **shared)
    ended(study, 8 * MS, *TWO, clocks={1: 2000 * MS}, **shared)
    one, two = only(uninterrupted).exchange, only(study).exchange
    assert one is not None
    assert two is not None
    assert (two.transfer_ns, two.hidden_ns, two.busy_ns) == (one.transfer_ns, one.hidden_ns, one.busy_ns)
    assert two.ranks.equals(one.ranks)
    assert two.buckets.equals(one.buckets)


def test_the_typical_step_is_read_where_it_was_made(study: Study) -> None:
    interrupted(study, "7", 0, 3, 8 * MS, buckets=BUCKETS, shares=SHARES)
    ended(study, 10 * MS, ("7.0", 0, 3), ("8.0", 3, 6), clocks={1: 3 * MS}, buckets=BUCKETS, shares=SHARES)
    timeline = only(study).timeline
    assert timeline is not None
    assert timeline.step == 4
    assert [rank.start_ns for rank in timeline.ranks] == [0, 0]
    assert [bucket.done_ns for bucket in timeline.buckets] == [5 * MS, 7 * MS]


def test_exported_times_do_not_span_a_restart(study: Study) -> None:
    hour = 3600 * 10**9
    interrupted(study, "7", 0, 6, 8 * MS, launch={"started_unix_ns": hour})
    ended(study, 8 * MS, *TWO, launch={"started_unix_ns": 3 * hour})
    (run,) = exported(study).runs
    (step_s, *_) = run.series
    assert step_s.steps == tuple(range(12))
    assert step_s.unix_s[5] == pytest.approx(3600 + 0.08 + 5 * 0.008)
    assert step_s.unix_s[6] == pytest.approx(3 * 3600 + 0.08)
    assert run.start_unix_s == 3600


def test_what_cannot_be_in_an_earlier_attempt_costs_its_steps(study: Study) -> None:
    interrupted(study, "7", 0, 6, 8 * MS, clocks={1: -172_800_000 * MS})
    ended(study, 8 * MS, *TWO)
    records = load_study(study)
    (run,) = records.runs
    assert (run.state, run.lost_steps) == ("counts", 6)
    assert any("steps 0 to 5 (attempt 7.0) are missing: rank 1: its clock's offset_ns" in note for note in records.warnings)


def test_attempts_are_merged() -> None:
    gpus = [
        GpuTelemetry(gpu=0, readings=n, power_w_mean=w, power_w_peak=w, energy_j=10.0 * n, throttle={"hw_slowdown": share})
        for n, w, share in ((30, 200.0, 0.2), (10, 300.0, 0.6))
    ]
    nodes = [
        NodeTelemetry(
            host="a", readings=gpu.readings, window_s=5.0, cpu_foreign_share=share, net_rx_bytes_per_s=rate, gpus=(gpu,)
        )
        for gpu, share, rate in zip(gpus, (0.1, 0.3), (100.0, 200.0), strict=True)
    ]
    other = NodeTelemetry(host="b", readings=3)
    merged, same = merged_nodes([*nodes, other])
    (gpu,) = merged.gpus
    assert same is other
    assert (merged.readings, merged.window_s, merged.cpu_foreign_share, merged.net_rx_bytes_per_s) == (40, 10.0, 0.3, 125.0)
    assert (gpu.readings, gpu.power_w_mean, gpu.power_w_peak, gpu.energy_j) == (40, 225.0, 300.0, 400.0)
    assert gpu.throttle == pytest.approx({"hw_slowdown": 0.3})


def times(samples: int, rate: float, processor_wait_s: float | None = 0.5) -> LoaderTimes:
    return LoaderTimes(
        workers=2,
        samples_per_s=rate,
        samples=samples,
        batches=samples // 10,
        read_s=4.0,
        compute_s=3.0,
        processor_wait_s=processor_wait_s,
        hand_over_s=1.0,
        receive_s=0.5,
    )


def test_times_of_loaders_add_up_and_rates_weigh_by_samples() -> None:
    """300 samples at 100/s and 100 at 50/s take 3 + 2 s: 80/s. What one does not know is not known."""
    found = merged_loader([times(300, 100.0), None, times(100, 50.0)])
    assert found is not None
    assert (found.samples_per_s, found.samples, found.batches, found.workers) == (80.0, 400, 40, 2)
    assert (found.read_s, found.compute_s, found.processor_wait_s, found.hand_over_s, found.receive_s) == (8, 6, 1, 2, 1)
    assert found.storage_wait_s == 1
    found = merged_loader([times(300, 100.0), times(100, 50.0, None)])
    assert found is not None
    assert (found.processor_wait_s, found.storage_wait_s) == (None, None)
    assert merged_loader([None]) is None
