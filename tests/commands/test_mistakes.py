"""What a user can mend is said in a sentence with a documented exit code, never as a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from hpcddp.cli import main
from hpcddp.core.errors import USAGE
from tests.commands.conftest import JOBS, Run


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
    (tmp_path / "jobs" / "mine.yaml").write_text(
        "schema: 1\nname: mine\ntitle: Mine\nnode_types: {a: {gpus: 1}}\ndefault_node_type: a\n"
    )
    assert run("plan", "jobs/small.yaml").stdout.startswith("small on mine,")
    assert run("plan", "jobs/small.yaml", "--cluster", "./mine.yaml").exit_code == 2
    assert run("plan", "jobs/small.yaml", "--cluster", "jobs/mine.yaml").exit_code == 0


def test_sweep_without_a_cluster_takes_this_machines(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "small.yaml").write_text(SWEEP.format(cluster="null"))
    missing = run("plan", "small.yaml")
    assert (missing.exit_code, "HPCDDP_CLUSTER" in missing.stderr) == (2, True)
    monkeypatch.setenv("HPCDDP_CLUSTER", "local")
    assert run("plan", "small.yaml").stdout.startswith("small on local,")


def test_sweep_whose_runs_have_no_place(run: Run, tmp_path: Path) -> None:
    (tmp_path / "small").write_text(SWEEP.format(cluster="local"))
    result = run("submit", "small", "-y")
    assert result.exit_code == 2
    assert "small is not a folder, so no runs can go there" in result.stderr


def test_axis_without_values(run: Run, tmp_path: Path) -> None:
    """A group whose axis is empty would leave the study unseen, so it is refused by its place, other groups or not."""
    groups = "points:\n  f: {layout.gpus_per_node: [1]}\n  g: {layout.gpus_per_node: []}\n"
    (tmp_path / "small.yaml").write_text(SWEEP.format(cluster="local") + groups)
    result = run("plan", "small.yaml")
    says = "small.yaml:7:7: `layout.gpus_per_node` has no values, so group `g` has no points"
    assert (result.exit_code, says in result.stderr) == (2, True), result.stderr


def test_a_setting_that_groups_stand_above(run: Run, tmp_path: Path) -> None:
    groups = "points:\n  f: {layout.gpus_per_node: [1, 2]}\n  g: {layout.gpus_per_node: [2], measure.comm: [off, on]}\n"
    (tmp_path / "small.yaml").write_text(SWEEP.format(cluster="local") + groups)
    options = ("--set", "layout.gpus_per_node=4", "--set", "repeat=2", "--comm", "on")
    both = run("plan", "small.yaml", *options).stderr
    assert "! --set layout.gpus_per_node=4 changes nothing in f, g: values of layout.gpus_per_node in `points`" in both
    assert "! --comm changes nothing in g:" in both
    assert both.count("changes nothing") == 2
    assert "--comm" not in run("plan", "small.yaml", *options, "--group", "f").stderr


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--nodes", "4", "--set", "layout.nodes=2"], "--nodes and --set layout.nodes=2 are about the same key"),
        (["--gpus-per-node", "4", "--set", "layout.gpus_per_node=2"], "--gpus-per-node and --set layout.gpus_per_node=2"),
        (["--comm", "on", "--set", "measure.comm=off"], "--comm and --set measure.comm=off"),
        (["--profile-steps", "3", "--set", "measure.profile_steps=0"], "--profile-steps and --set measure.profile_steps=0"),
    ],
)
def test_a_flag_and_a_setting_of_one_key(run: Run, flags: list[str], says: str) -> None:
    """One would win without a word: refused."""
    result = run("render", "--cluster", "rcc", *flags)
    assert (result.exit_code, says in result.stderr, result.stdout) == (2, True, ""), result.output


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("batch_per_gpu=64", "--set batch_per_gpu=64: no key of a sweep; did you mean `workload.batch_per_gpu`?"),
        ("nodes=2", "--set nodes=2: no key of a sweep; did you mean `layout.nodes`?"),
        ("walltime_min=9", "did you mean `slurm.walltime_min`?"),
        ("repet=2", "did you mean `repeat`?"),
        ("repeat=x", "--set repeat=x: "),
    ],
)
def test_a_key_without_its_part_is_given_in_full(run: Run, setting: str, says: str) -> None:
    result = run("render", "--cluster", "rcc", "--set", setting)
    assert (result.exit_code, says in result.stderr) == (2, True), result.stderr


def test_profile_without_node_types(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("schema: 1\nname: mine\ntitle: Mine\n")
    result = run("render", "--cluster", "./mine.yaml")
    assert (result.exit_code, "the profile of mine names no node types" in result.stderr) == (2, True)


def test_runs_cannot_go_there(run: Run, tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(SWEEP.format(cluster="local"))
    (tmp_path / "file").touch()
    result = run("submit", "small.yaml", "-y", "--runs", "file/runs")
    assert (result.exit_code, "file/runs/small: runs cannot go there (Not a directory); give" in result.stderr) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["plan"], "Missing argument 'SWEEP'.\n(`hpcddp plan -h` explains)\n"),
        (["plan", "nosuch.yaml"], "Invalid value for 'SWEEP': File 'nosuch.yaml' does not exist.\n(`hpcddp plan -h` explains)\n"),
        (["bench", "comm", "--nodes", "0"], "Invalid value for '--nodes': 0 is not in the range x>=1.\n"),
        (["--nosuch"], "No such option"),
        (["nosuch"], "No such command 'nosuch'.\n(`hpcddp -h` explains)\n"),
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
    assert [line.partition(" asked for")[0] for line in refused] == [
        "rcc has 6 nodes of type v100 (gn[01-06]); 100",
        "100 GPUs",
        "4800 cores",
    ]
    assert all(line.endswith(" (and 1,999 more like it)") for line in refused)
    (tmp_path / "two.yaml").write_text(text.replace("NODES", "100, 101"))
    assert len([line for line in run("plan", "two.yaml").stderr.splitlines() if not line.startswith("! ")]) == 6


def test_many_points_that_were_added_are_counted(run: Run, tmp_path: Path) -> None:
    batches = ", ".join(map(str, range(1, 101)))
    points = f"points: {{a: {{layout.nodes: [2, 3], workload.batch_per_gpu: [{batches}]}}}}\n"
    (tmp_path / "many.yaml").write_text(SWEEP.format(cluster="rcc") + "layout: {node_type: v100, gpus_per_node: 2}\n" + points)
    (line,) = [line for line in run("plan", "many.yaml").stderr.splitlines() if "added to compare" in line]
    assert line.count("n01-g") == 4
    assert " and 196 more; `baselines: false` leaves them out" in line


def test_an_unknown_command_is_compared_with_all(run: Run) -> None:
    refused = run("rendr")
    assert (refused.exit_code, refused.stderr.splitlines()[0]) == (2, "No such command 'rendr'. Did you mean 'render'?")
