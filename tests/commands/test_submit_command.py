"""`hpcddp submit -- COMMAND` and a script's own samples, as a user runs them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from tests.commands.conftest import Run, refused
from tests.fake_slurm import NEWEST_NAME, Say, at_once, calls, stand_ins

LAYOUT = ("--cluster", "rcc", "--nodes", "2", "--gpus-per-node", "2", "--set", "account=proj")
COMMAND = ("--", "python", "train.py", "--lr", "0.1")

SITE = """\
schema: 1
name: site
title: A cluster whose environment is a venv
default_node_type: a100
node_types: {a100: {count: 8, physical_cores: 64, memory_mb: 480000, gpus: 4, gres_type: a100}}
slurm: {partition: gpu, gpu_request: gres}
compute: {kind: venv, python: $WORK/venv/bin/python}
"""

NO_SUCH_JOB = 'case "$*" in *" -j "*) echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1;; esac'
NO_ACCOUNTING = 'echo "Slurm accounting storage is disabled" >&2; exit 1'
AWAY = 'echo "Unable to contact slurm controller" >&2; exit 1'

Submit = Callable[..., Result]


@pytest.fixture
def say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Say:
    """sbatch queues job 7; nothing else is known of."""
    at_once(monkeypatch)
    say = stand_ins(tmp_path, monkeypatch, ("srun", "squeue", "sacct", "sacctmgr", "scontrol"), "exit 0")
    say("sbatch", "echo 'Submitted batch job 7'")
    return say


@pytest.fixture
def submit(run: Run, say: Say) -> Submit:
    return lambda *options: run("submit", *LAYOUT, *options, *COMMAND)


def test_the_script_is_as_rendered(run: Run, submit: Submit, tmp_path: Path) -> None:
    result = submit("-y")
    assert result.exit_code == 0, result.output
    (folder,) = (tmp_path / "jobs" / "commands").iterdir()
    assert (folder / "job.sbatch").read_text() == run("render", *LAYOUT, *COMMAND).stdout
    (call,) = calls(tmp_path, "sbatch")
    assert f"--job-name={folder.name} --output={folder}/job.log --chdir={tmp_path} {folder}/job.sbatch" in call
    assert result.stdout.splitlines() == [
        "1 job on rcc: 2 nodes x 2 ranks, partition gpu, at most 1.0 node hours, 2.0 GPU hours",
        "submitted    1 job    7",
        f"script       jobs/commands/{folder.name}/job.sbatch",
        f"output       jobs/commands/{folder.name}/job.log",
    ]
    assert f"squeue -j 7; tail -F jobs/commands/{folder.name}/job.log; scancel 7\n" in result.stderr


def test_each_submission_is_a_job(submit: Submit, tmp_path: Path) -> None:
    """A command has no records that say whether it is done: who submits it twice wants two jobs, told apart by their names."""
    assert [submit("-y").exit_code, submit("-y").exit_code] == [0, 0]
    assert len({call.split()[1] for call in calls(tmp_path, "sbatch")}) == 2


def test_a_refusal_has_its_next_step(submit: Submit, say: Say, tmp_path: Path) -> None:
    say("sbatch", 'echo "sbatch: error: Batch job submission failed: Invalid qos specification" >&2; exit 1')
    result = submit("-y")
    assert result.exit_code == 5, result.output
    assert "sbatch: Invalid qos specification" in result.stderr
    assert "or use --set slurm.qos=NAME." in result.stderr
    assert list((tmp_path / "jobs" / "commands").iterdir()) == []


def test_a_dry_run_writes_nothing(submit: Submit, say: Say, tmp_path: Path) -> None:
    say("sbatch", 'echo "sbatch: error: Batch job submission failed: Invalid qos specification" >&2; exit 1')
    result = submit("--dry-run")
    assert (result.exit_code, "Slurm refuses" in result.stderr) == (0, True), result.output
    assert [call.split()[1] for call in calls(tmp_path, "sbatch")] == ["--test-only"]
    assert not (tmp_path / "jobs").exists()


def test_it_is_asked_for_and_awaited(submit: Submit, say: Say, tmp_path: Path) -> None:
    assert (submit().exit_code, (tmp_path / "jobs").exists()) == (1, False)
    for state, code in (("COMPLETED", 0), ("FAILED", 1)):
        say("squeue", f"printf '7\\037%s\\037{state}\\037None\\037\\037{tmp_path}\\n' \"$({NEWEST_NAME})\"")
        assert submit("-y", "--wait").exit_code == code


def row(job: str, state: str, name: str = "prepare") -> str:
    """A line of squeue, or of sacct with an exit code."""
    return f"printf '{job}\\037{name}\\037{state}\\037None\\037\\037/x\\0371:0\\n'"


def test_it_waits_for_other_jobs(submit: Submit, say: Say, tmp_path: Path) -> None:
    queue = "; ".join([row("11", "RUNNING"), row("12_0", "COMPLETED"), row("12_1", "PENDING")])
    say("squeue", queue)
    say("sacct", row("13", "COMPLETED"))
    dry = submit("--dry-run", "--after", "11:12", "--after", "13")
    assert (dry.exit_code, dry.stdout.endswith("\nThe jobs would start after 11 and 12 completed successfully.\n")) == (
        0,
        True,
    ), dry.output
    say("squeue", f'{queue}; {row("7", "CANCELLED", "%s")} "$({NEWEST_NAME})"')
    done = submit("-y", "--wait", "--after", "11:12,13")
    assert done.exit_code == 1
    assert "submitted    1 job    7, to start after 11 and 12 completed successfully" in done.stdout
    assert "failed: it never started: it depends on one of jobs 11, 12, which did not complete successfully" in done.stdout
    assert " --dependency=afterok:11:12 --kill-on-invalid-dep=yes " in calls(tmp_path, "sbatch")[-1]


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        (("exit 0", row("11", "FAILED")), "--after 11: the job failed: exit code 1 (FAILED)"),
        ((row("11", "TIMEOUT"), "exit 0"), "--after 11: the job failed: it reached its time limit (TIMEOUT)"),
        (("exit 0", f"{row('11_0', 'COMPLETED')}; {row('11_1', 'CANCELLED')}"), "--after 11: the job failed: cancelled"),
        ((row("11_1", "COMPLETED"), row("11_0", "FAILED")), "--after 11: the job failed: exit code 1"),
        (("exit 0", "exit 0"), "--after 11: Slurm has no such job. List yours with `squeue --me`"),
        (("exit 0", row("11", "RUNNING")), "--after 11: Slurm has no such job"),
        ((NO_SUCH_JOB, NO_ACCOUNTING), "--after 11: squeue lists no such job, and accounting does not answer (sacct: "),
        ((AWAY, "exit 0"), "--after 11: the state of the job is unknown: squeue: Unable"),
    ],
)
def test_what_will_never_end_well_is_not_awaited(submit: Submit, say: Say, answers: tuple[str, str], words: str) -> None:
    """Slurm takes a dependency on a forgotten job as fulfilled: one that failed, or a typo, would start everything at once."""
    say("squeue", answers[0])
    say("sacct", answers[1])
    refused, dry = submit("-y", "--after", "11"), submit("--dry-run", "--after", "11")
    assert (refused.exit_code, dry.exit_code, words in refused.stderr, words in dry.stderr) == (2, 0, True, True), refused.output
    assert "submitted" not in refused.stdout


def test_records_go_where_the_runs_go(submit: Submit, say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPCDDP_RUNS", "")
    say("sbatch", 'echo "$HPCDDP_RUNS" > runs; echo "Submitted batch job 7"')
    assert submit("-y", "--runs", "elsewhere").exit_code == 0
    assert (tmp_path / "runs").read_text() == f"{tmp_path}/elsewhere\n"
    assert len(list((tmp_path / "elsewhere" / "commands").iterdir())) == 1


def test_it_runs_in_the_profiles_environment(run: Run, tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text(SITE)
    layout = ("--cluster", "./site.yaml", "--nodes", "2", "--set", "account=abc")
    lines = run("render", *layout, "--", "python", "train.py").stdout.replace(" \\\n ", "").splitlines()
    _, line = (line for line in lines if "train.py" in line[3:])
    assert line.endswith("""exec "$@"' $WORK/venv/bin/python $WORK/venv/bin/python train.py""")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("submit",), "give a sweep file, or a layout and a command"),
        (("submit", *LAYOUT, "--smoke", *COMMAND), "a command after -- takes no --smoke"),
        (("submit", *LAYOUT, "--max-running", "2", *COMMAND), "a command after -- takes no --max-running"),
        (("submit", *LAYOUT, "--comm", "on", *COMMAND), "a command after -- takes no sweep"),
        (("submit", *LAYOUT, "--", "torchrun", "train.py"), "`torchrun` starts ranks"),
        (("render", *LAYOUT, "--", "srun", "python", "train.py"), "`srun` starts ranks"),
        (("submit", *LAYOUT, "--"), "`--` needs a command after it"),
        (("submit", "--cluster", "local", *COMMAND), "local has no Slurm: start the command here yourself, or with torchrun"),
        (("render", "--cluster", "local", *COMMAND), "local has no Slurm: start the command here yourself, or with torchrun"),
        (("submit", *LAYOUT, "--set", "slurm.walltime_min=99999", *COMMAND), "slurm.walltime_min is 99999, at most"),
        (("submit", "--cluster", "rcc", "--nodes", "2", "-y", *COMMAND), "rcc needs an account"),
    ],
)
def test_what_cannot_be_is_refused(run: Run, say: Say, tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    assert words in refused(run, *arguments)
    assert not (tmp_path / "jobs").exists()


SWEEP = """\
schema: 1
cluster: {cluster}
account: me
workload: {{script: src/train.py, args: {{width: 8}}}}
layout: {{gpus_per_node: 2, launcher: torchrun}}
points: {{width: {{workload.args.width: [4, 8]}}}}
baselines: false
measure: {{warmup_steps: 4, steps: 30, telemetry_hz: 0}}
device: cpu
"""

SCRIPT = """\
import argparse

import torch
import torch.distributed as dist

from hpcddp.probe import measure

parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int)
width = parser.parse_args().width
torch.set_num_threads(1)
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(width, width))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
with measure(model, optimizer, samples_per_step=4) as steps:
    for batch in steps([torch.randn(4, width)] * 99):
        loss = steps.loss(model(batch).square().mean())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
dist.destroy_process_group()
"""


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """The script, below the folder of the sweeps."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text(SCRIPT)
    for cluster in ("local", "rcc"):
        (tmp_path / f"{cluster}.yaml").write_text(SWEEP.format(cluster=cluster))
    return tmp_path


def test_before_it_runs(run: Run, written: Path) -> None:
    plain = json.loads(run("plan", "rcc.yaml", "--format", "json").stdout)["points"]
    assert [point["point"]["workload.args.width"] for point in plain] == [4, 8]
    assert {(point["batch_per_gpu"], point["global_batch"]) for point in plain} == {(None, None)}
    assert "n01-g2-script-" in run("submit", "rcc.yaml", "--points", "--dry-run").stdout
    text = run("render", "rcc.yaml", "--where", "workload.args.width == 4").stdout
    assert f'"file": "{written}/src/train.py"' in text
    assert f'"folder": "{written}"' in text
    assert "torch.distributed.run" in text


@pytest.mark.dear
def test_from_submission_to_its_numbers(run: Run, written: Path) -> None:
    done = run("submit", "local.yaml", "-y", "--wait", "--where", "workload.args.width == 4")
    assert done.exit_code == 0, done.output
    assert "1 run: 1 done" in run("status", "local").stdout
    plain = json.loads(run("analyze", "local", "--format", "json").stdout)
    (row,) = plain["studies"][0]["points"]
    assert (row["ranks"], row["batch_per_gpu"], row["global_batch"]) == (2, 4, 8)
    bundled = run("bundle", "local", "-o", "b.tar.gz")
    assert bundled.exit_code == 0, bundled.output
    same = run("compare", "local", "local")
    assert "B trains 1.000 times as fast as A at 1 x 2" in same.stdout
    launch = next(written.glob("local/*/r1/*/launch.json"))
    assert len(json.loads(launch.read_text())["versions"]["train.py"]) == 12
