"""`hpcddp render`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.commands.conftest import JOBS, Run, refused


def test_script_on_stdout_remarks_on_stderr(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")  # without Slurm
    result = run("render", "--cluster", "rcc", "--nodes", 4)
    assert result.exit_code == 0
    assert result.stdout.startswith("#!/bin/bash\n")
    assert result.stdout.endswith('exit "$rc"\n')
    assert "#SBATCH --gres=gpu:v100:4" in result.stdout
    assert "mnist-cnn on bigmnist" in result.stdout  # the cluster's own workload
    assert "--account" not in result.stdout
    assert "The node type is v100" in result.stderr
    assert "no account" in result.stderr
    assert "resnet50 on imagenet" in run("render", "--cluster", "marconi100").stdout
    result = run("render", "--cluster", "rcc", "--workload", "resnet18/cifar10")
    assert (result.exit_code, "Data `cifar10` has no folder" in result.stderr) == (0, True)


def test_flags(run: Run) -> None:
    result = run(
        *("render", "--cluster", "rcc", "--nodes", 2, "--gpus-per-node", 3, "--node-type", "a40"),
        *("--workload", "resnet18/synthetic-cifar10"),
        *("--set", "slurm.walltime_min=77", "--set", "account=abc", "-J", "--constraint=hdr", "-J", "--requeue"),
    )
    for line in ("--gres=gpu:a40:3", "--nodes=2", "--time=77", "--account=abc", "--constraint=hdr", "--requeue"):
        assert f"#SBATCH {line}\n" in result.stdout
    assert "resnet18 on synthetic-cifar10" in result.stdout
    assert result.stderr == ""


def test_cluster_and_account_from_the_environment(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "HPCDDP_CLUSTER" in refused(run, "render")
    for name, value in {"HPCDDP_CLUSTER": "rcc", "SBATCH_ACCOUNT": "mine", "SBATCH_QOS": "other"}.items():
        monkeypatch.setenv(name, value)
    result = run("render")
    assert ("on rcc" in result.stdout, "#SBATCH --account=mine" in result.stdout, "--qos" in result.stdout) == (True, True, False)
    assert ("SBATCH_ACCOUNT" in result.stderr, "SBATCH_QOS" in result.stderr) == (True, True)


def test_into_files_and_folders(run: Run, tmp_path: Path) -> None:
    """Several points need a folder; a slash at its end means one also where one point is left."""
    assert run("render", JOBS / "rcc-bigmnist.yaml").exit_code == 2
    assert run("render", JOBS / "rcc-bigmnist.yaml", "--group", "nodes", "-o", "scripts").exit_code == 0
    names = sorted(file.name[:6] for file in (tmp_path / "scripts").glob("*.sh"))
    assert names == ["n01-g4", "n02-g4", "n04-g4"]
    run("render", JOBS / "rcc-bigmnist.yaml", "--where", "layout.nodes == 3", "-o", "one/")
    assert [file.suffix for file in (tmp_path / "one").iterdir()] == [".sh"]
    run("render", "--cluster", "rcc", "-o", "job.sh")
    assert (tmp_path / "job.sh").read_text() == run("render", "--cluster", "rcc").stdout


def test_raw_options_stand_behind_the_sweeps_own(run: Run, tmp_path: Path) -> None:
    """-J adds to slurm.options, as it was typed, whatever quotes and backslashes are in it."""
    sweep = "schema: 1\nworkload: {model: mnist-cnn, data: {name: mnist}}\nslurm: {options: [--requeue]}\n"
    (tmp_path / "own.yaml").write_text(sweep)
    result = run("render", "own.yaml", "--cluster", "rcc", "-J", r"--comment=it's \d")
    assert result.exit_code == 0, result.stderr
    assert "#SBATCH --requeue\n#SBATCH --comment='it'\"'\"'s \\d'\n" in result.stdout


def test_run_root_of_the_settings_is_written_in_full(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config" / "hpcddp").mkdir(parents=True)
    (tmp_path / "config" / "hpcddp" / "config.yaml").write_text("run_root: $TEST_WORK/runs\n")
    assert "run_root is $TEST_WORK/runs" in refused(run, "render", "--cluster", "rcc")
    monkeypatch.setenv("TEST_WORK", "/w")
    assert "export HPCDDP_RUNS=${HPCDDP_RUNS:-/w/runs}\n" in run("render", "--cluster", "rcc").stdout


ON_RCC = ("--cluster", "rcc")
OWN = ("--", "python", "train.py")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cluster", "rc"], "no cluster `rc` in clusters/; did you mean `rcc`?"),
        ([*ON_RCC, "--nodes", "40"], "rcc has 6 nodes of type v100 (gn[01-06]), and 40 are requested"),
        ([*ON_RCC, "--node-type", "v10"], "did you mean `v100`"),
        ([*ON_RCC, "--workload", "resnet18"], "MODEL/DATA"),
        (["--cluster", "local"], "hpcddp submit"),
        ([*ON_RCC, "--where", "layout.nodes == 1"], "sweep file"),
        ([JOBS / "rcc-bigmnist.yaml", "-o", "config.sh"], "points go into a folder, and config.sh is a file"),
        ([JOBS / "rcc-bigmnist.yaml", "--nodes", "2"], "--nodes cannot be used with a sweep file"),
        ([*ON_RCC, "-J", "qos=dev"], "job option 'qos=dev'"),
        ([*ON_RCC, "-J", "-p=gpu"], "job option '-p=gpu'"),
        ([*ON_RCC, "-J", "--array=0-3"], "job option --array=0-3: hpcddp sets --array itself; each run is a job"),
        ([*ON_RCC, "--explain", "-o", "job.sh"], "--explain prints what is not a script"),
        ([*ON_RCC, "--format", "json"], "--format json is of --explain"),
        ([*ON_RCC, "--explain", "--comm", "on", "--comm", "off"], "2 points: --explain shows one"),
        ([*ON_RCC, "--"], "`--` needs a command after it"),
        ([JOBS / "rcc-bigmnist.yaml", *OWN], "a command after -- takes no sweep"),
        ([*ON_RCC, "--explain", *OWN], "or --explain: give"),
        ([*ON_RCC, "--", "python", "a\nb"], "contains a line break"),
        (["--cluster", "local", *OWN], "has no Slurm"),
    ],
)
def test_mistakes(run: Run, tmp_path: Path, arguments: list[object], message: str) -> None:
    (tmp_path / "config.sh").touch()
    assert message in refused(run, "render", *arguments)


@pytest.mark.dear
def test_explained_without_a_sweep_file(run: Run) -> None:
    command = ("render", "--cluster", "rcc", "--nodes", 2, "--set", "slurm.walltime_min=7")
    lines = json.loads(run(*command, "--explain", "--format", "json").stdout)
    assert [line["text"] for line in lines] == run(*command).stdout.splitlines()
    of = {line["text"]: (line["templates"][0]["block"], line["fields"]) for line in lines}
    assert of["#SBATCH --time=7"] == ("header", ["request.walltime_min"])
    assert of["#SBATCH --ntasks-per-node=4"] == ("header", ["request.tasks_per_node"])


TEMPLATE = '{% extends "base.sh.j2" %}\n{% block teardown %}\necho bye\n{% endblock %}\n'


def sweep_with(folder: Path, template: str) -> Path:
    """A sweep of one point with a template."""
    folder.mkdir(exist_ok=True)
    file = folder / "mine.yaml"
    workload = "{model: resnet18, data: {name: cifar10}}"
    file.write_text(f"schema: 1\ncluster: rcc\nworkload: {workload}\nslurm:\n  template: {template}\n")
    return file


def test_a_template_beside_the_sweep(run: Run, tmp_path: Path) -> None:
    file = sweep_with(tmp_path / "study", "own/t.sh.j2")
    (tmp_path / "study" / "own").mkdir()
    (tmp_path / "study" / "own" / "t.sh.j2").write_text(TEMPLATE)
    script = run("render", file, "--set", "baselines=false").stdout
    assert '\necho bye\nexit "$rc"\n' in script
    plain = run("render", file, "--set", "baselines=false", "--set", "slurm.template=null").stdout
    differing = {line for line in script.splitlines() if line not in plain.splitlines()}
    assert {line for line in differing if '"template"' not in line} == {"echo bye"}


@pytest.mark.parametrize(
    ("template", "complaint"),
    [("nosuch.j2", "`nosuch.j2` does not exist"), ("../t.sh.j2", "`../t.sh.j2` is outside"), ("link.j2", "is outside the")],
)
def test_a_sweeps_template_lies_with_the_sweep(run: Run, tmp_path: Path, template: str, complaint: str) -> None:
    """A sweep reads no file of its own choice, through a link neither; the line is named."""
    (tmp_path / "t.sh.j2").write_text(TEMPLATE)
    file = sweep_with(tmp_path / "study", template)
    (tmp_path / "study" / "link.j2").symlink_to(tmp_path / "t.sh.j2")
    words = refused(run, "render", file)
    assert (f"{file}:5:3: slurm.template: " in words, complaint in words) == (True, True), words


def test_a_command_of_ones_own(run: Run) -> None:
    result = run("render", "--cluster", "marconi100", "--nodes", 2, "--", "python", "train.py", "--name", "a b")
    assert result.exit_code == 0
    assert "#SBATCH --job-name=train\n" in result.stdout
    assert "#SBATCH --gres=gpu:4\n" in result.stdout
    assert "\n  python train.py --name 'a b'\nrc=$?" in result.stdout
    assert "  export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID GROUP_RANK=$SLURM_NODEID\n" in result.stdout
    assert "  export WORLD_SIZE=$SLURM_STEP_NUM_TASKS LOCAL_WORLD_SIZE=$SLURM_NTASKS_PER_NODE\n" in result.stdout
    assert "HPCDDP_SPEC" not in result.stdout
    assert "export HPCDDP_CLUSTER=marconi100\n" in result.stdout
    layout = ("--nodes", 2, "--set", "layout.launcher=torchrun")
    text = run("render", "--cluster", "marconi100", *layout, "--", "torchrun", "train.py").stdout
    assert "PET_NNODES=$SLURM_STEP_NUM_NODES PET_NPROC_PER_NODE=4" in text
    assert "#SBATCH --ntasks-per-node=1\n" in text
    assert "LOCAL_RANK" not in text
