"""From buckets to tables: runs with and without the communication hook, limits of trainer and loader, stragglers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from hpcddp.analysis import StudyResult, analyze
from hpcddp.analysis.study.load import load_study
from hpcddp.core.records import buckets_file, write_json
from tests.analysis.synthetic import MS, Bucket, Recorded, point, write_run, write_runs, write_study

pytestmark = pytest.mark.usefixtures("undrawn")

SHARES = {"forward": 0.3, "backward": 0.2, "comm_exposed": 0.4, "optimizer": 0.1, "h2d_hidden": 0.05}
"""Of a step of 100 ms: communication is exposed from 50 to 90."""


def late(rank: int) -> Bucket:
    """Ready at 40 ms; rank 1's at 60. All-reduced at 85."""
    return Bucket(size_bytes=25_000_000, ready_ns=(60 if rank == 1 else 40) * MS, done_ns=85 * MS)


def hooked(**changes: Any) -> Recorded:
    return Recorded(**{"step_ns": 100 * MS, "shares": SHARES, "buckets": [late], **changes})


def one(root: Path) -> StudyResult:
    (result,) = analyze(root)
    return result


@pytest.fixture
def both(tmp_path: Path) -> tuple[Path, StudyResult]:
    """Two GPUs, with the hook and without; one GPU without."""
    plain, with_hook = point(1, 2), point(1, 2, comm="on")
    study = write_study(tmp_path / "s", [point(1, 1), plain, with_hook])
    write_run(study, point(1, 1), Recorded(step_ns=80 * MS))
    write_run(study, plain, Recorded(step_ns=96 * MS))
    write_run(study, with_hook, hooked(clocks={1: 7 * MS}))
    return tmp_path / "s/report", one(tmp_path)


def test_points_with_and_without_the_hook_are_one_row(both: tuple[Path, StudyResult]) -> None:
    """Throughput and speedup are of the run without the hook, parts of the one with it; both steps are there."""
    row = pd.read_csv(both[0] / "scaling.csv").iloc[1]
    assert (row["label"], row["n"], row["hook"]) == (point(1, 2).label, 1, False)
    assert (row["step_s"], row["step_hook_s"]) == (0.096, 0.1)
    assert row["speedup_1gpu"] == pytest.approx(2 * 80 / 96)
    parts = pd.read_csv(both[0] / "breakdown.csv").iloc[1]
    assert (parts["breakdown_label"], parts["breakdown_n"]) == (point(1, 2, comm="on").label, 1)
    assert parts["forward_s"] == 0.03
    assert pd.isna(parts["unaccounted_s"])


def test_exposed_communication_is_split(both: tuple[Path, StudyResult]) -> None:
    """The bucket travels from 60 to 85 of 50 to 90: rank 0 waits 10 ms for rank 1, which waits for nobody; rank 1's clock, 7 ms
    behind, does not matter. 25 MB in 25 ms are 1 GB/s.
    """
    row = pd.read_csv(both[0] / "breakdown.csv").iloc[1]
    assert (row["transfer_s"], row["peer_wait_s"], row["comm_hidden_s"]) == (0.035, 0.005, 0.0)
    assert (row["comm_exposed_s"], row["h2d_hidden_s"], row["comm_overlap"]) == (0.04, 0.005, 0.0)
    assert (row["step_bytes"], row["algbw_bytes_per_s"], row["busbw_bytes_per_s"]) == (25e6, 1e9, 1e9)
    assert pd.read_csv(both[0] / "breakdown.csv").iloc[0][["transfer_s", "peer_wait_s", "step_hook_s"]].isna().all()


def test_steps_without_bucket_rows_say_nothing_of_the_exchange(tmp_path: Path) -> None:
    """Recorded of two timed steps out of five: the figures are theirs, not those of five of which three exchanged nothing."""
    where = point(1, 2, comm="on")
    found = []
    for name, steps in (("all", None), ("some", (2, 5))):
        study = write_study(tmp_path / name, [where])
        write_run(study, where, hooked(bucket_steps=steps))
        found.append(load_study(study).runs[0].exchange)
    every, some = found
    assert every is not None
    assert some is not None
    assert (some.step_bytes, some.peer_wait_ns, some.busy_ns) == (25_000_000, 5 * MS, 25 * MS)
    assert (some.transfer_ns, some.hidden_ns) == (every.transfer_ns, every.hidden_ns)


def test_tables_show_both_steps_and_the_split(both: tuple[Path, StudyResult]) -> None:
    """Within 105 columns; what was not split is `comm`, what was is not."""
    assert "96.0      100" in both[1].text
    assert "  MB/step  hidden ms  transfer ms  peer wait ms  overlap  alg GB/s  bus GB/s\n         1 x 2     25.0" in both[1].text
    assert max(len(line) for line in both[1].text.splitlines() if not line.startswith("report:")) <= 105


def test_who_is_waited_for_is_named(both: tuple[Path, StudyResult]) -> None:
    """Rank 1 is the last at every all-reduce and costs rank 0 10 ms of 100."""
    rows = pd.read_csv(both[0] / "stragglers.csv")
    assert rows[["rank", "host", "last", "slack_s", "peer_wait_s"]].to_numpy().tolist() == [
        [0, "r000", 0.0, 0.02, 0.01],
        [1, "r001", 1.0, 0.0, 0.0],
    ]
    label = point(1, 2, comm="on").label
    (found,) = [verdict for verdict in both[1].plain["verdicts"] if verdict["name"] == "straggler"]
    assert (found["where"], found["runs"]) == ("on rank 1 on r001", [f"r1 of {label}"])
    assert found["evidence"] == (
        f"it was the last to be ready at 100 % of the all-reduces of r1 of {label}: "
        f"the others waited 10.0 ms per step for it (10 % of the step, which would be up to 11 % faster without)"
    )


def test_buckets_one_by_one(both: tuple[Path, StudyResult]) -> None:
    """On NCCL each has a time of its own."""
    (row,) = pd.read_csv(both[0] / "buckets.csv").to_dict("records")
    assert (row["bucket"], row["bytes"], row["slack_s"], row["own_s"]) == (0, 25_000_000, 0.02, 0.025)


def test_on_gloo_a_bucket_has_no_time_of_its_own(tmp_path: Path) -> None:
    """Two travel at a time."""
    what = point(1, 2, comm="on", device="cpu")
    write_run(write_study(tmp_path / "s", [what]), what, hooked(gpu=None))
    one(tmp_path)
    assert (
        pd.read_csv(tmp_path / "s/report/buckets.csv")[["own_s", "algbw_bytes_per_s", "busbw_bytes_per_s"]].isna().all(axis=None)
    )


def test_without_a_run_without_the_hook_its_throughput_is_shown(tmp_path: Path) -> None:
    """And a note says so."""
    what = point(1, 2, comm="on")
    write_run(write_study(tmp_path / "s", [what]), what, hooked())
    result = one(tmp_path)
    assert result.plain["points"][0]["samples_per_s"] == 640.0
    assert (
        "throughput of every row is of runs with the communication hook; add `measure.comm: off` for runs without it"
        in result.plain["notes"]
    )


def test_steps_with_the_hook_that_are_unlike_those_without_are_noted(tmp_path: Path) -> None:
    """100 ms against 90: more than 5 %."""
    plain, with_hook = point(1, 2), point(1, 2, comm="on")
    study = write_study(tmp_path / "s", [plain, with_hook])
    write_run(study, plain, Recorded(step_ns=90 * MS))
    write_run(study, with_hook, hooked())
    wanted = f"with the communication hook the step of {with_hook.label} lasts 100 ms instead of 90.0"
    assert any(note.startswith(wanted) for note in one(tmp_path).plain["notes"])


@pytest.mark.dear
@pytest.mark.usefixtures("drawn")
def test_where_clocks_are_not_known_transfer_and_waiting_are_not_either(tmp_path: Path) -> None:
    """Nor what is hidden, bandwidth, and who is waited for. What is exposed in all, bytes and their number are."""
    what = point(1, 2, comm="on")
    attempt = write_run(write_study(tmp_path / "s", [what]), what, hooked())
    end = json.loads((attempt / "end.json").read_text())
    end["ranks"][1]["clock"] = {"start": None, "end": None}
    write_json(attempt / "end.json", end)
    result = one(tmp_path)
    (row,) = result.plain["points"]
    unknown = [f"{name}_mean_s" for name in ("transfer", "peer_wait", "comm_hidden", "comm_busy")]
    assert [row[name] for name in (*unknown, "comm_overlap", "busbw_bytes_per_s")] == [None] * 6
    assert row["comm_exposed_mean_s"] > 0
    assert row["step_bytes"] > 0
    assert any("clock offsets between ranks are not known: transfer, waiting" in note for note in result.plain["notes"])
    buckets = pd.read_csv(tmp_path / "s/report/buckets.csv")
    assert buckets["bytes"].notna().all()
    assert buckets["slack_s"].isna().all()
    assert not (tmp_path / "s/report/stragglers.csv").exists()
    assert re.search(r"1 x 2 +25\.0( +-){6}", result.text)


def test_clocks_that_are_badly_known_are_noted(tmp_path: Path) -> None:
    """Worse than 2 % of the step."""
    what = point(1, 2, comm="on")
    attempt = write_run(write_study(tmp_path / "s", [what]), what, hooked())
    end = json.loads((attempt / "end.json").read_text())
    end["ranks"][1]["clock"]["end"]["error_ns"] = 3 * MS
    write_json(attempt / "end.json", end)
    assert any(
        note.startswith("clocks of ranks are known to 3.00 ms only in 1 of 1 runs") for note in one(tmp_path).plain["notes"]
    )


@pytest.mark.parametrize("closes", [True, False])
def test_what_the_cross_check_found_is_said(tmp_path: Path, closes: bool) -> None:
    """By name where its views do not agree; once for all runs where they do."""
    checked = point(1, 2, comm="check")
    study = write_study(tmp_path / "s", [checked])
    sentence = "the views agree" if closes else "the views of the exchange do not agree: do not rely on this run's breakdown"
    write_run(study, checked, hooked(end={"comm_check": {"closes": closes, "sentence": sentence}}))
    said = [note for note in one(tmp_path).plain["notes"] if "cross-check" in note or "views" in note]
    agree = "cross-check of communication: step clock, difference and profiler agree in 1 of 1 runs"
    assert said == [agree if closes else f"r1 of {checked.label}: {sentence}"]


def test_damaged_bucket_rows_reject(tmp_path: Path) -> None:
    """As step rows do."""
    what = point(1, 2, comm="on")
    study = write_study(tmp_path / "s", [what])
    file = buckets_file(write_run(study, what, hooked()), 1)
    file.write_bytes(file.read_bytes().replace(b"25000000", b"25000001", 1))
    (run,) = load_study(study).runs
    assert run.reason == f"rank 1: {what.label}/r1/100.0/ranks/00001.buckets.csv does not match its checksum in end.json"


def test_ranks_that_exchange_other_buckets_reject(tmp_path: Path) -> None:
    """A rank whose bucket is smaller did not train the same model."""
    what = point(1, 2, comm="on")
    study = write_study(tmp_path / "s", [what])
    write_run(study, what, hooked(buckets=[lambda rank: Bucket(size_bytes=8 + rank, ready_ns=1, done_ns=2)]))
    (run,) = load_study(study).runs
    assert run.reason == "rank 1 exchanged other buckets than rank 0 (6 and 6 rows)"


def test_profiled_and_evaluated_runs_are_pooled_with_others(tmp_path: Path) -> None:
    """Both happen after the timed steps: one row, two runs, both labels."""
    points = [point(1, 1), point(1, 1, profile_steps=5)]
    study = write_study(tmp_path / "s", points)
    for each in points:
        write_run(study, each, Recorded(step_ns=MS))
    (row,) = one(tmp_path).plain["points"]
    assert (row["n"], row["label"]) == (2, " + ".join(sorted(each.label for each in points)))


def test_limits_stand_beside_full_training(tmp_path: Path) -> None:
    """Samples/s with all input, with a resident batch, and with loading alone; other tables show full training only."""
    points = {point(1, 1): 64, point(1, 1, input="synthetic"): 32, point(1, 1, input="io"): 16, point(1, 2): 64}
    study = write_study(tmp_path / "s", list(points))
    for each, step_ms in points.items():
        write_run(study, each, Recorded(step_ns=step_ms * MS))
    result = one(tmp_path)
    assert result.plain["limits"] == [
        {"series": "", "nodes": 1, "gpus_per_node": 1, "device": "cuda", "full": 500.0, "synthetic": 1000.0, "io": 2000.0}
    ]
    assert (
        "  nodes x GPUs  full  trainer's limit  loader's limit\n         1 x 1   500            1 000           2 000"
        in result.text
    )
    assert result.text.count("1 x 1") == 2
    assert len(pd.read_csv(tmp_path / "s/report/scaling.csv")) == 4
    assert result.plain["sentences"][0].startswith("2 GPUs train about 2.0 times as fast as one GPU (100 % efficiency);")


def test_one_input_has_no_limits_beside_it(tmp_path: Path) -> None:
    """A study of the loader alone is shown as any other."""
    what = point(1, 2, input="io")
    write_run(write_study(tmp_path / "s", [what]), what, Recorded(step_ns=MS))
    result = one(tmp_path)
    assert result.plain["limits"] == []
    assert result.plain["sentences"][0].startswith("2 GPUs load about 64 000 samples/s;")


def test_scaling_counts_gpus_not_processes(tmp_path: Path) -> None:
    """DataParallel: one process with four GPUs, a series of its own, against its one GPU."""
    points = [point(1, gpus, parallel=parallel) for parallel in ("ddp", "data_parallel") for gpus in (1, 4)]
    study = write_study(tmp_path / "s", points)
    for each in points:
        write_runs(study, each, [each.gpus * (50 if each.workload.parallel == "ddp" else 100) * MS])
    rows = {(row["series"], row["gpus"]): row for row in one(tmp_path).plain["points"]}
    assert rows["parallel data_parallel", 4]["ranks"] == 1
    assert rows["parallel data_parallel", 4]["efficiency_1gpu"] == 0.25
    assert rows["parallel ddp", 4]["ranks"] == 4


def test_what_a_run_says_of_its_protocol_is_kept(tmp_path: Path) -> None:
    """What stopped it and where it saw the end of the warm-up; steps before it do not count."""
    what = point(1, 1)
    protocol = {"stopped_by": "interval", "warmup_detected_steps": 3, "steady_from_step": 4}
    recorded = Recorded(step_ns=lambda rank, step: (9 if step < 4 else 8) * MS, protocol=protocol)
    write_run(write_study(tmp_path / "s", [what]), what, recorded)
    one(tmp_path)
    (row,) = pd.read_csv(tmp_path / "s/report/runs.csv").to_dict("records")
    assert (row["stopped_by"], row["warmup_detected_steps"], row["steady_steps"], row["step_s"]) == ("interval", 3, 2, 0.008)


def test_a_run_that_varies_says_how_well_it_is_known(tmp_path: Path) -> None:
    """Forty steps from 80 to 120 ms, in no order: far from 2 %."""
    what = point(1, 1)
    write_run(
        write_study(tmp_path / "s", [what]), what, Recorded(step_ns=lambda rank, step: (80 + 17 * step**2 % 41) * MS, steps=40)
    )
    (found,) = one(tmp_path).plain["verdicts"]
    assert found["name"] == "too few steps"
    assert found["evidence"].startswith("with 40 timed steps the mean of ")


@pytest.mark.dear
def test_a_rank_alone_waits_for_nobody(tmp_path: Path) -> None:
    """With the hook its step has parts, as any other; there is no straggler, and no gradients that travel."""
    single, pair = point(1, 1, comm="on"), point(1, 2, comm="on")
    study = write_study(tmp_path / "s", [single, pair])
    write_run(study, single, hooked())
    result = one(tmp_path)
    assert "straggler" not in result.text
    assert "how gradients travel" not in result.text
    write_run(study, pair, hooked())
    _, _, table = one(tmp_path).text.partition("how gradients travel")
    assert ("1 x 2" in table, "1 x 1" in table) == (True, False)


@pytest.mark.dear
def test_what_tells_series_apart_is_above_them_where_tables_get_too_wide(tmp_path: Path) -> None:
    """Once per series; in columns where there is room."""
    workloads: list[dict[str, Any]] = [
        {},
        {"model": "my_package.models:build"},
        {"precision": "bf16"},
        {"loader_workers_per_rank": 16},
    ]
    points = [point(nodes, 1, comm=comm, **each) for each in workloads for nodes in (1, 16) for comm in ("off", "on")]
    study = write_study(tmp_path / "s", points)
    for each in points:
        write_run(study, each, hooked() if each.measure.comm == "on" else Recorded(step_ns=100 * MS))
    tables = one(tmp_path).text.partition("gates ")[2].splitlines()
    assert max(map(len, (line for line in tables if not line.startswith("report")))) <= 105
    (head,) = (i for i, line in enumerate(tables) if "hook ms" in line)
    assert [line.split()[0] for line in tables[head + 1 : head + 13]] == 4 * ["workers", "1", "16"]
    assert tables[head + 1].split() == ["workers", "2,", "model", "my_package.models:build,", "precision", "fp32"]
