"""What a user can mend is said in a sentence with a documented exit code, never as a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from hpcddp.cli import main
from hpcddp.core.errors import USAGE
from tests.commands.conftest import JOBS, Run, refused


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["init", "local-mnist", "-o", "no/such/x.yaml"], "no/such/x.yaml: No such file or directory"),
        (["render", "--cluster", "rcc", "-o", "no/such/job.sh"], "no/such/job.sh: No such file or directory"),
        (["render", str(JOBS / "rcc-bigmnist.yaml"), "-o", "file/scripts"], "file/scripts: Not a directory"),
    ],
)
def test_file_system_says_no(run: Run, tmp_path: Path, arguments: list[str], says: str) -> None:
    (tmp_path / "file").touch()
    result = run(*arguments)
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (1, says)


SWEEP = "schema: 1\ncluster: {cluster}\ndevice: cpu\nworkload: {{model: mnist-cnn, data: {{name: synthetic-mnist}}}}\n"


def test_cluster_file_is_found_beside_the_sweep(run: Run, tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "small.yaml").write_text(SWEEP.format(cluster="./mine.yaml"))
    profile = "schema: 1\nname: mine\ntitle: Mine\nnode_types: {a: {gpus: 1}}\ndefault_node_type: a\n"
    (tmp_path / "jobs" / "mine.yaml").write_text(profile)
    assert run("plan", "jobs/small.yaml").stdout.startswith("small on mine,")
    assert run("plan", "jobs/small.yaml", "--cluster", "./mine.yaml").exit_code == 2
    assert run("plan", "jobs/small.yaml", "--cluster", "jobs/mine.yaml").exit_code == 0


def test_sweep_without_a_cluster_takes_this_machines(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "small.yaml").write_text(SWEEP.format(cluster="null"))
    assert "HPCDDP_CLUSTER" in refused(run, "plan", "small.yaml")
    monkeypatch.setenv("HPCDDP_CLUSTER", "local")
    assert run("plan", "small.yaml").stdout.startswith("small on local,")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["submit", "small", "-y"], "small is not a folder, so no runs can go there"),
        (["plan", "empty.yaml"], "empty.yaml:7:7: `layout.gpus_per_node` has no values, so group `g` has no points"),
        (["render", "--cluster", "./mine.yaml"], "the profile of mine has no node types"),
    ],
)
def test_files_that_will_not_do(run: Run, tmp_path: Path, arguments: list[str], says: str) -> None:
    """A group whose axis is empty would leave the study unseen: it is refused, other groups or not."""
    (tmp_path / "small").write_text(SWEEP.format(cluster="local"))
    groups = "points:\n  f: {layout.gpus_per_node: [1]}\n  g: {layout.gpus_per_node: []}\n"
    (tmp_path / "empty.yaml").write_text(SWEEP.format(cluster="local") + groups)
    (tmp_path / "mine.yaml").write_text("schema: 1\nname: mine\ntitle: Mine\n")
    assert says in refused(run, *arguments)


def test_a_setting_that_groups_stand_above(run: Run, tmp_path: Path) -> None:
    groups = "points:\n  f: {layout.gpus_per_node: [1, 2]}\n  g: {layout.gpus_per_node: [2], measure.comm: [off, on]}\n"
    (tmp_path / "small.yaml").write_text(SWEEP.format(cluster="local") + groups)
    options = ("--set", "layout.gpus_per_node=4", "--set", "repeat=2", "--comm", "on")
    both = run("plan", "small.yaml", *options).stderr
    assert "! --set layout.gpus_per_node=4 has no effect in f, g: `points` sets layout.gpus_per_node there" in both
    assert "! --comm has no effect in g:" in both
    assert both.count("has no effect") == 2
    assert "--comm" not in run("plan", "small.yaml", *options, "--group", "f").stderr


@pytest.mark.parametrize(
    ("options", "says"),
    [
        # one of both would win without a word
        (["--nodes", "4", "--set", "layout.nodes=2"], "--nodes and --set layout.nodes=2 set the same key"),
        (["--gpus-per-node", "4", "--set", "layout.gpus_per_node=2"], "--gpus-per-node and --set layout.gpus_per_node=2"),
        (["--comm", "on", "--set", "measure.comm=off"], "--comm and --set measure.comm=off"),
        (["--profile-steps", "3", "--set", "measure.profile_steps=0"], "--profile-steps and --set measure.profile_steps=0"),
        # a key without its part
        (["--set", "batch_per_gpu=64"], "--set batch_per_gpu=64: not a key of a sweep; did you mean `workload.batch_per_gpu`?"),
        (["--set", "nodes=2"], "--set nodes=2: not a key of a sweep; did you mean `layout.nodes`?"),
        (["--set", "walltime_min=9"], "did you mean `slurm.walltime_min`?"),
        (["--set", "repet=2"], "did you mean `repeat`?"),
        (["--set", "repeat=x"], "--set repeat=x: "),
    ],
)
def test_settings_that_cannot_be(run: Run, options: list[str], says: str) -> None:
    assert says in refused(run, "render", "--cluster", "rcc", *options)


def test_runs_cannot_go_there(run: Run, tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(SWEEP.format(cluster="local"))
    (tmp_path / "file").touch()
    result = run("submit", "small.yaml", "-y", "--runs", "file/runs")
    assert (result.exit_code, "file/runs/small: no run can be recorded there (Not a directory). Choose" in result.stderr) == (
        1,
        True,
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["plan"], "Missing argument 'SWEEP'.\nRun `hpcddp plan -h` for help.\n"),
        (
            ["plan", "nosuch.yaml"],
            "Invalid value for 'SWEEP': File 'nosuch.yaml' does not exist.\nRun `hpcddp plan -h` for help.\n",
        ),
        (["bench", "comm", "--nodes", "0"], "Invalid value for '--nodes': 0 is not in the range x>=1.\n"),
        (["--nosuch"], "No such option"),
        (["nosuch"], "No such command 'nosuch'.\nRun `hpcddp -h` for help.\n"),
        (["render", "--cluster", "rcc", "--workload", "x"], "--workload x: write MODEL/DATA"),
    ],
)
def test_the_reason_comes_first(run: Run, arguments: list[str], says: str) -> None:
    result = CliRunner(env={"HPCDDP_CLUSTER": ""}).invoke(main, arguments, prog_name="hpcddp")
    assert result.exit_code == USAGE
    assert next(line for line in result.stderr.splitlines() if not line.startswith("! ")).startswith(says.splitlines()[0])
    assert says in result.stderr
    assert "Usage:" not in result.output


@pytest.mark.parametrize("arguments", [[], ["clusters"]])
def test_without_a_command_there_is_the_help(run: Run, arguments: list[str]) -> None:
    assert run(*arguments).output.startswith("Usage: ")


def test_many_refusals_of_one_kind_are_few_lines(run: Run, tmp_path: Path) -> None:
    nodes = ", ".join(map(str, range(100, 2100)))
    text = SWEEP.format(cluster="rcc") + "baselines: false\nlayout: {node_type: v100}\npoints: {a: {layout.nodes: [NODES]}}\n"
    (tmp_path / "many.yaml").write_text(text.replace("NODES", nodes))
    lines = run("plan", "many.yaml").stderr.splitlines()
    refused = [line for line in lines if not line.startswith("! ")]
    reasons = [line.partition(" requested")[0] for line in refused]
    assert reasons == ["rcc has 6 nodes of type v100 (gn[01-06]), and 100 are", "100 GPUs", "4800 cores"]
    assert all(line.endswith(" (and 1,999 more like it)") for line in refused)
    (tmp_path / "two.yaml").write_text(text.replace("NODES", "100, 101"))
    assert len([line for line in run("plan", "two.yaml").stderr.splitlines() if not line.startswith("! ")]) == 6


def test_many_points_that_were_added_are_counted(run: Run, tmp_path: Path) -> None:
    batches = ", ".join(map(str, range(1, 101)))
    points = f"points: {{a: {{layout.nodes: [2, 3], workload.batch_per_gpu: [{batches}]}}}}\n"
    (tmp_path / "many.yaml").write_text(SWEEP.format(cluster="rcc") + "layout: {node_type: v100, gpus_per_node: 2}\n" + points)
    assert "! 200 baselines are added for a. Set `baselines: false` to omit them.\n" in run("plan", "many.yaml").stderr


def test_an_unknown_command_is_compared_with_all(run: Run) -> None:
    refused = run("rendr")
    assert (refused.exit_code, refused.stderr.splitlines()[0]) == (2, "No such command 'rendr'. Did you mean 'render'?")
