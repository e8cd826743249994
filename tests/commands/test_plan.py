"""`hpcddp plan` and `hpcddp bench comm`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from hpcddp.sweep.disk_usage import BUCKET_ROW_BYTES, GPU_ROW_BYTES, NODE_ROW_BYTES, TRACE_STEP_BYTES
from tests import check_golden
from tests.commands.conftest import JOBS, Run, refused

SMALL = "schema: 1\ncluster: rcc\naccount: me\nworkload: {model: mnist-cnn, data: {name: synthetic-mnist}}\n"


def test_points_and_totals(run: Run) -> None:
    command = ("plan", JOBS / "rcc-bigmnist.yaml", "--group", "nodes")
    plain = json.loads(run(*command, "--format", "json").stdout)
    found = [(p["nodes"], p["ranks"], p["global_batch"], p["node_hours"]) for p in plain["points"]]
    assert found == [(1, 4, 2048, 2.0), (2, 8, 4096, 4.0), (4, 16, 8192, 8.0)]
    assert plain["totals"]["node_hours"] == 14.0
    assert plain["totals"]["files"] == sum(p["files"] for p in plain["points"])
    text = run(*command).stdout
    assert text.startswith("rcc-bigmnist on rcc, weak scaling")
    assert "3 points, 18 runs, at most 14.0 node hours" in text


def test_each_point_and_json_as_before_there_were_groups(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(JOBS.parent)
    check_golden("plans/rcc-bigmnist.points.txt", run("plan", "jobs/rcc-bigmnist.yaml", "--points").stdout)
    check_golden("plans/local-mnist.json", run("plan", JOBS / "local-mnist.yaml", "--format", "json").stdout)


SHOWN = ("cifar10-dataparallel", "local-mnist", "own-script", "rcc-bigmnist")
"""Sweeps of which the screen is a golden: zipped axes, no hours, baselines, node types."""


@pytest.mark.parametrize("sweep", sorted(JOBS.glob("*.yaml")), ids=lambda file: file.stem)
def test_the_screen_of_a_shipped_sweep(run: Run, sweep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(JOBS.parent)
    screen = run("plan", sweep.relative_to(JOBS.parent)).stdout
    assert max(map(len, screen.splitlines())) <= 80
    if sweep.stem in SHOWN:
        check_golden(f"plans/{sweep.stem}.txt", screen)
    assert max(map(len, run("submit", sweep, "--runs", "r", "--dry-run").stdout.splitlines())) <= 100


def test_a_group_has_what_it_would_submit_by_itself(run: Run) -> None:
    """Points of earlier groups too, and the baselines that it lacks."""
    sweep = JOBS / "marconi100-resnet50.yaml"
    screen = run("plan", sweep).stdout
    for name in ("in-node", "precision", "breakdown"):
        total = json.loads(run("plan", sweep, "--group", name, "--format", "json").stdout)["totals"]
        row = re.search(rf"^{name} .*  +(\d+) +(\d+) +([0-9.]+)$", screen, re.M)
        assert row is not None
        assert row.groups() == (str(total["points"]), str(total["runs"]), f"{total['node_hours']:.1f}")


GROUPS = """\
  nodes: {layout.nodes: [1, 2, 4], layout.gpus_per_node: [4]}
  many: {workload.optimizer.lr: [%s]}
  pairs: {zip: {workload.batch_per_gpu: [8, 16, 24], workload.optimizer.lr: [3, 2, 1]}, layout.nodes: [2, 1]}
  a-name-that-is-longer-than-any-column-for-names: {env.A_VARIABLE_OF_A_LIBRARY: [x, %s], layout.gpus_per_node: [1, 2]}
  six: {workload.optimizer.lr: [1, 2], workload.optimizer.momentum: [0, 0.9], workload.loader_workers_per_rank: [0, 2],
    workload.channels_last: [false, true], workload.precision: [fp32, fp16], layout.nodes: [1, 2, 4],
    exclude: [layout.nodes == 2 and workload.precision == fp16]}
  fixed: {workload.precision: [bf16], work: [epoch]}
"""


def test_what_varies_in_a_group(run: Run, tmp_path: Path) -> None:
    groups = GROUPS % (", ".join(str(i / 8) for i in range(1, 201)), "y" * 60)
    (tmp_path / "odd.yaml").write_text(f"{SMALL}baselines: false\npoints:\n{groups}")
    screen = run("plan", "odd.yaml").stdout
    assert max(map(len, screen.splitlines())) <= 100
    found = dict(re.findall(r"^(\S+) +(.*?) {2,}\d+ ", screen, re.M))
    assert found["nodes"] == "nodes 1, 2, 4 x 4 GPUs"
    assert found["many"] == "lr 0.125, 0.25, 0.375, 0.5, 0.625, 0.75,"
    assert found["a-name-that-is-"] == "A_VARIABLE_OF_A_LIBRARY x,"
    assert found["fixed"] == "1 GPU with precision bf16, work epoch"
    assert found["six"].startswith("precision fp32, fp16 x workers 0, 2 x")
    pairs = [line.split() for line in screen.partition("\npairs")[2].splitlines()[1:4]]
    assert pairs == [["8", "3.0", "1,", "2"], ["16", "2.0", "1,", "2"], ["24", "1.0", "1,", "2"]]
    (tmp_path / "none.yaml").write_text(SMALL)
    assert re.search(r"\nall +1 GPU +1 +1 +0.5\n", run("plan", "none.yaml").stdout)


def test_gpus_are_counted_beside_ranks(run: Run, tmp_path: Path) -> None:
    text = f"{SMALL}baselines: false\npoints: {{g: {{layout.gpus_per_node: [2, 4]}}}}\n"
    (tmp_path / "small.yaml").write_text(text)
    planned = run("plan", "small.yaml", "--points", "--set", "workload.parallel=data_parallel").stdout
    header, first, second = planned.splitlines()[1:4]
    columns = slice(header.index("GPUs"), header.index("ranks") + len("ranks"))
    assert [line[columns].split() for line in (first, second)] == [["2", "1"], ["4", "1"]]
    (tmp_path / "small.yaml").write_text(text.replace("baselines: false", "baselines: false\ndevice: cpu"))
    points = json.loads(run("plan", "small.yaml", "--format", "json").stdout)["points"]
    assert [(point["gpus"], point["ranks"]) for point in points] == [(None, 2), (None, 4)]


def test_what_speedups_are_relative_to(run: Run, tmp_path: Path) -> None:
    assert "6 runs of each point,\nrelative to 1 GPU and 1 node\n" in run("plan", JOBS / "rcc-bigmnist.yaml").stdout
    (tmp_path / "small.yaml").write_text(f"{SMALL}layout: {{gpus_per_node: 2}}\npoints: {{g: {{layout.nodes: [2, 4]}}}}\n")
    planned = run("plan", "small.yaml")
    assert planned.stdout.startswith("small on rcc, weak scaling (fixed batch per GPU), 1 run of each point, relative\nto 1 GPU")
    assert "! 2 baselines are added for g. Set `baselines: false` to omit them.\n" in planned.stderr
    plain = json.loads(run("plan", "small.yaml", "--format", "json").stdout)
    found = [(p["nodes"], p["ranks"], p["is_added"]) for p in plain["points"]]
    assert found == [(2, 4, False), (4, 8, False), (1, 1, True), (1, 2, True)]
    assert "2 baselines are added" in run("submit", "small.yaml", "--dry-run").stderr
    without = run("plan", "small.yaml", "--set", "baselines=false")
    assert ("relative to" in without.stdout, without.stderr) == (False, "")
    assert "2 runs to submit" in run("bench", "comm", "small.yaml", "--dry-run").stdout


def test_what_a_budget_does_not_hold_is_remarked_on(run: Run, tmp_path: Path) -> None:
    command = ("plan", JOBS / "rcc-bigmnist.yaml", "--group", "nodes")
    assert "at most 14.0 node hours, 56.0 GPU hours" in run(*command).stdout
    (tmp_path / "config" / "hpcddp").mkdir(parents=True)
    (tmp_path / "config" / "hpcddp" / "config.yaml").write_text("budget: {gpu_hours: 50}\n")
    says = "! These runs may take 14.0 node hours, 56.0 GPU hours, more than the budget of"
    assert f"{says} 50.0 GPU hours, so" in run(*command).stderr
    assert f"{says} 13.0 node hours, so" in run(*command, "--set", "budget.node_hours=13").stderr
    assert "budget" not in run(*command, "--set", "budget.node_hours=14").stderr


def test_the_mistake_of_the_2020_study_is_seen(run: Run, tmp_path: Path) -> None:
    """2 physical cores per rank on a node that has 8 per GPU is remarked on; a retired cluster as well."""
    result = run("plan", JOBS / "marconi100-resnet50.yaml", "--set", "layout.physical_cores_per_rank=2", "--group", "nodes")
    assert "layout.physical_cores_per_rank is 2" in result.stderr
    assert "8 physical cores per GPU" in result.stderr
    assert "marconi100 is retired" in result.stderr
    text = (JOBS / "marconi100-resnet50.yaml").read_text()
    text = re.sub(r"^points:.*", r"\g<0>\n  cores: {layout.physical_cores_per_rank: [8, 4, 2]}", text, flags=re.M)
    (tmp_path / "cores.yaml").write_text(text)
    stderr = run("plan", "cores.yaml", "--group", "cores").stderr
    assert stderr.count("physical cores per GPU") == 1
    assert "layout.physical_cores_per_rank is 2, 4, but a node of type ac922 has 8 physical cores per GPU" in stderr


def test_a_cpu_study_on_gpus_is_seen(run: Run) -> None:
    """Node hours of GPU nodes whose GPUs stand idle are not spent unasked: a sweep of a machine without GPUs, taken elsewhere."""
    arguments = (JOBS / "local-mnist.yaml", "--set", "workload.data.root=/data")
    assert "! device is cpu, so the GPUs of rcc's nodes are unused" in run("plan", *arguments, "--cluster", "rcc").stderr
    assert "are unused" not in run("plan", *arguments).stderr


def test_whatever_differs_has_a_column(run: Run, tmp_path: Path) -> None:
    sweep = "schema: 1\ncluster: local\ndevice: cpu\nworkload: {model: mnist-cnn, data: {name: synthetic-mnist}}\n"
    axes = "{workload.optimizer.lr: [0.1, 0.2], workload.loader_workers_per_rank: [0, 1], workload.channels_last: [false, true]}"
    (tmp_path / "small.yaml").write_text(f"{sweep}points: {{g: {axes}}}\n")
    for command in (("plan",), ("submit", "--dry-run")):
        lines = run(*command, "--points", "small.yaml").stdout.splitlines()
        header, *rows = (line.split() for line in lines if line.startswith("  "))
        columns = [header.index(title) for title in ("lr", "workers", "channels_last")]
        assert len({tuple(row[at] for at in columns) for row in rows}) == len(rows) == 8
    head, *lines = run("plan", JOBS / "rcc-bigmnist.yaml", "--points", "--group", "node-types").stdout.splitlines()[1:]
    assert "node type" in head
    assert {row.split()[1] for row in lines[:6]} == {"v100", "a40", "v100-sxm2"}
    assert "node type" not in run("plan", JOBS / "rcc-bigmnist.yaml", "--points", "--group", "nodes").stdout


def test_keys_of_one_last_word_have_a_column_each(run: Run, tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    text = "schema: 1\ncluster: local\ndevice: cpu\nworkload: {script: train.py, args: {steps: 5}}\n"
    text += "points: {g: {layout.gpus_per_node: [1], workload.args.steps: [5, 6], measure.steps: [10, 20]}}\n"
    (tmp_path / "own.yaml").write_text(text)
    _, head, first, *_ = run("plan", "--points", tmp_path / "own.yaml").stdout.splitlines()
    assert head.split()[:3] == ["point", "workload.args.steps", "measure.steps"]
    assert first.split()[1:3] == ["5", "10"]


def test_ways_of_measuring(run: Run) -> None:
    sweep, modes = JOBS / "rcc-bigmnist.yaml", ("--comm", "off", "--comm", "on", "--input", "full", "--input", "io")
    header, *rows = run("plan", sweep, "--points", "--group", "nodes", *modes).stdout.splitlines()[1:]
    assert header.split()[:4] == ["point", "input", "comm", "nodes"]
    of_a_size = [("full", "off"), ("full", "on"), ("io", "off")]
    assert [tuple(row.split()[1:3]) for row in rows[:9]] == of_a_size * 3
    plain = json.loads(run("plan", sweep, "--group", "nodes", "--profile-steps", 5, "--format", "json").stdout)
    one = json.loads(run("plan", sweep, "--group", "nodes", "--set", "measure.profile_steps=5", "--format", "json").stdout)
    assert plain == one
    assert plain["totals"]["points"] == 3


def test_what_measuring_costs_on_disk(run: Run) -> None:
    """The hook adds a file per rank and a row per bucket and step, telemetry two files a node, a profile a trace of rank 0."""

    def total(*options: object) -> tuple[int, int]:
        plain = json.loads(run("plan", JOBS / "rcc-bigmnist.yaml", *one, *options, "--format", "json").stdout)
        return plain["totals"]["files"], plain["totals"]["bytes"]

    one = ("--group", "nodes", "--where", "layout.nodes == 2", "--set", "repeat=1", "--set", "measure.steps=900")
    files, size = total()
    assert total("--comm", "on") == (files + 8, size + 8 * 2 * 1000 * BUCKET_ROW_BYTES)  # 1.7 MB: buckets of 1 and 25 MiB
    assert total("--profile-steps", 1) == (files + 1, size + TRACE_STEP_BYTES)
    readings = 2 * 20 * 60 * (NODE_ROW_BYTES + 4 * GPU_ROW_BYTES)
    assert total("--set", "measure.telemetry_hz=0") == (files - 4, size - readings)


def test_data_without_a_folder_are_remarked_on(run: Run, tmp_path: Path) -> None:
    result = run("plan", JOBS / "local-mnist.yaml")
    assert (result.exit_code, "Data `bigmnist` has no folder" in result.stderr) == (0, True)
    place = ("--set", f"workload.data.root={tmp_path}")
    assert f"no data `bigmnist` in {tmp_path}" in run("plan", JOBS / "local-mnist.yaml", *place).stderr
    (tmp_path / "bigmnist.json").write_text("{}")
    assert run("plan", JOBS / "local-mnist.yaml", *place).stderr == ""


def test_refusals_are_listed(run: Run) -> None:
    arguments = ("plan", JOBS / "marconi100-resnet50.yaml", "--set", "layout.nodes=17", "--group", "in-node")
    assert "17 nodes requested, at most 16" in refused(run, *arguments)
    assert run("plan", JOBS / "rcc-bigmnist.yaml", "--where", "layout.nodes == 99").exit_code == 2


SITE = """\
schema: 1
name: site
title: A site
default_node_type: a100
node_types:
  a100: {physical_cores: 32, gpus: 4, constraint: a100}
  v100: {physical_cores: 40, gpus: 4, constraint: v100, partition: old}
slurm:
  partitions: {main: {node_types: [a100]}, old: {node_types: [v100]}}
  qos: [{name: prod, automatic: true}]
"""


def test_partition_and_qos(run: Run, tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text(SITE)
    groups = "{g: {layout.nodes: [2, 4]}, o: {layout.node_type: [v100]}}"
    sweep = f"{SMALL}baselines: false\nlayout: {{gpus_per_node: 4}}\npoints: {groups}\n"
    (tmp_path / "s.yaml").write_text(sweep.replace("rcc", "./site.yaml"))
    assert "\nall points: partition main, QOS prod\n" in run("plan", "s.yaml", "--points", "--group", "g").stdout
    header, first, *_ = run("plan", "s.yaml", "--points").stdout.splitlines()[1:]
    assert "  partition  groups" in header
    assert first.endswith("  main       g")
    points = json.loads(run("plan", "s.yaml", "--format", "json").stdout)["points"]
    assert [(p["partition"], p["qos"]) for p in points] == [("main", "prod"), ("main", "prod"), ("old", "prod")]
    assert "\nall points: QOS prod\n" in run("submit", "s.yaml", "--points", "--dry-run").stdout
    assert ", partition main, QOS prod\n" in run("submit", "s.yaml", "--dry-run").stdout.replace("\n  ", " ")
    assert re.search(r"\no +4 GPUs with node type v100, cores/rank 10, +1 .*\n +partition old\n", run("plan", "s.yaml").stdout)


SWEEP = """
schema: 1
cluster: local
workload: {model: mnist-cnn, data: {name: bigmnist}}
points:
  ranks: {layout.gpus_per_node: [1, 2, 4]}
  batch: {layout.gpus_per_node: [2], workload.batch_per_gpu: [8, 16]}
device: cpu
repeat: 3
slurm: {walltime_min: 60}
"""


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    file = tmp_path / "small.yaml"
    file.write_text(SWEEP)
    return file


def test_each_layout_once_for_a_short_time(run: Run, sweep: Path, tmp_path: Path) -> None:
    result = run("bench", "comm", sweep, "--dry-run")
    assert result.exit_code == 0
    assert "2 runs to submit of 2 runs\nunder" in result.stdout
    assert [line[:12].strip() for line in result.stdout.splitlines()[1:3]] == ["n01-g2-com", "n01-g4-com"]
    assert result.stderr.splitlines() == ["! Layouts of a single rank are omitted: they have no communication."]
    only = run("bench", "comm", sweep, "--group", "batch", "--dry-run").stdout
    assert "1 run to submit of 1 run" in only
    arguments = ("--group", "nodes", "--where", "layout.nodes == 2", "--set", "slurm.walltime_min=600", "--dry-run")
    said = run("bench", "comm", JOBS / "rcc-bigmnist.yaml", *arguments).stdout
    assert "1 run to submit of 1 run, at most 0.5 node hours" in said
    said = run("bench", "comm", "--cluster", "rcc", "--nodes", 2, "--gpus-per-node", 3, "--set", "account=a", "--dry-run").stdout
    assert ("n02-g3-comm-" in said, f"under {tmp_path / 'bench-comm'}" in said) == (True, True)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--cluster", "local"], "a single rank has no communication: choose layouts of two or more ranks"),
        (["small.yaml", "--nodes", "2"], "--nodes cannot be used with a sweep file"),
        (["--cluster", "rcc", "--group", "nodes"], "--group and --where choose points of a sweep file"),
        (["--cluster", "rcc", "--nodes", "40"], "rcc has 6 nodes of type v100"),
    ],
)
def test_mistakes(run: Run, sweep: Path, arguments: list[str], says: str) -> None:
    assert says in refused(run, "bench", "comm", *arguments, "--dry-run")
