"""The twin is a real Slurm with the rules of its profile, and leaves nothing behind, however it ends."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from hpcddp.cluster.profile import ClusterProfile
from hpcddp.cluster.profile_file import load_profile
from hpcddp.core.errors import HpcddpError, UsageError
from tests.fake_slurm import PATIENCE_S
from tests.machine import cannot_run
from tests.twin import daemons
from tests.twin.config import check_folder, completions
from tests.twin.controllers import Controllers
from tests.twin.daemons import ANSWER_S, MARK, marked, missing, only_twin, stop, wait_until
from tests.twin.shape import CONTROLLER_PORTS, TWIN_PORTS, make_shape
from tests.twin.twin import Twin, Twins

JOB = """#!/bin/bash
#SBATCH --job-name=first --account=proj --partition=gpu --gres=gpu:v100:2 --nodes=2 --ntasks-per-node=1 --mem=1000 --comment=a|b
{more}
set -e
. /etc/profile.d/modules.sh
module load {modules}
srun --ntasks=2 bash -c 'echo "$SLURMD_NODENAME $CUDA_VISIBLE_DEVICES $(command -v python3)"'
python3 -c 'import sys; print(sys.executable)'
"""


def script(twin: Twin, more: str = "") -> str:
    """A job of two tasks that loads the profile's modules."""
    return JOB.format(modules=" ".join(twin.profile.compute.modules), more=more)


def test_a_job_sees_its_gpus_its_modules_and_its_python(rcc_twin: Twin, tmp_path: Path) -> None:
    sbatch = ["sbatch", "--parsable", "--output=out", "--nodelist=gn[01-02]"]
    number = rcc_twin.run(sbatch, text=script(rcc_twin), cwd=tmp_path).stdout.strip()
    rcc_twin.wait_jobs(PATIENCE_S)
    *tasks, python = (tmp_path / "out").read_text().splitlines()
    wrapper = rcc_twin.folder / "bin" / "python3"
    assert sorted(tasks) == [f"gn01 0,1 {wrapper}", f"gn02 0,1 {wrapper}"]
    assert python == rcc_twin.python
    (job,) = (row for row in rcc_twin.sacct() if row["JobID"] == number)
    assert (job["JobName"], job["State"], job["ExitCode"], job["NodeList"]) == ("first", "COMPLETED", "0:0", "gn[01-02]")
    assert ("gres/gpu=4" in job["AllocTRES"], job["Comment"]) == (True, "a|b")


REFUSED = {
    "--account=nobody": "Invalid account",
    "--account=unset": "AssocGrpSubmitJobsLimit",
    "--partition=normal": "invalid partition",
    "--qos=night": "Invalid qos",
    "--qos=dev": "QOSMaxNodePerJobLimit",
    "--time=8-00:00:00": "time limit",
    "--gres=gpu:v100:5": "Requested node configuration is not available",
    "--nodes=7": "Requested node configuration is not available",
    "--nodes=7 --gres=gpu:4": "QOSMaxGRESPerUser",
    "--mem=360001": "Requested node configuration is not available",
}


def test_what_the_cluster_would_refuse_is_refused(rcc_twin: Twin) -> None:
    """And a job that names no account, where the cluster wants one."""
    assert rcc_twin.test_only(script(rcc_twin))[0]
    found = {more: rcc_twin.test_only(script(rcc_twin, f"#SBATCH {more}")) for more in REFUSED}
    assert {more: says for more, says in REFUSED.items() if found[more][0] or says.lower() not in found[more][1].lower()} == {}
    assert "AssocGrpSubmitJobsLimit" in rcc_twin.test_only("#!/bin/bash\n#SBATCH --partition=gpu --mem=1000\n")[1]


def test_ends_are_those_of_slurmctld_where_sacct_missed_them(
    rcc_twin: Twin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a job with a name to be mistaken, and of an array's tasks; a job that slurmdbd has as running for good has ended."""
    submit = ["sbatch", "--parsable", "--account=proj", "--partition=gpu"]
    named = rcc_twin.run([*submit, "--job-name=it's JobState=x", "--wrap", "exit 3"], cwd=tmp_path).stdout.strip()
    array = rcc_twin.run([*submit, "--array=0-1", "--wrap", "sleep 1"], cwd=tmp_path).stdout.strip()
    rcc_twin.wait_jobs(PATIENCE_S)
    logged, rows = completions(rcc_twin.folder), {row["JobID"]: row for row in rcc_twin.sacct()}
    for job in (named, f"{array}_0", f"{array}_1"):
        assert logged[job] == {name: rows[job][name] for name in logged[job]}
    run = rcc_twin.run

    def forgetful(command: list[str], **how: Any) -> subprocess.CompletedProcess[str]:
        done = run(command, **how)
        if command[0] == "sacct":
            lines = [line.split("\x1f") for line in done.stdout.splitlines()]
            missed = [[named, "allocation", "RUNNING", "0:0", *cells[4:-1], "Unknown"] for cells in lines if cells[0] == named]
            done.stdout = "\n".join(map("\x1f".join, missed))
        return done

    monkeypatch.setattr(rcc_twin, "run", forgetful)
    (row,) = rcc_twin.sacct()
    assert (row["JobName"], row["State"], row["ExitCode"]) == ("it's JobState=x", "FAILED", "3:0")
    assert row["End"] != "Unknown"


def test_what_fails_and_what_does_not_end_is_shown(rcc_twin: Twin) -> None:
    with pytest.raises(HpcddpError, match="Invalid partition"):
        rcc_twin.run(["scontrol", "update", "PartitionName=none", "State=UP"])
    rcc_twin.run(["sbatch", "--hold"], text=script(rcc_twin))
    with pytest.raises(HpcddpError, match=r"(?s)end of all jobs.*JobHeldUser"):
        rcc_twin.wait_jobs(0.1)
    rcc_twin.run(["scancel", "--name=first"])
    rcc_twin.wait_jobs(PATIENCE_S)
    assert rcc_twin.sacct()[-1]["State"].startswith("CANCELLED")


def test_ports_are_all_different() -> None:
    """A twin and controllers draw theirs when they boot, which they do beside each other, and bind them later."""
    rcc = load_profile("rcc")
    shape = make_shape(rcc, Path("/t"), 40)
    ports = [shape.slurmctld_port, shape.slurmdbd_port, *(node.port for node in shape.nodes)]
    assert len(set(ports)) == len(ports) > 10
    assert set(ports) <= set(TWIN_PORTS)
    (controllers,) = Controllers(Path("/t"))._shapes([rcc])
    assert {controllers.slurmctld_port, controllers.slurmdbd_port} <= set(CONTROLLER_PORTS) - set(TWIN_PORTS)


@pytest.mark.parametrize(("name", "says"), [("a b", "space"), ("a" * 90, "too long"), ("", "not empty")])
def test_a_folder_that_cannot_hold_a_twin_is_refused(tmp_path: Path, name: str, says: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=says):
        check_folder(make_shape(load_profile("rcc"), tmp_path / name, 1))


def test_a_profile_without_slurm_has_no_twin() -> None:
    with pytest.raises(UsageError, match="backend `local`"):
        make_shape(ClusterProfile(schema=1, name="here", title="here", backend="local"), Path("/t"), 1)


def test_a_second_twin_in_one_process_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting for the lock that the process itself holds would never end."""
    monkeypatch.setattr(daemons, "_up", [])
    lock = tmp_path / "lock"
    with only_twin(tmp_path / "a", lock), pytest.raises(HpcddpError, match="already"), only_twin(tmp_path / "b", lock):
        pass


def test_missing_programs_skip_the_tests_except_in_ci(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    reason = missing()
    assert reason is not None
    assert "root" in reason or "slurmctld" in reason
    for ci, outcome in (("", pytest.skip.Exception), ("true", pytest.fail.Exception)):
        monkeypatch.setenv("CI", ci)
        with pytest.raises(outcome, match=reason[:20]):
            cannot_run(reason)


@pytest.mark.slurm
def test_a_database_leaves_the_temporary_tables_of_others_alone(tmp_path: Path) -> None:
    """Twins start at the same time, and a MariaDB that starts empties the folder of its temporary tables."""
    shared, folder = tmp_path / "tmp", tmp_path / "twin"
    for new in (shared, folder / "log", folder / "pid"):
        new.mkdir(parents=True)
    of_another = shared / "#sql-temptable-735f-1-3.MAI"
    of_another.touch()
    stop([daemons.start_database(folder, {**os.environ, "TMPDIR": str(shared), MARK: str(folder)})])
    assert of_another.exists()


SLEEP = "#!/bin/bash\n#SBATCH --account=proj --partition=gpu --gres=gpu:1 --mem=1000 --output=/dev/null\nsrun sleep 1000\n"
STEP_RUNS = "until squeue -h -s | grep -q sleep; do sleep 0.1; done"
PROGRAMS = {"munged", "mariadbd", "slurmdbd", "slurmctld", "slurmd", "slurmstepd", "sleep"}


@pytest.fixture
def folder(twins: Twins, tmp_path: Path) -> Path:
    """Where a test boots a twin of its own, the session's being down."""
    twins.close()
    return tmp_path / "twin"


def program(pid: int) -> str:
    """Nothing of a process that has just ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


@pytest.mark.soak
def test_nothing_is_left_after_an_exception(folder: Path) -> None:
    twin = Twin(load_profile("rcc"), folder, nodes=1)

    def run_a_job_and_fail() -> float:
        twin.run(["sbatch"], text=SLEEP)
        twin.run(["bash", "-c", STEP_RUNS])
        wait_until(lambda: set(map(program, twin.processes())) >= PROGRAMS, [], f"{PROGRAMS}", ANSWER_S)
        return 1 / 0

    with pytest.raises(ZeroDivisionError), twin:
        run_a_job_and_fail()
    assert twin.processes() == []
    shutil.rmtree(folder)


@pytest.mark.soak
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_takes_it_down(folder: Path, tmp_path: Path, number: signal.Signals) -> None:
    """After SIGKILL the daemons and the job are still there, and whoever gets the lock next ends them."""
    (tmp_path / "job.sh").write_text(SLEEP)
    ready = tmp_path / "ready"
    inside = f"sbatch {tmp_path}/job.sh; {STEP_RUNS}; echo $TWIN_FOLDER >{ready}.part; mv {ready}.part {ready}; sleep 1000"
    process = subprocess.Popen([sys.executable, "-m", "tests.twin", "rcc", "--nodes=1", "--", "bash", "-c", inside])
    while not ready.exists():
        assert process.poll() is None
        time.sleep(0.1)
    twin_folder = Path(ready.read_text().strip())
    process.send_signal(number)
    status = process.wait(PATIENCE_S)
    if number == signal.SIGKILL:
        assert marked(twin_folder) != []
        with only_twin(folder):
            assert marked(twin_folder) == []
        shutil.rmtree(twin_folder)
    else:
        assert (status, marked(twin_folder), twin_folder.exists()) == (128 + signal.SIGTERM, [], False)


@pytest.mark.soak
def test_a_boot_that_fails_shows_the_log_and_takes_all_down(folder: Path) -> None:
    twin = Twin(load_profile("rcc"), folder, nodes=1)
    with socket.socket() as taken:
        taken.bind(("", twin.shape.slurmdbd_port))
        with pytest.raises(HpcddpError, match=r"(?s)slurmdbd ended.*Address already in use"):
            twin.__enter__()
    assert twin.processes() == []
