"""`submit` and the data of its points: refused where seen to be missing, made first with --prepare. Slurm is a stand-in."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcddp.core.data_job import DataJob, DataTask
from hpcddp.core.records import write_json
from hpcddp.core.run_root import Study
from hpcddp.core.schema import encode
from tests.backends.fake_slurm import Say, calls, stand_ins
from tests.commands.conftest import Run

SWEEP = """
schema: 1
cluster: rcc
account: proj
device: cpu
workload: {model: mnist-cnn, data: {name: bigmnist, copies: 2, root: ROOT}, loader_workers_per_rank: 0}
points:
  nodes: {layout.nodes: [1, 2]}
repeat: 2
"""


@pytest.fixture
def say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Say:
    """sbatch counts jobs from 7; nothing else is known of."""
    say = stand_ins(tmp_path, monkeypatch, ("srun", "squeue", "sacct", "sacctmgr", "scontrol"), "exit 0")
    say("sbatch", 'echo "Submitted batch job $((6 + $(grep -c "^sbatch --job" "$LOG")))"')
    return say


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """In a folder of its own, whose runs lie beside it."""
    (tmp_path / "jobs").mkdir()
    return tmp_path / "jobs" / "small.yaml"


def _with_root(sweep: Path, root: str) -> Path:
    sweep.write_text(SWEEP.replace("ROOT", root))
    return sweep


def test_what_is_seen_to_be_missing_is_refused(run: Run, say: Say, sweep: Path, tmp_path: Path) -> None:
    """In one sentence for all points, with 2 and no job; a folder that only nodes see is theirs to judge."""
    (tmp_path / "data").mkdir()
    refused = run("submit", _with_root(sweep, str(tmp_path / "data")), "-y")
    assert (refused.exit_code, refused.stderr.count("no data `bigmnist` in")) == (2, 1), refused.output
    assert f"`hpcddp data prepare bigmnist --root {tmp_path}/data --copies 2`" in refused.stderr
    for root in (str(tmp_path / "elsewhere"), "$SLURM_ONLY/data"):
        assert run("submit", _with_root(sweep, root), "-y").exit_code == 0


def test_what_is_not_read_need_not_be_there(run: Run, say: Say, sweep: Path, tmp_path: Path) -> None:
    """Synthetic batches: nothing is refused, and nothing is prepared."""
    (tmp_path / "data").mkdir()
    done = run("submit", _with_root(sweep, str(tmp_path / "data")), "-y", "--prepare", "--set", "measure.input=synthetic")
    assert (done.exit_code, "prepare bigmnist" in done.stdout) == (0, False), done.output


def test_runs_wait_for_the_job_that_prepares(run: Run, say: Say, sweep: Path, tmp_path: Path) -> None:
    """One job for all points; every job of the sweep starts only when it ended well; what a user waits for besides holds, too."""
    (tmp_path / "data").mkdir()
    say("squeue", "printf '5\\037other\\037RUNNING\\037None\\037\\037/x\\n'")
    done = run("submit", _with_root(sweep, str(tmp_path / "data")), "-y", "--prepare", "--after", "5")
    assert done.exit_code == 0, done.output
    prepare, *runs = [call for call in calls(tmp_path, "sbatch") if "--test-only" not in call]
    assert ("--job-name=prepare-bigmnist" in prepare, "--dependency=afterok:5 " in prepare) == (True, True)
    assert runs
    assert all("--dependency=afterok:5:7 " in call for call in runs)
    assert "preparation  1 job    7, when 5 ended well" in done.stdout
    assert "first, prepare bigmnist in" in done.stdout


@pytest.mark.parametrize("place", ["small", "data"])
def test_a_job_that_prepares_already_is_waited_for(run: Run, say: Say, sweep: Path, tmp_path: Path, place: str) -> None:
    """Of the study, or one that `hpcddp data` submitted: no second one."""
    task = DataTask(action="prepare", data="bigmnist", options={"root": "$S/data", "copies": 2}, folders=("root",))
    job = DataJob(task=task, job="4", name="prepare-bigmnist", backend="slurm", submitted_at="2026-01-01T00:00:00+00:00")
    write_json(Study(tmp_path / "jobs" / place).data_dir("4") / "job.json", encode(job))
    say("squeue", "printf '4\\037prepare-bigmnist\\037RUNNING\\037None\\037\\037/x\\n'")
    done = run("submit", _with_root(sweep, "$S/data"), "-y", "--prepare")
    assert (done.exit_code, "preparation  job 4 does that already" in done.stdout) == (0, True), done.output
    sent = [call for call in calls(tmp_path, "sbatch") if "--test-only" not in call]
    assert sent
    assert all("--dependency=afterok:4 " in call for call in sent)


def test_what_a_job_has_made_is_not_made_again(run: Run, say: Say, sweep: Path, tmp_path: Path) -> None:
    """Where the folder is not seen from here, by the end that the job left."""
    task = DataTask(action="prepare", data="bigmnist", options={"root": "$S/data", "copies": 2}, folders=("root",))
    job = DataJob(task=task, job="4", name="prepare-bigmnist", backend="slurm", submitted_at="2026-01-01T00:00:00+00:00")
    folder = Study(tmp_path / "jobs" / "small").data_dir("4")
    write_json(folder / "job.json", encode(job))
    write_json(folder / "end.json", {"schema": 1, "ok": True, "text": "120 samples", "took_s": 1.0})
    done = run("submit", _with_root(sweep, "$S/data"), "-y", "--prepare")
    assert done.exit_code == 0, done.output
    assert all("--dependency" not in call for call in calls(tmp_path, "sbatch"))


def test_what_was_removed_here_is_made_again(run: Run, sweep: Path, tmp_path: Path) -> None:
    """Where runs are of this machine, a folder that it does not see is gone, whatever a job has made there."""
    task = DataTask(action="prepare", data="bigmnist", options={"root": f"{tmp_path}/data", "copies": 2}, folders=("root",))
    job = DataJob(task=task, job="L0001", name="prepare-bigmnist", backend="local", submitted_at="2026-01-01T00:00:00+00:00")
    folder = Study(tmp_path / "jobs" / "small").data_dir("L0001")
    write_json(folder / "job.json", encode(job))
    write_json(folder / "end.json", {"schema": 1, "ok": True, "text": "120 samples", "took_s": 1.0})
    here = _with_root(sweep, f"{tmp_path}/data")
    here.write_text(here.read_text().replace("cluster: rcc\naccount: proj", "cluster: local").replace("[1, 2]", "[1]"))
    planned = run("submit", here, "--prepare", "--dry-run")
    assert (planned.exit_code, f"first, prepare bigmnist in {tmp_path}/data" in planned.stdout) == (0, True), planned.output


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--smoke", "--smoke tests now what --prepare waits for: give one of them"),
        ("--set=workload.data.copies=3", "data.copies is 3, but the bigMNIST in"),
    ],
)
def test_what_cannot_be_prepared(run: Run, sweep: Path, tmp_path: Path, option: str, words: str) -> None:
    """With 2, and no job for the data either."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "bigmnist.json").write_text('{"copies": 2, "variants": []}')
    done = run("submit", _with_root(sweep, str(tmp_path / "data")), "-y", "--prepare", option)
    assert (done.exit_code, words in done.stderr) == (2, True), done.output
    assert not (tmp_path / "jobs" / "small").exists()
