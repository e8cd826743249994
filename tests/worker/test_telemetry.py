"""The process that reads a node: real processes, real counters."""

from __future__ import annotations

import csv
import itertools
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import hpcddp
from hpcddp.core.records import GPU_COLUMNS, NODE_COLUMNS, gpus_file, node_file
from hpcddp.worker.ranks import Rank
from hpcddp.worker.telemetry.node import TICK_NS
from hpcddp.worker.telemetry.reader_process import LAST_READING_S, ReaderProcess, start_reader
from tests.worker import given

HZ = 10.0

BUSY = "while True: pass"


def rank(local_rank: int = 0) -> Rank:
    where = {"host": "here", "master_addr": "127.0.0.1", "master_port": 1}
    return Rank(rank=local_rank, local_rank=local_rank, world=1, nodes=1, job="7", restart=0, **where)  # type: ignore[arg-type]


def reader(attempt: Path, hz: float = HZ, **changes: Any) -> ReaderProcess | None:
    return start_reader(given.point(1, measure={"telemetry_hz": hz}, **changes), rank(), attempt)


@pytest.fixture
def started(tmp_path: Path) -> Iterator[ReaderProcess]:
    found = reader(tmp_path)
    assert found
    yield found
    if found._process.poll() is None:
        found.stop()


def rows(file: Path) -> list[dict[str, int | None]]:
    with file.open(newline="") as lines:
        return [{name: int(value) if value else None for name, value in row.items()} for row in csv.DictReader(lines)]


def counter(file: Path, column: str) -> list[int]:
    return [value for row in rows(file) if (value := row[column]) is not None]


def until(true: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + 60
    while not true():
        assert time.monotonic() < give_up_at
        time.sleep(0.02)


def pid_of(found: ReaderProcess) -> int:
    return found._process.pid


def runs(pid: int) -> bool:
    """Not when it has ended and merely nobody has asked how."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False


def spent_ns(pid: int) -> int:
    """User and system time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_NS


@pytest.mark.timed
def test_readings_come_at_the_rate_asked_for(tmp_path: Path, started: ReaderProcess) -> None:
    """At 10 Hz a tenth of a second apart, or later where the machine had none to spare; on the disk while it goes on."""
    file = node_file(tmp_path, "here")
    until(lambda: file.exists() and len(rows(file)) >= 15)
    found = rows(file)
    assert tuple(found[0]) == NODE_COLUMNS
    apart_s = [(after - before) / 1e9 for before, after in itertools.pairwise(counter(file, "unix_ns"))]
    assert min(apart_s) < 2 / HZ
    assert sum(apart_s) > (len(apart_s) - 1) / HZ  # the first of them may have been late


@pytest.mark.timed
def test_figures_are_the_nodes(tmp_path: Path, started: ReaderProcess) -> None:
    """Time is Unix time, memory the machine's, processor time that of all processors; without InfiniBand its cells are empty."""
    file = node_file(tmp_path, "here")
    until(lambda: file.exists() and len(rows(file)) >= 5)
    first, last = rows(file)[0], rows(file)[-1]
    assert abs(time.time_ns() - (last["unix_ns"] or 0)) < 60e9
    assert last["mem_total_bytes"] == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 0 < (last["mem_used_bytes"] or 0) < (last["mem_total_bytes"] or 0)
    elapsed_ns = (last["unix_ns"] or 0) - (first["unix_ns"] or 0)
    passed_ns = (last["cpu_total_ns"] or 0) - (first["cpu_total_ns"] or 0)
    assert passed_ns / elapsed_ns / (os.cpu_count() or 1) == pytest.approx(1, abs=0.3)
    assert (last["ib_rx_bytes"] is None) == (not list(Path("/sys/class/infiniband").glob("*")))


@pytest.mark.dear
def test_work_of_the_job_is_seen(tmp_path: Path) -> None:
    """What a process below the rank spends is the job's and the node's, and stays so when the process has ended."""
    busy = subprocess.Popen([sys.executable, "-c", BUSY])
    found = reader(tmp_path)
    assert found
    file = node_file(tmp_path, "here")
    until(lambda: file.exists() and len(rows(file)) >= 1)
    before_ns = spent_ns(busy.pid)
    until(lambda: spent_ns(busy.pid) - before_ns > 0.5e9)
    after_ns = spent_ns(busy.pid)
    busy.kill()
    busy.wait()
    readings = len(rows(file))
    until(lambda: len(rows(file)) >= readings + 2)
    found.stop()
    job, node = counter(file, "job_cpu_ns"), counter(file, "cpu_busy_ns")
    assert job == sorted(job)
    assert job[-1] - job[0] >= after_ns - before_ns
    assert node[-1] - node[0] >= 0.5 * (after_ns - before_ns)  # it is sampled


def test_no_readings_no_process(tmp_path: Path) -> None:
    """`telemetry_hz: 0` starts nothing, and one rank of a node is enough."""
    assert reader(tmp_path, hz=0.0) is None
    assert start_reader(given.point(1, measure={"telemetry_hz": HZ}), rank(local_rank=1), tmp_path) is None
    assert not (tmp_path / "nodes").exists()


@pytest.mark.timed
def test_it_ends_when_told(tmp_path: Path, started: ReaderProcess) -> None:
    """By its own will and at once, although a process forked meanwhile (a loader's) holds the other end of its pipe."""
    loader = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
    loader.start()
    begin = time.monotonic()
    try:
        started.stop()
    finally:
        loader.kill()
        loader.join()
    assert started._process.returncode == 0
    assert time.monotonic() - begin < LAST_READING_S


def test_one_that_does_not_end_is_killed(started: ReaderProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a full machine, where it comes last; nothing of it stays open."""
    monkeypatch.setattr("hpcddp.worker.telemetry.reader_process.LAST_READING_S", 0.1)
    os.kill(pid_of(started), signal.SIGSTOP)
    started.stop()
    pipes = started._process.stdin, started._process.stdout
    assert (started._process.returncode, [pipe and pipe.closed for pipe in pipes]) == (-signal.SIGKILL, [True, True])


def _start_and_wait(attempt: Path, pids: Any) -> None:
    found = reader(attempt)
    assert found
    loader = os.fork()
    if loader:
        pids.send((pid_of(found), loader))
    time.sleep(60)
    os._exit(0)


def test_it_ends_with_its_rank(tmp_path: Path) -> None:
    """A rank that is killed leaves no process behind, although one of its loaders, still there, holds the pipe."""
    ours, theirs = multiprocessing.Pipe()
    parent = multiprocessing.get_context("fork").Process(target=_start_and_wait, args=(tmp_path, theirs))
    parent.start()
    pid, loader = ours.recv()
    try:
        assert runs(pid)
        parent.kill()
        parent.join()
        until(lambda: not runs(pid))
    finally:
        os.kill(loader, signal.SIGKILL)
        parent.kill()


def test_signals_to_the_job_do_not_end_it(tmp_path: Path, started: ReaderProcess) -> None:
    """Slurm sends its warning before the time limit to every process of a step; Ctrl-C goes to all of a terminal."""
    file = node_file(tmp_path, "here")
    for sent in (signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2):
        os.kill(pid_of(started), sent)
    until(file.exists)
    before = len(rows(file))
    until(lambda: len(rows(file)) >= before + 2)


def test_ranks_go_first(started: ReaderProcess) -> None:
    """The process has the lowest priority there is, once its rank need not wait for it."""
    until(lambda: os.getpriority(os.PRIO_PROCESS, pid_of(started)) == 19)


def test_it_runs_the_code_of_its_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package is imported from where the rank's path finds it (a snapshot), never from the working directory."""
    snapshot, checkout = tmp_path / "snapshot", tmp_path / "checkout"
    package = Path(hpcddp.__file__).parent
    for folder in ("core", "worker"):
        shutil.copytree(package / folder, snapshot / "hpcddp" / folder)
    shutil.copy(package / "__init__.py", snapshot / "hpcddp")
    code = snapshot / "hpcddp" / "worker" / "telemetry" / "open_gpus.py"
    code.write_text(code.read_text().replace("the run uses no GPU", "said by the snapshot"))
    (checkout / "hpcddp").mkdir(parents=True)
    for decoy in (checkout / "json.py", checkout / "hpcddp" / "__init__.py"):
        decoy.write_text("raise SystemExit('imported from the working directory')")
    monkeypatch.chdir(checkout)
    monkeypatch.syspath_prepend(str(snapshot))
    found = reader(tmp_path)
    assert found
    found.stop()
    assert found.description["no_gpus"] == "said by the snapshot"


def test_gpus_that_cannot_be_read_are_no_error(tmp_path: Path) -> None:
    """Without a driver there is a reason and no file of GPUs; the node is read all the same."""
    found = reader(tmp_path, device="cuda")
    assert found
    file = node_file(tmp_path, "here")
    until(lambda: file.exists() and len(rows(file)) >= 2)
    found.stop()
    assert found._process.returncode == 0
    if not found.description["gpus"]:  # here is no driver
        assert found.description["no_gpus"].startswith("no NVML: ")
        assert not gpus_file(tmp_path, "here").exists()
    else:
        assert tuple(rows(gpus_file(tmp_path, "here"))[0]) == GPU_COLUMNS
