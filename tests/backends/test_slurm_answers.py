"""What is made of the words of Slurm's commands, said by stand-ins that speak as other sites' do."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import time
from pathlib import Path

import pytest

from hpcddp.backends import slurm_commands
from hpcddp.backends.base import JobState, Submission
from hpcddp.backends.slurm import SlurmBackend
from hpcddp.backends.slurm_commands import UnansweredError, too_old, version_here
from hpcddp.backends.slurm_words import slurm_ended_words, waiting_words
from hpcddp.cluster.slurm_rules import SlurmRules
from hpcddp.core.errors import FullError, HpcddpError, RefusedError, UsageError
from hpcddp.core.jobspec import JobSpec
from hpcddp.core.point import Data, Point, Workload
from hpcddp.core.run_root import Study
from tests.fake_slurm import Say, at_once, calls, stand_ins, wait_for

POINT = Point(cluster="c", workload=Workload(model="mnist-cnn", data=Data(name="synthetic-mnist")))
NAME = f"{POINT.label}.r1"


@pytest.fixture
def say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Say:
    """Those not made end with 1."""
    at_once(monkeypatch)
    return stand_ins(tmp_path, monkeypatch, ("sbatch", "srun", "squeue", "sacct", "sacctmgr", "scancel", "scontrol"), "exit 1")


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
    say("sbatch", f"echo '{words}'")
    assert SlurmBackend().submit(submission(tmp_path)) == "7"


def test_accepted_job_is_looked_for_when_sbatch_does_not_say_its_id(say: Say, tmp_path: Path) -> None:
    request = submission(tmp_path)
    say("sbatch", "exit 0")
    say("squeue", row("8", "PENDING", folder_of(request)))
    assert SlurmBackend().submit(request) == "8"
    say("squeue", row("9", "PENDING", "/another/study/.jobs/of.another"))
    with pytest.raises(HpcddpError, match="checks whether the job is queued") as caught:
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


def test_sent_again_once_it_surely_is_not_queued(say: Say, tmp_path: Path) -> None:
    failing = 'n=$(grep -c "^$(basename $0) " "$LOG"); [ $n -gt {times} ] || {{ echo "{words}" >&2; exit 1; }}\n{then}'
    say("sbatch", failing.format(times=1, words="Unable to contact slurm controller", then="echo Submitted batch job 9"))
    say("squeue", failing.format(times=2, words="Connection refused", then="exit 0"))
    assert SlurmBackend().submit(submission(tmp_path)) == "9"
    assert (len(calls(tmp_path, "sbatch")), len(calls(tmp_path, "squeue"))) == (2, 4)


def test_size_of_arrays_is_asked_for_until_there_is_an_answer(say: Say) -> None:
    away = 'echo "slurm_load_ctl_conf error: Socket timed out on send/recv operation" >&2; exit 1'
    say("scontrol", f'[ $(grep -c ^scontrol "$LOG") -gt 2 ] || {{ {away}; }}\necho "MaxArraySize = 1001"')
    assert SlurmBackend().max_array_size == 1001
    say("scontrol", away)
    with pytest.raises(HpcddpError, match=r"Socket timed out .*No more was submitted. Submit again when Slurm answers"):
        _ = SlurmBackend().max_array_size


def test_job_that_shows_late_is_not_sent_again(say: Say, tmp_path: Path) -> None:
    request = submission(tmp_path)
    say("sbatch", "echo Socket timed out on send/recv operation >&2; exit 1")
    say("squeue", f'[ $(grep -c ^squeue "$LOG") -lt 2 ] || {row("8", "PENDING", folder_of(request))}')
    assert SlurmBackend().submit(request) == "8"
    assert len(calls(tmp_path, "sbatch")) == 1
    assert os.readlink(request.study.job_dir("8")) == Path(folder_of(request)).name


def test_a_cluster_full_of_jobs_is_not_waited_for_by_sbatch(say: Say, tmp_path: Path) -> None:
    request = submission(tmp_path)
    words = "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying"
    say("sbatch", f"echo '{words}' >&2; exec sleep 600")
    say("squeue", "exit 0")
    with pytest.raises(FullError, match=words):
        SlurmBackend().submit(request)
    assert (len(calls(tmp_path, "sbatch")), list(request.study.jobs.iterdir())) == (1, [])
    say("squeue", row("8", "PENDING", folder_of(request)))
    assert SlurmBackend().submit(request) == "8"  # taken just then


def test_controller_that_stays_away(say: Say, tmp_path: Path) -> None:
    say("sbatch", "echo Unable to contact slurm controller >&2; exit 1")
    say("squeue", "echo Unable to contact slurm controller >&2; exit 1")
    with pytest.raises(HpcddpError, match="checks whether the job is queued"):
        SlurmBackend().submit(submission(tmp_path))
    assert len(calls(tmp_path, "sbatch")) == 1
    say("squeue", "exit 0")
    with pytest.raises(HpcddpError, match="answers only at times"):
        SlurmBackend().submit(dataclasses.replace(submission(tmp_path), token="other"))
    assert len(calls(tmp_path, "sbatch")) == 3


def test_sbatch_that_outlives_its_hpcddp_is_waited_for(say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sleep = time.sleep

    def end_and_sleep(pause_s: float) -> None:
        over.touch()
        sleep(pause_s)

    request, over = submission(tmp_path), tmp_path / "over"
    say("sbatch", f'touch "{tmp_path}/begun"; while [ ! -e "{over}" ]; do sleep 0.05; done; touch "{tmp_path}/ended"')
    say("squeue", f'[ -e "{tmp_path}/ended" ] || touch "{tmp_path}/early"')
    command = ["sbatch", f"--chdir={folder_of(request)}", "job.sbatch"]
    with subprocess.Popen(command) as orphan:
        wait_for((tmp_path / "begun").exists)
        monkeypatch.setattr(time, "sleep", end_and_sleep)
        found = SlurmBackend().find(request.study, request.name, request.token)
        over.touch()
        assert orphan.wait() == 0
    assert found is None
    assert not (tmp_path / "early").exists()


def test_another_users_job_is_seen(say: Say) -> None:
    say("squeue", f'case "$*" in *--name={NAME}*) {row("7", "RUNNING")};; esac')
    assert SlurmBackend().poll({"7": NAME})["7"].phase == "running"
    assert SlurmBackend().poll({"6": NAME})["6"] == JobState(phase="failed", detail="Slurm no longer lists this job")


AWAY = "echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1"


def test_accounting_is_asked_while_the_controller_is_away(say: Say) -> None:
    say("squeue", AWAY)
    lines = [row("1", "CANCELLED by 0"), row("2", "RUNNING"), row("3", "PENDING"), row("5", "FAILED", name="another")]
    say("sacct", "\n".join(f"{line} | sed 's/$/\\o0370:0/'" for line in lines))
    states = SlurmBackend().poll(dict.fromkeys("12345", NAME))
    assert (states["1"].phase, states["1"].word) == ("failed", "CANCELLED")
    assert {states[job].phase for job in "2345"} == {"unknown"}
    assert "Unable to contact slurm controller (connect failure)" in str(states["4"].detail)
    assert str(states["2"].detail).endswith("; accounting has it as RUNNING")
    say("squeue", AWAY)
    say("sacct", "echo 'Slurm accounting storage is disabled' >&2; exit 1")
    words = "squeue: slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
    assert SlurmBackend().poll({"1": NAME}) == {"1": JobState(phase="unknown", detail=words)}


def test_thousands_of_lost_jobs_are_asked_for_in_parts(say: Say) -> None:
    names = {str(job): f"n{job:05d}-g4-b1024-3fa9c1d2e07b.r10" for job in range(10_000, 14_500)}
    first, last = names["10000"], names["14499"]
    there = f"*={first},*) {row('10000', 'RUNNING', name=first)};; *,{last}) {row('14499', 'PENDING', name=last)};;"
    say("squeue", f'case "$*" in {there} esac')
    states = SlurmBackend().poll(names)
    live = {job: state.phase for job, state in states.items() if state.phase != "failed"}
    assert (live, len(states)) == ({"10000": "running", "14499": "queued"}, 4500)


def test_without_an_answer_nothing_is_cancelled_and_that_is_said(say: Say, tmp_path: Path) -> None:
    say("squeue", "echo Unable to contact slurm controller >&2; exit 1")
    with pytest.raises(HpcddpError, match=r"Nothing was cancelled. Cancel again when Slurm answers"):
        SlurmBackend().cancel({"7": NAME})
    assert not calls(tmp_path, "scancel")


def test_another_studys_job_of_the_same_id_and_name_is_not_ours(say: Say, tmp_path: Path) -> None:
    """Ids are given out again by a controller that lost jobs: the folder in which a job works tells whose it is."""
    study = Study(tmp_path / "study")
    study.jobs.mkdir(parents=True)
    study.job_dir("7").symlink_to(f"{NAME}.t1")
    say("squeue", row("7", "PENDING", f"/moved/.jobs/{NAME}.t1"))
    assert SlurmBackend(SlurmRules(), study).poll({"7": NAME})["7"].phase == "queued"
    say("squeue", row("7", "PENDING", f"/other/.jobs/{NAME}.t2"))
    assert SlurmBackend(SlurmRules(), study).poll({"7": NAME})["7"].detail == "Slurm no longer lists this job"


def test_what_accounting_saw_end_is_not_asked_for_again(say: Say, tmp_path: Path) -> None:
    say("squeue", "exit 0")
    say("sacct", f"{row('7', 'TIMEOUT')} | sed 's/$/\\o0370:0/'")
    assert SlurmBackend().poll({"7": NAME})["7"].detail == "it reached its time limit (TIMEOUT)"
    assert len(calls(tmp_path, "squeue")) == 1


def test_lines_that_are_no_rows_are_passed_over(say: Say) -> None:
    broken = row("1", "RUNNING", name="a\nb")
    latin = "printf '2\\037caf\\351\\037RUNNING\\037None\\037\\037/w\\n'"
    say("squeue", f"echo 'CLUSTER: east'; {broken}; {latin}; {row('7', 'RUNNING')}")
    assert slurm_commands.my_jobs().keys() == {"2", "7"}


def test_accounts_are_asked_for_once(say: Say, tmp_path: Path) -> None:
    """Also where accounting does not answer, which takes it long; account names are the same in either case."""
    backend = SlurmBackend()
    for _ in range(3):
        backend.check(submission(tmp_path, "abc"))
    assert len(calls(tmp_path, "sacctmgr")) == 1
    say("sacctmgr", "echo abc")
    SlurmBackend().check(submission(tmp_path, "ABC"))
    with pytest.raises(UsageError, match="You cannot charge account `xyz`"):
        SlurmBackend().check(submission(tmp_path, "xyz"))


def test_a_command_that_does_not_come_back_is_ended(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hpcddp.backends.slurm_commands.COMMAND_TIMEOUT_S", 0.2)
    say("squeue", "exec sleep 600")
    with pytest.raises(UnansweredError, match="squeue did not answer"):
        slurm_commands.my_jobs()


def test_what_is_waited_for_is_said_once(say: Say, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("hpcddp.backends.slurm_commands.SILENT_S", 0.05)
    say("squeue", "sleep 0.3; echo Connection refused >&2; exit 1")
    for _ in range(2):
        with pytest.raises(UnansweredError):
            slurm_commands.my_jobs()
    assert capsys.readouterr().err == "! waiting for Slurm: squeue has not answered for 0 s\n"
    monkeypatch.setattr("hpcddp.backends.slurm_commands.SILENT_S", 60.0)  # the answer itself takes a busy machine a while
    say("squeue", "exit 0")
    slurm_commands.my_jobs()
    say("scontrol", "echo Connection refused >&2; exit 1")
    with pytest.raises(HpcddpError):
        _ = SlurmBackend().max_array_size
    assert capsys.readouterr().err == "! waiting for Slurm: scontrol: Connection refused\n"


def test_a_controller_that_is_away_for_long_is_asked_no_more(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    say("sacctmgr", "echo proj")
    say("scontrol", "echo Connection refused >&2; exit 1")
    say("squeue", "echo Connection refused >&2; exit 1")
    with pytest.raises(UnansweredError):
        slurm_commands.my_jobs()
    assert slurm_commands.accounts() == ["proj"]
    monkeypatch.setattr("hpcddp.backends.slurm_recovery.GIVE_UP_S", 0.0)
    with pytest.raises(HpcddpError, match="Submit again when Slurm answers"):
        _ = SlurmBackend().max_array_size
    assert slurm_commands.away_s() > 0


def test_what_runs_has_its_time_left(say: Say) -> None:
    for left, seconds in (("1-00:05:09", 86_709), ("05:09", 309), ("UNLIMITED", None), ("INVALID", None)):
        say("squeue", f"{row('7', 'RUNNING')} | sed 's/$/\\o037\\o0372-00:00:00\\o037N\\/A\\o037{left}/'")
        state = SlurmBackend().poll({"7": NAME})["7"]
        assert (state.phase, state.time_left_s, state.time_limit) == ("running", seconds, "2-00:00:00")


@pytest.mark.parametrize(
    ("script", "version"),
    [
        *((f"echo '{words}'", "22.05.8") for words in ("slurm 22.05.8", "slurm-wlm 22.05.8", "slurm 22.05.8 (site build 7)")),
        *((script, None) for script in ("exit 1", "echo srun of ParaStation", "sleep 60")),
    ],
)
def test_version_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, version: str | None) -> None:
    """One that does not say its version is waited for no longer than a moment, and taken for a newer."""
    monkeypatch.setattr("hpcddp.backends.slurm_commands.TIMEOUT_S", 0.5)
    stand_ins(tmp_path, monkeypatch, ("srun",), script)
    assert (version_here(), too_old(version_here())) == (version, None)


@pytest.mark.parametrize("version", ["22.05.0", "22.05", "23.02.7", "24.11.0-0rc1", "25.05.1"])
def test_22_05_and_later_ones_are_supported(version: str) -> None:
    assert too_old(version) is None


@pytest.mark.parametrize("version", ["21.08.8", "20.11.9", "17.11.2"])
def test_an_older_one_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    stand_ins(tmp_path, monkeypatch, ("srun", "sbatch", "sacctmgr"), f"echo slurm {version}")
    backend = SlurmBackend()
    for _ in range(2):
        with pytest.raises(HpcddpError, match=rf"Slurm {version} is older than 22.05, the oldest that hpcddp supports. Nothing"):
            backend.check(submission(tmp_path))
    assert len(calls(tmp_path, "srun")) == 1


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("Resources", "required nodes are busy"),
        ("PartitionDown,x", "its partition is down"),
        ("ReqNodeNotAvail, UnavailableNodes:gn[01-02]", "required nodes are down, drained or reserved"),
        ("JobArrayTaskLimit", "its array has reached --max-running"),
        ("QOSMaxGRESPerUser", "its QOS allows a user no more GPUs at present"),
        ("QOSMaxJobsPerUserLimit", "its QOS allows a user no more jobs at a time at present"),
        ("QOSMaxNodePerJobLimit", "it requests more nodes than its QOS allows a job: it will not start"),
        ("QOSMaxWallDurationPerJobLimit", "it requests more time than its QOS allows a job: it will not start"),
        ("QOSGrpNodeLimit", "its QOS allows no more nodes at present"),
        ("AssocGrpCpuLimit", "its account allows no more processors at present"),
        ("AssocGrpCPURunMinutesLimit", "its account allows no more processors at present"),
        ("AssocGrpCPUMinutesLimit", "the budget of its account is used up"),
        ("AssocGrpBillingMinutes", "the budget of its account is used up"),
        ("AssocMaxSubmitJobLimit", "its account allows no more jobs in the queue at present"),
    ],
)
def test_reasons_are_told_in_words(reason: str, words: str) -> None:
    """A known reason is a sentence with Slurm's word behind it, an unknown one is shown as it is."""
    assert waiting_words(reason) == f"{words} ({reason})"
    assert [waiting_words(each) for each in ("None", "SomethingNew")] == ["just submitted", "SomethingNew"]


@pytest.mark.parametrize(
    ("state_word", "code", "words"),
    [
        ("FAILED", "15:0", "exit code 15 (FAILED)"),
        ("FAILED", "0:9", "killed by signal 9 (FAILED)"),
        ("FAILED", "0:53", "its node cannot write the log of its job script (FAILED, 0:53)"),
        ("OUT_OF_MEMORY", "0:125", "it used more memory than Slurm gave it (OUT_OF_MEMORY)"),
        ("TIMEOUT", "0:0", "it reached its time limit (TIMEOUT)"),
        ("NODE_FAIL", "", "its node failed (NODE_FAIL)"),
        ("REVOKED", "0:0", "REVOKED"),
    ],
)
def test_ends_are_told_in_words(state_word: str, code: str, words: str) -> None:
    assert slurm_ended_words(state_word, code) == words
