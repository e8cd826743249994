"""A twin leaves nothing behind, however it ends."""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hpcddp.cluster.profile_file import load_profile
from hpcddp.core.errors import HpcddpError
from tests.backends.fake_slurm import PATIENCE_S
from tests.twin.lock import only_twin
from tests.twin.manager import Twins
from tests.twin.processes import ANSWER_S, marked, wait_until
from tests.twin.twin import Twin

SLEEP = "#!/bin/bash\n#SBATCH --account=proj --partition=gpu --gres=gpu:1 --mem=1000 --output=/dev/null\nsrun sleep 1000\n"
STEP_RUNS = "until squeue -h -s | grep -q sleep; do sleep 0.1; done"


@pytest.fixture
def folder(twins: Twins, tmp_path: Path) -> Path:
    """Where a test boots a twin of its own, the session's being down."""
    twins.close()
    return tmp_path / "twin"


def test_nothing_is_left_after_an_exception(folder: Path) -> None:
    """After the block no process of the twin or its job is left, and its folder can be deleted."""
    twin = Twin(load_profile("rcc"), folder, nodes=1)
    with pytest.raises(ZeroDivisionError), twin:
        run_a_job_and_fail(twin)
    assert twin.processes() == []
    shutil.rmtree(folder)


def run_a_job_and_fail(twin: Twin) -> float:
    twin.run(["sbatch"], text=SLEEP)
    twin.run(["bash", "-c", STEP_RUNS])
    programs = {"munged", "mariadbd", "slurmdbd", "slurmctld", "slurmd", "slurmstepd", "sleep"}
    wait_until(lambda: programs <= set(map(_program, twin.processes())), [], f"{programs}", ANSWER_S)
    return 1 / 0


def _program(pid: int) -> str:
    """Nothing of a process that has just ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


@pytest.mark.soak
@pytest.mark.usefixtures("folder")
def test_a_signal_takes_it_down(tmp_path: Path) -> None:
    """SIGTERM ends the twin by hand and its job, and shows in the status."""
    process, twin_folder = twin_by_hand(tmp_path)
    process.terminate()
    assert process.wait(PATIENCE_S) == 128 + signal.SIGTERM
    assert marked(twin_folder) == []
    assert not twin_folder.exists()


@pytest.mark.soak
def test_what_a_killed_process_left_goes_with_the_next_twin(folder: Path, tmp_path: Path) -> None:
    """After SIGKILL the daemons and the job are still there, and whoever gets the lock next ends them."""
    process, twin_folder = twin_by_hand(tmp_path)
    process.kill()
    process.wait()
    assert marked(twin_folder) != []
    with only_twin(folder):
        assert marked(twin_folder) == []
    shutil.rmtree(twin_folder)


def twin_by_hand(tmp_path: Path) -> tuple[subprocess.Popen[bytes], Path]:
    """`python -m tests.twin` in which a job runs, and the twin's folder."""
    (tmp_path / "job.sh").write_text(SLEEP)
    ready = tmp_path / "ready"
    inside = f"sbatch {tmp_path}/job.sh; {STEP_RUNS}; echo $TWIN_FOLDER >{ready}.part; mv {ready}.part {ready}; sleep 1000"
    process = subprocess.Popen([sys.executable, "-m", "tests.twin", "rcc", "--nodes=1", "--", "bash", "-c", inside])
    while not ready.exists():
        assert process.poll() is None
        time.sleep(0.1)
    return process, Path(ready.read_text().strip())


@pytest.mark.soak
def test_a_boot_that_fails_shows_the_log_and_takes_all_down(folder: Path) -> None:
    """A daemon that cannot start is named, with the end of its log, and the ones before it end."""
    twin = Twin(load_profile("rcc"), folder, nodes=1)
    with socket.socket() as taken:
        taken.bind(("", twin.shape.slurmdbd_port))
        with pytest.raises(HpcddpError, match=r"(?s)slurmdbd ended.*Address already in use"):
            twin.__enter__()
    assert twin.processes() == []


@pytest.mark.usefixtures("folder")
def test_a_second_twin_in_one_process_is_refused(tmp_path: Path) -> None:
    """Waiting for the lock that the process itself holds would never end."""
    with only_twin(tmp_path / "a"), pytest.raises(HpcddpError, match="already"), only_twin(tmp_path / "b"):
        pass
