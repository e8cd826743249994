"""What is made of the words of Slurm's commands, said by stand-ins that speak as other sites' do."""

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hpcddp.backends import slurm_commands
from hpcddp.backends.base import JobState, Submission
from hpcddp.backends.slurm import SlurmBackend
from hpcddp.errors import HpcddpError, RefusedError, UsageError
from hpcddp.jobspec import JobSpec
from hpcddp.point import Data, Point, Workload
from hpcddp.runroot import Study

Say = Callable[[str, str], None]

POINT = Point(cluster="c", workload=Workload(model="mnist-cnn", data=Data(name="synthetic-mnist")))
NAME = f"{POINT.label}.r1"


@pytest.fixture
def say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Say:
    """`say("squeue", "echo ...")` makes a command of that name; those not made end with 1. All note how they were called."""
    folder = tmp_path / "bin"
    folder.mkdir()

    def make(command: str, script: str) -> None:
        (folder / command).write_text(f'#!/bin/sh\necho "$(basename $0) $*" >> "$LOG"\n{script}\n')
        (folder / command).chmod(0o755)

    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("LOG", str(tmp_path / "log"))
    monkeypatch.setattr("hpcddp.backends.slurm.LOOK_AGAIN_S", (0.0,))
    for command in ("sbatch", "srun", "squeue", "sacct", "sacctmgr", "scancel"):
        make(command, "exit 1")
    return make


def asked(tmp_path: Path, command: str) -> list[str]:
    return [line for line in (tmp_path / "log").read_text().splitlines() if line.split()[0] == command]


def row(job: str, state: str, workdir: str = "/w", name: str = NAME) -> str:
    """A shell command that prints a line of squeue."""
    return "printf '%s\\037%s\\037%s\\037None\\037\\037%s\\n' " + f"'{job}' '{name}' '{state}' '{workdir}'"


def submission(tmp_path: Path, account: str | None = None) -> Submission:
    study = Study(tmp_path / "study")
    return Submission(
        spec=JobSpec(point=POINT, study=str(study.folder)),
        code=study.code / "0",
        python="python3",
        walltime_min=1,
        token="t",
        render_text=lambda launch: "#!/bin/sh\n",
        account=account,
    )


def folder_of(request: Submission) -> str:
    return str(request.study.jobs / f"{request.name}.{request.token}")


@pytest.mark.parametrize(
    "words",
    ["Submitted batch job 7", "Submitted batch job 7 on cluster east", "using job 3 of the day\nSubmitted batch job 7\nhave fun"],
)
def test_id_is_read_from_slurms_own_line(say: Say, tmp_path: Path, words: str) -> None:
    """A cluster's name behind the id and a site's remarks around the line do not change it."""
    say("sbatch", f"echo '{words}'")
    assert SlurmBackend().submit(submission(tmp_path)) == "7"


def test_accepted_job_is_looked_for_when_sbatch_does_not_say_its_id(say: Say, tmp_path: Path) -> None:
    """A wrapper that says nothing, with status 0: the job is found in the queue; if it cannot be, nothing is called refused."""
    request = submission(tmp_path)
    say("sbatch", "exit 0")
    say("squeue", row("8", "PENDING", folder_of(request)))
    assert SlurmBackend().submit(request) == "8"
    say("squeue", "exit 0")
    with pytest.raises(HpcddpError, match="will be looked up") as caught:
        SlurmBackend().submit(dataclasses.replace(request, token="other"))
    assert not isinstance(caught.value, RefusedError)


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        ("Batch job submission failed: Invalid account or account/partition combination specified", True),
        ("Batch job submission failed: Socket timed out on send/recv operation", False),
        ("Batch job submission failed: Message receive failure", False),
        ("Batch job submission failed: Communication connection failure", False),
    ],
)
def test_doubt_is_not_a_refusal(say: Say, tmp_path: Path, words: str, refused: bool) -> None:
    """Only what Slurm decided is a refusal; where the answer was lost on its way the job may be queued."""
    say("sbatch", f"echo 'sbatch: error: {words}' >&2; exit 1")
    with pytest.raises(HpcddpError, match=words) as caught:
        SlurmBackend().submit(submission(tmp_path))
    assert isinstance(caught.value, RefusedError) == refused


def test_another_users_job_is_seen(say: Say) -> None:
    """A job that is not among one's own is asked for by name before it counts as gone: a colleague's study can be looked at."""
    say("squeue", f'case "$*" in *--name={NAME}*) {row("7", "RUNNING")};; esac')
    assert SlurmBackend().poll({"7": NAME})["7"].phase == "running"
    assert SlurmBackend().poll({"6": NAME})["6"] == JobState(phase="failed", detail="Slurm does not know this job any more")


def test_what_accounting_saw_end_is_not_asked_for_again(say: Say, tmp_path: Path) -> None:
    """Of jobs that have ended, one squeue and one sacct are enough."""
    say("squeue", "exit 0")
    say("sacct", f"{row('7', 'TIMEOUT')} | sed 's/$/\\o0370:0/'")
    assert SlurmBackend().poll({"7": NAME})["7"].detail == "the wall time was over (TIMEOUT)"
    assert len(asked(tmp_path, "squeue")) == 1


def test_lines_that_are_no_rows_are_passed_over(say: Say) -> None:
    """The line above each of several clusters' jobs, a name with a line break and bytes that are not UTF-8 disturb nothing."""
    broken = row("1", "RUNNING", name="a\nb")
    latin = "printf '2\\037caf\\351\\037RUNNING\\037None\\037\\037/w\\n'"
    say("squeue", f"echo 'CLUSTER: east'; {broken}; {latin}; {row('7', 'RUNNING')}")
    assert slurm_commands.my_jobs().keys() == {"2", "7"}


def test_accounts_are_asked_for_once(say: Say, tmp_path: Path) -> None:
    """Also where accounting does not answer, which takes it long; account names are the same in either case."""
    backend = SlurmBackend()
    for _ in range(3):
        backend.check(submission(tmp_path, "abc"))
    assert len(asked(tmp_path, "sacctmgr")) == 1
    say("sacctmgr", "echo abc")
    SlurmBackend().check(submission(tmp_path, "ABC"))
    with pytest.raises(UsageError, match="`xyz` is not yours"):
        SlurmBackend().check(submission(tmp_path, "xyz"))
