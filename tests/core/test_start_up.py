"""What a process of a job finds out about itself: its start, its signals, its memory, its processors."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from hpcddp.core.job_ids import slurm_environment
from hpcddp.core.launch_record import LaunchRecord
from hpcddp.core.records import STEP_COLUMNS, RowWriter, steps_file
from hpcddp.core.start_up import StartUp, launched_unix_ns, start_up
from hpcddp.core.stop_signal import block_stop_signal, request_requeue, stop_requested
from hpcddp.core.written_lists import cpu_list, parse_cpu_list
from tests.worker import forked

S = 1_000_000_000
NOW_NS = 1_700_000_000 * S


def launch(launched_ns: int | None = NOW_NS, met_ns: int | None = NOW_NS + 20 * S) -> LaunchRecord:
    return LaunchRecord(schema=1, point="p", ranks=1, gpus=(), env_id="e", started_unix_ns=met_ns, launched_unix_ns=launched_ns)


def first_step(attempt: Path, start_ns: int) -> None:
    """One row, as the worker writes it."""
    steps_file(attempt, 0).parent.mkdir(parents=True)
    with RowWriter(steps_file(attempt, 0), STEP_COLUMNS) as writer:
        writer.row([0, 1, start_ns, *([5] * (len(STEP_COLUMNS) - 3))])


def test_until_all_met_and_until_the_first_step(tmp_path: Path) -> None:
    first_step(tmp_path, NOW_NS + 34 * S)
    assert start_up(tmp_path, launch()) == StartUp(until_met_s=20.0, until_first_step_s=34.0)


@pytest.mark.parametrize(
    ("launched_ns", "met_ns", "step_ns"),
    [(None, NOW_NS, NOW_NS), (NOW_NS, None, NOW_NS), (NOW_NS, NOW_NS, None), (NOW_NS, NOW_NS - 1, NOW_NS), (NOW_NS, NOW_NS, 0)],
)
def test_what_is_not_recorded_or_cannot_be_is_unknown(
    tmp_path: Path, launched_ns: int | None, met_ns: int | None, step_ns: int | None
) -> None:
    if step_ns is not None:
        first_step(tmp_path, step_ns)
    assert start_up(tmp_path, launch(launched_ns, met_ns)) is None


def test_a_process_knows_when_it_was_started() -> None:
    code = "import time; time.sleep(0.4); from hpcddp.core.start_up import launched_unix_ns; print(launched_unix_ns())"
    before_ns = time.time_ns()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert -0.05 * S < int(done.stdout) - before_ns < 0.35 * S


def test_rows_that_are_a_fifo_are_none(tmp_path: Path) -> None:
    """Whoever may write in a study can make one, and reading it would wait for ever."""
    steps_file(tmp_path, 0).parent.mkdir()
    os.mkfifo(steps_file(tmp_path, 0))
    assert start_up(tmp_path, launch()) is None


def stat(proc: Path, pid: int, name: str, parent: int, ticks: int) -> None:
    """/proc/PID/stat of a process that started so many ticks after the machine."""
    (proc / str(pid)).mkdir(parents=True)
    (proc / str(pid) / "stat").write_text(f"{pid} ({name}) S {parent} {'0 ' * 17}{ticks} 0 0\n")


def test_of_a_step_slurms_daemon_counts(tmp_path: Path) -> None:
    """Between it and the rank may be a shell, a container and torchrun, each with a name that holds anything."""
    own = os.getpid()
    stat(tmp_path, own, "python3 (a) b", 71, 900)
    stat(tmp_path, 71, "torchrun", 70, 500)
    without = launched_unix_ns(tmp_path)
    stat(tmp_path, 70, "slurmstepd", 1, 100)
    with_daemon = launched_unix_ns(tmp_path)
    assert without is not None
    assert with_daemon is not None
    ticks_per_s = os.sysconf("SC_CLK_TCK")
    assert (without - with_daemon) / S == pytest.approx(800 / ticks_per_s, abs=0.05)


def test_where_the_system_says_nothing_nothing_is_known(tmp_path: Path) -> None:
    assert launched_unix_ns(tmp_path) is None


USR2_THEN_TERM = (signal.SIGUSR2, signal.SIGTERM)
"""In the order of their numbers, in which Linux delivers what waits: who is not ended by the first is ended by the second."""


def spawned() -> int:
    """How a process that a rank starts ends."""
    child = subprocess.Popen([sys.executable, "-c", "import signal; print(flush=True); signal.pause()"], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    for number in USR2_THEN_TERM:
        child.send_signal(number)
    child.communicate()
    return child.returncode


def forks() -> int:
    """How a process that a rank forks ends, once it has said that SIGTERM ends it: what came before that might pass it by."""
    ready, word = os.pipe()
    pid = os.fork()
    if not pid:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.write(word, b".")
        signal.pause()
    os.read(ready, 1)
    for number in USR2_THEN_TERM:
        os.kill(pid, number)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def of_a_rank() -> dict[str, Any]:
    """With a handler that somebody has left behind, and a thread."""
    handled = []
    signal.signal(signal.SIGUSR2, lambda *_: handled.append(1))
    block_stop_signal()
    before = stop_requested()
    found = {"spawned": spawned(), "forked": forks()}
    released = threading.Event()
    thread = threading.Thread(target=released.wait)
    thread.start()
    meanwhile = stop_requested()
    os.kill(os.getpid(), signal.SIGUSR2)
    afterwards = [stop_requested(), stop_requested()]
    released.set()
    thread.join()
    return {**found, "before": before, "meanwhile": meanwhile, "afterwards": afterwards, "handled": len(handled)}


def test_it_is_held_back(tmp_path: Path) -> None:
    (found,) = forked.values(tmp_path, 1, of_a_rank)
    assert found.pop("spawned") == -signal.SIGTERM
    assert found.pop("forked") == -signal.SIGTERM
    assert found == {"before": False, "meanwhile": False, "afterwards": [True, True], "handled": 0}


def test_word_for_the_batch_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HPCDDP_REQUEUE", raising=False)
    assert request_requeue() is False
    monkeypatch.setenv("HPCDDP_REQUEUE", str(tmp_path / "requeue"))
    assert request_requeue() is True
    assert (tmp_path / "requeue").exists()


ROUNDS, PAGES = 10, 2**25 // 4096

PROGRAM = """
import resource, sys
from hpcddp.core.malloc import retain_freed_memory
if "keep" in sys.argv:
    assert retain_freed_memory()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for round in range(11):
    if round == 1:
        before = faults()  # the first round took the memory
    [b"x" * 2**22 for _ in range(8)]
print(faults() - before)
"""


def page_faults(*arguments: str) -> int:
    """Of ROUNDS times 32 MiB that are taken, filled and freed."""
    printed = subprocess.run([sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, check=True)
    return int(printed.stdout)


def test_kept_memory_costs_no_page_faults() -> None:
    assert page_faults("keep") < PAGES / 2 < ROUNDS * PAGES / 2 < page_faults()


def test_slurm_commands_do_not_see_an_enclosing_allocation() -> None:
    dropped = {"SBATCH_ACCOUNT": "a", "SQUEUE_PARTITION": "p", "SACCT_LOCAL": "1"}
    dropped |= {"SLURM_JOB_ID": "1", "SUBMITIT_EXECUTOR": "slurm", "HPCDDP_TASK": "1"}
    retained = {"SLURM_CONF": "/c", "SLURM_CLUSTERS": "east", "PATH": "/bin"}
    assert slurm_environment({**dropped, **retained}) == retained


def test_lists_of_processors_are_read_and_written() -> None:
    assert [parse_cpu_list(text) for text in ("", "0\n", "0-3,64-66,9")] == [set(), {0}, {0, 1, 2, 3, 9, 64, 65, 66}]
    assert cpu_list(parse_cpu_list("64-66,9,0-2,3")) == "0-3,9,64-66"


@pytest.mark.parametrize("text", ["x", "3-1", "-1", "0-99999999999", "1-2-3"])
def test_what_is_no_list_is_refused(text: str) -> None:
    """A damaged record must not ask for memory without end."""
    with pytest.raises(ValueError, match=r"list of processors|invalid literal"):
        parse_cpu_list(text)
