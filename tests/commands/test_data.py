"""`hpcddp data`, and the job that `submit` has prepare data."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Literal

import pytest
from click.testing import CliRunner

from hpcddp.cli import main
from hpcddp.commands import data
from hpcddp.core.data_job import DataJob, DataTask
from hpcddp.core.official_files import CIFAR10, MNIST, OfficialFile, OfficialSet
from hpcddp.core.point import Data
from hpcddp.core.records import write_json
from hpcddp.core.run_root import Study
from hpcddp.core.schema import encode
from hpcddp.data import open_source
from hpcddp.data.small_sets import ARCHIVE, STEMS
from tests.commands.conftest import Run, refused
from tests.data.files import write_mnist
from tests.fake_slurm import NEWEST_NAME, Say, calls, stand_ins
from tests.file_server import file_answer, file_server


def test_what_is_fetched_is_what_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_mnist(tmp_path / "served", packed=True)
    contents = {path.name: path.read_bytes() for path in (tmp_path / "served").iterdir()}
    files = tuple(OfficialFile(name, len(content), hashlib.md5(content).hexdigest()) for name, content in contents.items())
    monkeypatch.setattr(data, "MNIST", OfficialSet(files, MNIST.unpacked, (), MNIST.folders))
    with file_server() as server:
        server.answers.update({f"/{name}": [file_answer(content)] for name, content in contents.items()})
        arguments = ["data", "fetch", "mnist", "--root", str(tmp_path / "root"), "--mirror", server.address]
        first, second = (CliRunner().invoke(main, arguments) for _ in range(2))
        assert (first.exit_code, second.exit_code) == (0, 0), first.output
        assert len(server.requests) == 4
    assert first.stdout.count(": fetched\n") == second.stdout.count(": was there\n") == 4
    assert "remove it" not in second.stderr
    assert len(open_source(Data(name="mnist"), "train", str(tmp_path / "root"))) == 20


def test_what_stands_in_front_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unpacked files are read first, wherever they lie: others than the official ones are to be removed."""
    monkeypatch.setattr(data, "MNIST", OfficialSet((), MNIST.unpacked, (), MNIST.folders))
    write_mnist(tmp_path / "MNIST" / "raw")
    result = CliRunner().invoke(main, ["data", "fetch", "mnist", "--root", str(tmp_path)])
    assert result.exit_code == 0
    first = tmp_path / "MNIST" / "raw" / "train-images-idx3-ubyte"
    assert f"{first} is not the official file, but is read instead of the fetched one. Remove it." in result.stderr
    assert result.stderr.count("Remove it") == 4


def test_names_are_those_that_are_read() -> None:
    assert [file.name for file in CIFAR10.files] == [ARCHIVE]
    expected = {f"{stem}-{kind}-ubyte.gz" for stem in STEMS.values() for kind in ("images-idx3", "labels-idx1")}
    assert {file.name for file in MNIST.files} == expected


DIGITS = ("data", "prepare", "digits", "--root", "digits")
BIGMNIST = ("data", "prepare", "bigmnist", "--root", "$SCRATCH/bigmnist", "--copies", "2")
ON_RCC = ("--cluster", "rcc", "--set", "account=proj", "-y")

NEWEST_FOLDER = """sed -n 's/.*--chdir=\\([^ ]*\\).*/\\1/p' "$LOG" | tail -n 1"""


@pytest.fixture
def say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Say:
    """sbatch counts jobs from 7; nothing else is known of."""
    say = stand_ins(tmp_path, monkeypatch, ("srun", "squeue", "sacct", "sacctmgr", "scancel", "scontrol"), "exit 0")
    say("sbatch", 'echo "Submitted batch job $((6 + $(grep -c "^sbatch --job" "$LOG")))"')
    return say


def _squeue(say: Say, state: str, reason: str = "None") -> None:
    say("squeue", f'printf \'7\\037%s\\037{state}\\037{reason}\\037\\037%s\\n\' "$({NEWEST_NAME})" "$({NEWEST_FOLDER})"')


def test_a_job_of_this_machine_prepares(run: Run, tmp_path: Path) -> None:
    done = run(*DIGITS, "--cluster", "local", "-y", "--wait")
    assert done.exit_code == 0, done.output
    assert "1,797 digits of scikit-learn's in" in " ".join(done.stdout.split())
    assert sorted(file.name for file in (tmp_path / "digits").iterdir()) == ["digits-eval.bin", "digits-train.bin"]
    status = run("status", "jobs", "--format", "json")
    (study,) = json.loads(status.stdout)["studies"]
    (job,) = study["data_jobs"]
    assert (status.exit_code, study["name"], study["runs"]) == (0, "data", [])
    assert (job["task"], job["phase"]) == ("prepare-digits", "done")
    assert run("status", "jobs").stdout.splitlines()[:2] == ["data", "prepare digits  job L0001  done"]
    assert f"== {tmp_path}/jobs/data/.jobs/L0001/" in run("logs", "jobs/data").stdout


@pytest.mark.dear
def test_folders_have_their_variables(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISK", str(tmp_path / "disk"))
    done = run("data", "prepare", "digits", "--root", "${DISK}/digits")
    assert (done.exit_code, (tmp_path / "disk/digits/digits-train.bin").exists()) == (0, True), done.output
    words = refused(run, "data", "prepare", "digits", "--root", "$NO_SUCH_DISK/digits")
    assert "$NO_SUCH_DISK is not set. Set it, or give the folder in full." in words


def test_the_job_has_a_node_and_its_cores(run: Run, say: Say, tmp_path: Path) -> None:
    say("squeue", "printf '4711\\037other\\037PENDING\\037None\\037\\037/x\\n'")
    done = run(*BIGMNIST, *ON_RCC, "--set", "slurm.walltime_min=90", "--after", "4711")
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[0].startswith("1 job on rcc: 1 node x 1 rank, partition gpu, at most 1.5 node hours")
    assert done.stdout.splitlines()[1] == "submitted    1 job    7, to start after 4711 completed successfully"
    (call,) = calls(tmp_path, "sbatch")
    assert "--job-name=prepare-bigmnist " in call
    assert "--dependency=afterok:4711" in call
    script = (tmp_path / "jobs/data/.jobs/7/job.sbatch").read_text()
    for option in ("nodes=1", "ntasks-per-node=1", "time=90", "account=proj", "cpus-per-task=48"):
        assert f"#SBATCH --{option}\n" in script
    assert script.splitlines()[1].endswith("on rcc: 1 node x 1 rank, prepare on bigmnist")


def test_nothing_twice(run: Run, say: Say, tmp_path: Path) -> None:
    assert run(*BIGMNIST, *ON_RCC).exit_code == 0
    _squeue(say, "PENDING", "Priority")
    again = run(*BIGMNIST, *ON_RCC)
    assert (again.exit_code, "Nothing was submitted: job 7 already does this." in again.stdout) == (0, True), again.output
    assert "prepare bigmnist  job 7  queued" in run("status", "jobs").stdout
    assert run(*BIGMNIST, "--seed", "2", *ON_RCC).exit_code == 0
    assert len(calls(tmp_path, "sbatch")) == 2
    say("squeue", "exit 0")
    assert "prepare bigmnist  job 7  failed" in run("status", "jobs").stdout
    assert run(*BIGMNIST, "--seed", "2", *ON_RCC).exit_code == 0
    assert len(calls(tmp_path, "sbatch")) == 3


def test_a_job_is_cancelled(run: Run, say: Say, tmp_path: Path) -> None:
    assert run(*BIGMNIST, *ON_RCC).exit_code == 0
    _squeue(say, "RUNNING")
    cancelled = run("cancel", "jobs/data", "-y")
    assert (cancelled.exit_code, cancelled.stdout.splitlines()[-1]) == (0, "cancelled    1 job on data"), cancelled.output
    assert calls(tmp_path, "scancel") == ["scancel 7"]
    say("squeue", "exit 0")
    assert "Nothing to cancel" in run("cancel", "jobs/data", "-y").stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--cluster", "rcc", "-y"), "rcc needs an account"),
        ((*ON_RCC, "--set", "slurm.walltime_min=99999"), "slurm.walltime_min is 99999, at most"),
        ((*ON_RCC, "--set", "layout.gpus=1"), "unknown key `gpus`"),
        (("--cluster", "nowhere"), "no cluster `nowhere`"),
        (("--wait",), "--wait applies to a job only. Add --cluster NAME to submit one."),
        (("--set", "account=proj"), "--set applies to a job only"),
    ],
)
def test_what_cannot_be_is_refused(run: Run, say: Say, tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    assert words in refused(run, *BIGMNIST, *arguments)
    assert not (tmp_path / "jobs").exists()


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
def sweep(tmp_path: Path) -> Path:
    """In a folder of its own, whose runs lie beside it."""
    (tmp_path / "jobs").mkdir()
    return tmp_path / "jobs" / "small.yaml"


def _with_root(sweep: Path, root: str) -> Path:
    sweep.write_text(SWEEP.replace("ROOT", root))
    return sweep


def test_what_is_seen_to_be_missing_is_refused(run: Run, say: Say, sweep: Path, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    words = refused(run, "submit", _with_root(sweep, str(tmp_path / "data")), "-y")
    assert words.count("no data `bigmnist` in") == 1
    assert f"`hpcddp data prepare bigmnist --root {tmp_path}/data --copies 2`" in words
    for root in (str(tmp_path / "elsewhere"), "$SLURM_ONLY/data"):
        assert run("submit", _with_root(sweep, root), "-y").exit_code == 0
    unread = ("--prepare", "--set", "measure.input=synthetic")
    done = run("submit", _with_root(sweep, str(tmp_path / "data")), "-y", *unread)
    assert (done.exit_code, "prepare bigmnist" in done.stdout) == (0, False), done.output


def test_runs_wait_for_the_job_that_prepares(run: Run, say: Say, sweep: Path, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    say("squeue", "printf '5\\037other\\037RUNNING\\037None\\037\\037/x\\n'")
    done = run("submit", _with_root(sweep, str(tmp_path / "data")), "-y", "--prepare", "--after", "5")
    assert done.exit_code == 0, done.output
    prepare, *runs = [call for call in calls(tmp_path, "sbatch") if "--test-only" not in call]
    assert ("--job-name=prepare-bigmnist" in prepare, "--dependency=afterok:5 " in prepare) == (True, True)
    assert runs
    assert all("--dependency=afterok:5:7 " in call for call in runs)
    assert "preparation  1 job    7, to start after 5 completed successfully" in done.stdout
    assert "first, prepare bigmnist in" in done.stdout


def job_of(study: Study, root: str, job: str = "4", backend: Literal["slurm", "local"] = "slurm") -> Path:
    """The folder of a job that prepares bigMNIST there."""
    task = DataTask(action="prepare", data="bigmnist", options={"root": root, "copies": 2}, folders=("root",))
    record = DataJob(task=task, job=job, name="prepare-bigmnist", backend=backend, submitted_at="2026-01-01T00:00:00+00:00")
    write_json(study.data_dir(job) / "job.json", encode(record))
    return study.data_dir(job)


ENDED_WELL = {"schema": 1, "ok": True, "text": "120 samples", "took_s": 1.0}


@pytest.mark.parametrize("place", ["small", "data"])
def test_a_job_that_prepares_already_is_waited_for(run: Run, say: Say, sweep: Path, tmp_path: Path, place: str) -> None:
    job_of(Study(tmp_path / "jobs" / place), "$S/data")
    say("squeue", "printf '4\\037prepare-bigmnist\\037RUNNING\\037None\\037\\037/x\\n'")
    done = run("submit", _with_root(sweep, "$S/data"), "-y", "--prepare")
    assert (done.exit_code, "preparation  job 4 already does this" in done.stdout) == (0, True), done.output
    sent = [call for call in calls(tmp_path, "sbatch") if "--test-only" not in call]
    assert sent
    assert all("--dependency=afterok:4 " in call for call in sent)


def test_what_a_job_has_made_is_not_made_again(run: Run, say: Say, sweep: Path, tmp_path: Path) -> None:
    write_json(job_of(Study(tmp_path / "jobs" / "small"), "$S/data") / "end.json", ENDED_WELL)
    done = run("submit", _with_root(sweep, "$S/data"), "-y", "--prepare")
    assert done.exit_code == 0, done.output
    assert all("--dependency" not in call for call in calls(tmp_path, "sbatch"))


def test_what_was_removed_here_is_made_again(run: Run, sweep: Path, tmp_path: Path) -> None:
    """Where runs are of this machine, a folder that it does not see is gone, whatever a job has made there."""
    folder = job_of(Study(tmp_path / "jobs" / "small"), f"{tmp_path}/data", "L0001", "local")
    write_json(folder / "end.json", ENDED_WELL)
    here = _with_root(sweep, f"{tmp_path}/data")
    here.write_text(here.read_text().replace("cluster: rcc\naccount: proj", "cluster: local").replace("[1, 2]", "[1]"))
    planned = run("submit", here, "--prepare", "--dry-run")
    assert (planned.exit_code, f"first, prepare bigmnist in {tmp_path}/data" in planned.stdout) == (0, True), planned.output


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--smoke", "--smoke runs now, before the jobs that --prepare waits for: give one of them"),
        ("--set=workload.data.copies=3", "data.copies is 3, but the bigMNIST in"),
    ],
)
def test_what_cannot_be_prepared(run: Run, sweep: Path, tmp_path: Path, option: str, words: str) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "bigmnist.json").write_text('{"copies": 2, "variants": []}')
    assert words in refused(run, "submit", _with_root(sweep, str(tmp_path / "data")), "-y", "--prepare", option)
    assert not (tmp_path / "jobs" / "small").exists()
