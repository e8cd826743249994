"""`hpcddp data fetch`; and `hpcddp data ... --cluster`, a job that does what the command does here. Slurm is a stand-in."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from hpcddp.cli import main
from hpcddp.commands import data
from hpcddp.core.official_files import CIFAR10, MNIST, OfficialFile, OfficialSet
from hpcddp.core.point import Data
from hpcddp.data import open_source
from hpcddp.data.small_sets import ARCHIVE, STEMS
from hpcddp.data.writing import fetch
from tests.backends.fake_slurm import Say, calls, stand_ins
from tests.commands.conftest import Run
from tests.data.files import write_mnist
from tests.file_server import file_answer, file_server


def test_what_is_fetched_is_what_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four files from a server, checked, under the names that training reads; a second time nothing is asked for."""
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
    assert f"{first} is read in place of what was fetched, and is not the official file: remove it" in result.stderr
    assert result.stderr.count("remove it") == 4


def test_another_servers_files_are_not_taken_for_mnist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it sends under their names."""
    monkeypatch.setattr(fetch, "PAUSE_S", 0.0)
    with file_server() as server:
        server.answers["/train-images-idx3-ubyte.gz"] = [file_answer(b"<html>please accept our cookies</html>")]
        result = CliRunner().invoke(
            main, ["data", "fetch", "mnist", "--root", str(tmp_path / "root"), "--mirror", server.address]
        )
    assert result.exit_code == 1
    assert "38 bytes came, the file has 9,912,422" in str(result.output)
    assert not list((tmp_path / "root").glob("*ubyte*"))


def test_names_are_those_that_are_read() -> None:
    """Of CIFAR-10 the binary version's archive, of MNIST both splits' images and labels."""
    assert [file.name for file in CIFAR10.files] == [ARCHIVE]
    expected = {f"{stem}-{kind}-ubyte.gz" for stem in STEMS.values() for kind in ("images-idx3", "labels-idx1")}
    assert {file.name for file in MNIST.files} == expected


DIGITS = ("data", "prepare", "digits", "--root", "digits")
BIGMNIST = ("data", "prepare", "bigmnist", "--root", "$SCRATCH/bigmnist", "--copies", "2")
ON_RCC = ("--cluster", "rcc", "--set", "account=proj", "-y")

NEWEST_NAME = """sed -n 's/.*--job-name=\\([^ ]*\\) .*/\\1/p' "$LOG" | tail -n 1"""
NEWEST_FOLDER = """sed -n 's/.*--chdir=\\([^ ]*\\).*/\\1/p' "$LOG" | tail -n 1"""


@pytest.fixture
def say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Say:
    """sbatch queues job 7; nothing else is known of."""
    say = stand_ins(tmp_path, monkeypatch, ("srun", "squeue", "sacct", "sacctmgr", "scancel", "scontrol"), "exit 0")
    say("sbatch", "echo 'Submitted batch job 7'")
    return say


def _squeue(say: Say, state: str, reason: str = "None") -> None:
    say("squeue", f'printf \'7\\037%s\\037{state}\\037{reason}\\037\\037%s\\n\' "$({NEWEST_NAME})" "$({NEWEST_FOLDER})"')


def test_a_job_of_this_machine_prepares(run: Run, tmp_path: Path) -> None:
    """The data are where the command line said from here; --wait ends with what was done, as `status` has it later."""
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
    """Without --cluster, too, where single quotes kept them from the shell; a folder of the name `$SCRATCH` is nobody's wish."""
    monkeypatch.setenv("DISK", str(tmp_path / "disk"))
    done = run("data", "prepare", "digits", "--root", "${DISK}/digits")
    assert (done.exit_code, (tmp_path / "disk/digits/digits-train.bin").exists()) == (0, True), done.output
    refused = run("data", "prepare", "digits", "--root", "$NO_SUCH_DISK/digits")
    assert (refused.exit_code, "$NO_SUCH_DISK is not set; give the folder in full" in refused.stderr) == (2, True)


def test_the_job_has_a_node_and_its_cores(run: Run, say: Say, tmp_path: Path) -> None:
    """One process with the cores of the node, in the profile's template with account and wall time; what it waits for."""
    say("squeue", "printf '4711\\037other\\037PENDING\\037None\\037\\037/x\\n'")
    done = run(*BIGMNIST, *ON_RCC, "--set", "slurm.walltime_min=90", "--after", "4711")
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[0].startswith("1 job on rcc: 1 node x 1 rank, partition gpu, at most 1.5 node hours")
    assert done.stdout.splitlines()[1] == "submitted    1 job    7, when 4711 ended well"
    (call,) = calls(tmp_path, "sbatch")
    assert "--job-name=prepare-bigmnist " in call
    assert "--dependency=afterok:4711" in call
    script = (tmp_path / "jobs/data/.jobs/7/job.sbatch").read_text()
    assert {"#SBATCH --nodes=1", "#SBATCH --ntasks-per-node=1", "#SBATCH --time=90", "#SBATCH --account=proj"} <= set(
        script.splitlines()
    )
    assert script.splitlines()[1].endswith("on rcc: 1 node x 1 rank, prepare on bigmnist")
    assert "#SBATCH --cpus-per-task=48" in script.splitlines()


def test_nothing_twice(run: Run, say: Say, tmp_path: Path) -> None:
    """While a job waits or runs for a task, the task gets no other; another task does, and so does one whose job has failed."""
    assert run(*BIGMNIST, *ON_RCC).exit_code == 0
    _squeue(say, "PENDING", "Priority")
    again = run(*BIGMNIST, *ON_RCC)
    assert (again.exit_code, "nothing submitted: job 7 does that already" in again.stdout) == (0, True), again.output
    assert "prepare bigmnist  job 7  queued" in run("status", "jobs").stdout
    assert run(*BIGMNIST, "--seed", "2", *ON_RCC).exit_code == 0
    assert len(calls(tmp_path, "sbatch")) == 2
    say("squeue", "exit 0")
    assert "prepare bigmnist  job 7  failed" in run("status", "jobs").stdout
    assert run(*BIGMNIST, "--seed", "2", *ON_RCC).exit_code == 0
    assert len(calls(tmp_path, "sbatch")) == 3


def test_a_job_is_cancelled(run: Run, say: Say, tmp_path: Path) -> None:
    """By the folder of the jobs; one that is over is none to cancel."""
    assert run(*BIGMNIST, *ON_RCC).exit_code == 0
    _squeue(say, "RUNNING")
    cancelled = run("cancel", "jobs/data", "-y")
    assert (cancelled.exit_code, cancelled.stdout.splitlines()[-1]) == (0, "cancelled    1 job on data"), cancelled.output
    assert calls(tmp_path, "scancel") == ["scancel 7"]
    say("squeue", "exit 0")
    assert "nothing to cancel" in run("cancel", "jobs/data", "-y").stdout


def test_a_dry_run_writes_nothing(run: Run, say: Say, tmp_path: Path) -> None:
    """What Slurm would refuse is said."""
    say("sbatch", 'echo "sbatch: error: Batch job submission failed: Invalid qos specification" >&2; exit 1')
    result = run(*BIGMNIST, *ON_RCC, "--dry-run")
    assert (result.exit_code, "Slurm refuses" in result.stderr) == (0, True), result.output
    assert not (tmp_path / "jobs").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--cluster", "rcc", "-y"), "rcc needs an account"),
        ((*ON_RCC, "--set", "slurm.walltime_min=99999"), "slurm.walltime_min is 99999, at most"),
        ((*ON_RCC, "--set", "layout.gpus=1"), "unknown key `gpus`"),
        (("--cluster", "nowhere"), "no cluster `nowhere`"),
        (("--wait",), "--wait is of a job, and without --cluster the data are made here: give --cluster NAME"),
        (("--set", "account=proj"), "--set is of a job"),
    ],
)
def test_what_cannot_be_is_refused(run: Run, say: Say, tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    """With 2, before anything is written or sent."""
    result = run(*BIGMNIST, *arguments)
    assert (result.exit_code, words in result.stderr) == (2, True), result.output
    assert not (tmp_path / "jobs").exists()
