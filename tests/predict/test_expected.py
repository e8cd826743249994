"""What plan and submit expect of more nodes, from the records of those that were measured."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcddp.analysis.study.load import load_study
from hpcddp.cluster.profile_file import load_profile
from hpcddp.cluster.profile_names import profile_names
from hpcddp.core.catalog import gradient_buckets
from hpcddp.core.point import comm_point
from hpcddp.core.prediction import PredictedPoint, PredictionRecord
from hpcddp.core.records import write_json
from hpcddp.core.run_root import Study
from hpcddp.core.study_files import described
from hpcddp.predict.anchor import MeasuredRun, read_run
from hpcddp.predict.expected import Predictions, write_prediction
from hpcddp.predict.text import expected_text
from hpcddp.study.study_records import read_point, read_record
from hpcddp.sweep.expand import expand
from hpcddp.sweep.file import read_sweep
from tests import check_golden
from tests.analysis import synthetic
from tests.analysis.synthetic import FAILED, MS, Recorded, write_run, write_runs, write_study
from tests.commands.conftest import JOBS, Run, refused, run

__all__ = ["run"]  # a fixture

RECORDED = Path(__file__).parents[1] / "analysis" / "recorded" / "version-0.1.0.tar.gz"

SWEEP = """
schema: 1
cluster: marconi100
account: me
repeat: 2
workload: {model: resnet18, data: {name: synthetic-imagenet}, batch_per_gpu: 32, loader_workers_per_rank: 4}
points: {nodes: {layout.nodes: [1, 2, 4, 16], layout.gpus_per_node: [4]}}
measure: {warmup_steps: 1, steps: 5}
"""


def predictions_of(folder: Path, *settings: str) -> Predictions:
    folder.mkdir(exist_ok=True)
    file = folder / "small.yaml"
    file.write_text(SWEEP)
    source = read_sweep(file, settings)
    profile = load_profile(str(source.sweep.cluster))
    return Predictions(Study(folder / "small"), source, profile, expand(source, profile))


def measured(
    folder: Path, nodes: Sequence[int] = (1,), step_ms: Sequence[int] = (100, 102), *settings: str, **known: Any
) -> Predictions:
    """With runs of those nodes."""
    found = predictions_of(folder, *settings)
    points = [each.point for each in found.points]
    study = write_study(found.study.folder, points, 2)
    for point in points:
        if point.layout.nodes in nodes and point.layout.gpus_per_node == 4:
            write_runs(study, point, [step * MS for step in step_ms], **known)
    return found


def by_nodes(found: Predictions) -> dict[int, PredictedPoint]:
    return {each.point.layout.nodes: each.predicted for each in found.all()}


@pytest.mark.parametrize("study", ["recorded", "trained", "script"])
def test_rates_and_waits_are_those_of_the_analysis(tmp_path: Path, study: str) -> None:
    folder = {"recorded": unpacked, "trained": trained, "script": of_script}[study](tmp_path)
    runs = [each for each in load_study(folder).runs if each.state == "counts"]
    assert runs
    for each in runs:
        point = read_point(folder, each.label)
        assert point is not None
        found = read_run(folder, point, each.run)
        assert isinstance(found, MeasuredRun)
        assert found.samples_per_s == pytest.approx(float(each.rate_per_s or 0), rel=1e-12)
        waits, step_ns = (each.part_ns or {})["data_wait"], each.step_ns
        assert step_ns
        assert found.waits == pytest.approx((waits or 0) / step_ns, rel=1e-9)


def unpacked(folder: Path) -> Study:
    import tarfile

    with tarfile.open(RECORDED) as archive:
        archive.extractall(folder, filter="data")
    return Study(folder / "earlier")


def trained(folder: Path) -> Study:
    """A training whose warm-up ends in its first epoch: that one is not timed with_exchange."""
    point = synthetic.point(1, 2, work="train", epochs=3, batch_per_gpu=160_000, accumulate=1)
    study = write_study(folder / "trained", [point])
    rows = [(n, 4 * n, 4 * n * 320_000, n * MS, n * MS, 1, 320_000, 1, None, None, None) for n in (1, 2, 3)]
    recorded = Recorded(step_ns=lambda rank, step: (100 + 50 * (step % 4 == 0)) * MS, steps=11, epochs=rows)
    launch = {"data": {"name": "synthetic-imagenet", "samples": 1_281_167}}
    write_run(study, point, replace(recorded, launch=launch, protocol={"steady_from_step": 1}))
    return study


def of_script(folder: Path) -> Study:
    """Its last batch is smaller: rows count samples."""
    point = synthetic.point(1, 2)
    study = write_study(folder / "script", [point])
    write_run(study, point, Recorded(step_ns=100 * MS, samples=17, shares={"data_wait": 0.25, "forward": 0.25}))
    return study


def test_more_nodes_are_predicted_from_the_measured_one(tmp_path: Path) -> None:
    """101 ms a step; at 200 Gb/s an exchange of ResNet-18 hides but for its last bucket."""
    found = by_nodes(measured(tmp_path, shares={"data_wait": 0.1, "forward": 0.3, "backward": 0.5}))
    assert sorted(found) == [2, 4, 16]
    anchor = 4 * 32 / 0.101
    assert found[2].anchor_samples_per_s == pytest.approx(anchor, rel=1e-3)
    assert found[2].anchor_runs == (1, 2)
    assert [round((found[n].samples_per_s or 0) / n / anchor, 2) for n in (2, 4, 16)] == [0.97, 0.95, 0.91]
    assert {each.limit for each in found.values()} == {"input"}
    assert (found[2].network, found[2].network_from) == ("200 Gb/s", "profile")


def test_the_anchor_is_the_point_of_most_nodes_below(tmp_path: Path) -> None:
    found = by_nodes(measured(tmp_path, (1, 4)))
    assert {nodes: (each.anchor or "")[:3] for nodes, each in found.items()} == {2: "n01", 16: "n04"}


def test_runs_on_more_nodes_that_are_rejected_are_named(tmp_path: Path) -> None:
    measured(tmp_path, (1,))
    found = measured(tmp_path, (4,), gates=FAILED)
    assert {each.source.name[:3] for each in found.all() if each.source} == {"n01"}
    text = " ".join(expected_text(found, list(found.all())).split())
    assert "the runs on 4 nodes are rejected: check `equal steps`: rank 1 made 4 of 6 steps nodes samples/s" in text


def test_runs_of_other_software_or_gpus_are_no_anchor(tmp_path: Path) -> None:
    """The newest decide."""
    found = measured(tmp_path, (), end={"ended_unix_ns": 1})
    point = found.points[0].point
    for number, (env, step) in enumerate((("old", 50), ("new", 100)), start=1):
        end = {"ended_unix_ns": number}
        write_run(found.study, point, Recorded(step_ns=step * MS, env_id=env, end=end, job=f"9{number}"), number)
    assert by_nodes(found)[2].anchor_runs == (2,)


def test_throughput_is_that_of_runs_without_the_hook_and_buckets_those_recorded(tmp_path: Path) -> None:
    bucket = synthetic.Bucket(size_bytes=8 * 10**6, ready_ns=60 * MS, done_ns=61 * MS)
    found = measured(tmp_path, (1,), (100,))
    with_hook = predictions_of(tmp_path, "measure.comm=on")
    hooked = with_hook.points[0].point
    write_json(found.study.point_file(hooked.label), described(hooked))
    parts = {"forward": 0.25, "backward": 0.5, "optimizer": 0.25}
    write_run(found.study, hooked, Recorded(step_ns=104 * MS, buckets=[bucket], shares=parts, job="900"))
    assert by_nodes(found)[2].anchor_samples_per_s == pytest.approx(4 * 32 / 0.1)
    [recorded] = found.link(hooked).buckets
    assert recorded.size_bytes == 8e6
    assert recorded.ready == pytest.approx((60 - 26) / 52)


def test_no_number_and_why(tmp_path: Path) -> None:
    """Of a rejected anchor, of what the model does not fit, and nothing at all where nothing was measured."""
    reasons = {
        setting: no_number(tmp_path, setting) for setting in ("parallel=fsdp", "parallel=all_reduce", "ddp.compression=powersgd")
    }
    assert [reason.partition(":")[0] for reason in reasons.values()] == [
        "workload.parallel is fsdp",
        "workload.parallel is all_reduce",
        "workload.ddp.compression is powersgd",
    ]
    rejected = by_nodes(measured(tmp_path / "b", gates=FAILED))[2]
    assert (rejected.samples_per_s, rejected.high) == (None, None)
    assert rejected.reason == "the runs on 1 node are rejected: check `equal steps`: rank 1 made 4 of 6 steps"
    assert by_nodes(predictions_of(tmp_path))[16].reason == "no node of its kind is measured"
    few = by_nodes(measured(tmp_path / "c", (1,), (100,), "hold=global_batch", "workload.global_batch=256"))
    assert few[4].samples_per_s
    assert few[16].reason == "fewer samples per GPU than a quarter of the 64 of n01-g4-b64-" + (few[16].anchor or "")[-12:]


def no_number(folder: Path, setting: str) -> str:
    found = by_nodes(measured(folder / setting, (1,), (100,), f"workload.{setting}"))[2]
    assert (found.samples_per_s, found.high) == (None, None)
    return found.reason or ""


def test_without_the_exchange_a_number_is_an_upper_bound(tmp_path: Path) -> None:
    """It is linear scaling, or what the whole link leaves of it where TCP has an unknown share."""
    unknown = by_nodes(measured(tmp_path / "b", (1,), (100, 102), "workload.ddp.bucket_cap_mb=50"))[2]
    assert (unknown.samples_per_s, unknown.low) == (None, None)
    assert "the exchange is omitted" in (unknown.reason or "")
    assert unknown.high == pytest.approx(2 * (unknown.anchor_samples_per_s or 0))
    tcp = by_nodes(measured(tmp_path / "c", (1,), (100, 102), "cluster=aws-g5"))[2]
    assert tcp.samples_per_s is None
    assert "hpcddp bench comm" in (tcp.reason or "")
    last_s = 15.85e6 * 8 / 10e9  # the bucket with nothing left to hide it, at 10 Gb/s
    assert tcp.high == pytest.approx(2 * 32 * 4 / (0.101 + last_s), rel=1e-3)


def test_a_benchmark_of_collectives_stands_above_the_profile(tmp_path: Path) -> None:
    found = measured(tmp_path)
    bench = comm_point(found.points[1].point)
    study = write_study(found.study.folder, [*(each.point for each in found.points), bench])
    attempt = study.attempt_dir(bench.label, 1, "300", 0)
    write_run(study, bench, Recorded(step_ns=MS, job="300"))
    fit = {"latency_s": 1e-3, "bandwidth_bytes_per_s": 1e9}
    ops: dict[str, Any] = {"all_reduce": {"sizes": [], "not_supported": None, "fit": fit}}
    (attempt / "comm.json").write_text(json.dumps({"schema": 1, "backend": "nccl", "ops": ops}))
    two = by_nodes(Predictions(study, found.sweep, found.profile, found.points))[2]
    assert (two.network, two.network_from, two.limit) == ("1 GB/s", "bench comm on 2 nodes", "network")
    assert two.exposed_s == pytest.approx(16.85e-3, abs=2e-4)


def test_damaged_records_reject_a_run_and_end_nothing(tmp_path: Path) -> None:
    found = measured(tmp_path)
    file = next(found.study.folder.glob("n01*/r1/*/ranks/00001.steps.csv"))
    file.write_bytes(file.read_bytes()[:-20])
    assert by_nodes(found)[2].anchor_runs == (2,)
    for rows in found.study.folder.glob("n01*/r*/*/ranks/00000.steps.csv"):
        rows.write_bytes(b"\xff\xfe")
    reason = by_nodes(Predictions(found.study, found.sweep, found.profile, found.points))[2].reason
    assert "00000.steps.csv does not match its checksum in end.json" in (reason or "")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"shares": {"data_wait": 0.6, "forward": 0.6}}, "the parts of step 1 cannot be true"),
        ({"end": {"global_batch": 12_800}}, "its records are of another point or version"),
        ({"launch": {"gates": ["equal steps"]}}, "its records are of another point or version"),
        ({"end": {"history": [{"attempt": "7.0", "first_step": 0, "steps": 3}]}}, "several attempts made its steps"),
        ({"protocol": {"steady_from_step": 99}}, "it has no timed step"),
    ],
)
def test_what_analyze_rejects_or_only_it_reads_is_no_anchor(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    found = by_nodes(measured(tmp_path, (1,), (100,), **changes))[2]
    assert (found.samples_per_s, found.reason) == (
        None,
        f"the runs on 1 node are rejected: its records cannot be used: {says}",
    )


def test_a_pipe_among_the_records_is_not_waited_for(tmp_path: Path) -> None:
    found = measured(tmp_path, (1,), (100,))
    file = next(found.study.folder.glob("n01-g4*/r1/*/ranks/00001.steps.csv"))
    file.unlink()
    os.mkfifo(file)
    assert "00001.steps.csv is no file" in (by_nodes(found)[2].reason or "")


def test_a_script_whose_batch_only_it_knows_needs_samples_per_step(run: Run, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    text = SWEEP.replace(
        "{model: resnet18, data: {name: synthetic-imagenet}, batch_per_gpu: 32, loader_workers_per_rank: 4}", "{script: train.py}"
    )
    (tmp_path / "script.yaml").write_text(text)
    assert "Set workload.samples_per_step" in refused(run, "plan", "script.yaml", "--measured", "665@1x4")
    shown = run("plan", "script.yaml", "--measured", "665@1x4", "--set", "workload.samples_per_step=32").stdout
    assert "at most 1,330" in shown


def test_with_accumulate_gradients_travel_in_the_last_micro_batch(tmp_path: Path) -> None:
    point = predictions_of(tmp_path, "workload.accumulate=4").points[0].point
    assert [ready for _, ready in gradient_buckets(point.workload) or ()] == pytest.approx([0.7525, 0.8025, 1.0])


def test_a_prediction_is_never_written_again_once_a_run_began(tmp_path: Path) -> None:
    """What was expected before stays; what has no run yet follows what is known now."""
    found = measured(tmp_path)
    labels = {each.point.layout.nodes: each.point.label for each in found.points}
    write_prediction(found, begun={labels[1]})
    before = recorded(found.study)
    for folder in found.study.folder.glob("n*"):
        shutil.rmtree(folder)
    faster = measured(tmp_path, (1,), (50, 50))
    write_prediction(faster, begun={labels[1], labels[2]})
    after = recorded(found.study)
    assert after[labels[2]] == before[labels[2]]
    assert (after[labels[4]].samples_per_s or 0) > 1.9 * (before[labels[4]].samples_per_s or 0)
    found.study.prediction_file.write_text("{")
    write_prediction(faster, begun=set())
    assert found.study.prediction_file.read_text() == "{"


def recorded(study: Study) -> dict[str, PredictedPoint]:
    found = read_record(PredictionRecord, study.prediction_file)
    assert found is not None
    assert all(each.made_unix_s and each.version for each in found.points)
    return {each.label: each for each in found.points}


@pytest.mark.parametrize("cluster", profile_names())
def test_without_runs_there_is_the_network_line_or_a_reason(cluster: str) -> None:
    """Of every shipped sweep: no samples/s; the line of the exchange where rate and gradients are known."""
    profile = load_profile(cluster)
    for file in sorted(JOBS.glob("*.yaml")):
        source = read_sweep(file)
        points = expand(source, load_profile(str(source.sweep.cluster)))
        found = Predictions(Study(file.with_suffix("")), source, profile, points)
        text = re.sub(r"\s+", " ", expected_text(found, list(found.all())))
        wanted = list(found.wanted())
        assert "samples/s" not in text
        assert bool(text) == bool(wanted)
        known = [point for point in wanted if gradient_buckets(point.workload) and point.workload.parallel == "ddp"]
        only = "at least" if profile.fabric.protocol == "tcp" else "only"
        line = f"costs more than 5 % {only} where a step takes less than"
        assert (line in text) == bool(known and profile.fabric.gbps_per_node)
        if wanted and not profile.fabric.gbps_per_node and known:
            assert f"profile of {cluster} defines no rate between nodes" in text


def test_what_plan_shows(run: Run, tmp_path: Path) -> None:
    found = measured(tmp_path, shares={"data_wait": 0.1, "forward": 0.3, "backward": 0.5})
    check_golden("plans/expected.txt", run("plan", "small.yaml").stdout)
    anchor = found.points[0].point.label
    plain = json.loads(run("plan", "small.yaml", "--format", "json").stdout)["expected"]
    assert [(each["nodes"], each["anchor"], each["limit"]) for each in plain] == [(n, anchor, "input") for n in (2, 4, 16)]
    assert plain[0]["node_hours"] == pytest.approx(2 * 2 * plain[0]["run_s"] / 3600)


def test_a_run_that_takes_longer_than_its_limit_is_remarked_on(run: Run, tmp_path: Path) -> None:
    measured(tmp_path)
    says = "is expected to take 36 min, and slurm.walltime_min is 30. Set at least 38."
    assert says in run("plan", "small.yaml", "--set", "measure.steps=17000", "--measured", "1100@1x4").stderr


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("fast", "give samples/s above 0, of all GPUs together, and the layout, such as 665@1x4"),
        ("0@1x4", "give samples/s above 0"),
        ("665,5@1x4", "give samples/s above 0"),
        (",@1x4", "give samples/s above 0"),
        (f"{'9' * 400}@1x4", "give samples/s above 0"),
        ("665@1x2", "points on several nodes have 4 GPUs per node"),
        ("665@3x4", "no chosen point is 3 x 4 and also on more nodes"),
        ("665@16x4", "no chosen point is 16 x 4 and also on more nodes"),
    ],
)
def test_a_figure_from_elsewhere_that_is_none(run: Run, tmp_path: Path, given: str, says: str) -> None:
    predictions_of(tmp_path)
    assert says in refused(run, "plan", "small.yaml", "--measured", given)


def test_a_figure_from_elsewhere(run: Run) -> None:
    """The numbers of issue and thesis: 16 nodes reached 9,217."""
    command = ("plan", JOBS / "marconi100-resnet50.yaml", "--group", "nodes", "--measured", "665@1x4")
    shown = run(*command).stdout
    assert "expected, from --measured 665@1x4 (665 samples/s):" in shown
    assert re.search(r"^ +2 +1,300 +1,201-1,409 +98 % +unknown ", shown, re.M)
    several = refused(run, *command[:2], "--measured", "665@1x4")
    assert re.search(r"n01-g4-b32-\w+ \(precision\), .*Choose one with --group or --where", several)


def test_a_figure_from_elsewhere_is_of_nodes_with_so_many_gpus(run: Run, tmp_path: Path) -> None:
    """Beside a series of one GPU per node, and beside points that the model does not fit."""
    predictions_of(tmp_path)
    text = (tmp_path / "small.yaml").read_text().replace("[4]}}", "[1, 4]}, sharded: {workload.parallel: [ddp, fsdp], *SIZE}}")
    size = "layout.nodes: [1, 2], layout.gpus_per_node: [4]"
    (tmp_path / "small.yaml").write_text(text.replace("*SIZE", size))
    shown = run("plan", "small.yaml", "--measured", "665@1x4").stdout
    assert "expected, from --measured 665@1x4 (665 samples/s):" in shown
    assert re.search(r"^ +2 +1,29\d ", shown, re.M)


def test_sizes_of_the_sweep_are_where_nodes_stop_paying(run: Run, tmp_path: Path) -> None:
    """Not only the doubled ones that are looked at beyond it."""
    predictions_of(tmp_path)
    sweep = (tmp_path / "small.yaml").read_text().replace("[1, 2, 4, 16]", "[1, 3, 6]").replace("resnet18", "vgg11")
    (tmp_path / "small.yaml").write_text(sweep.replace("marconi100", "rcc"))
    shown = run("plan", "small.yaml", "--set", "workload.batch_per_gpu=64", "--measured", "3300@1x4").stdout
    assert "below 80 % from 3 nodes on" in shown


def test_a_choice_of_the_sweep_is_in_the_command_that_measures_a_node(run: Run) -> None:
    sweep = JOBS / "marconi100-resnet50.yaml"
    shown = run("plan", sweep, "--cluster", "marconi100", "--set", "account=a b", "--group", "nodes").stdout
    assert f"{sweep} --cluster marconi100 --set 'account=a b' --group nodes \\\n    --where 'layout.nodes == 1'\n" in shown


def test_plan_with_an_anchor_loads_nothing_heavy(tmp_path: Path) -> None:
    measured(tmp_path)
    code = (
        "import sys, hpcddp.cli; hpcddp.cli.main(['plan', 'small.yaml'], standalone_mode=False); "
        "print(sorted({'torch', 'pandas', 'matplotlib', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "expected, from n01-g4" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"
