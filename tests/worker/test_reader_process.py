"""The process that reads a node, and from its readings to what end.json tells."""

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
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import hpcddp
from hpcddp.core.attempt_records import GpuTelemetry, NodeTelemetry
from hpcddp.core.records import GPU_COLUMNS, NODE_COLUMNS, STEP_COLUMNS, RowWriter, gpus_file, node_file, steps_file
from hpcddp.worker.ranks import Rank
from hpcddp.worker.telemetry.node import TICK_NS
from hpcddp.worker.telemetry.reader_process import (
    LAST_READING_S,
    ReaderProcess,
    TimedSpan,
    energy_j_per_1000_samples,
    gpu_summary,
    increase,
    node_summary,
    start_reader,
    throttle_shares,
    timed_window,
)
from tests.worker import forked, given

S = 10**9

WINDOW = TimedSpan(100 * S, 104 * S, steps=8)


def write(file: Path, columns: tuple[str, ...], rows: list[dict[str, int]]) -> None:
    with RowWriter(file, columns) as out:
        for row in rows:
            out.row([row.get(name) for name in columns])


def gpu_row(second: float, **values: int) -> dict[str, int | None]:
    return {**dict.fromkeys(GPU_COLUMNS), "gpu": 0, "unix_ns": round(second * S), **values}


def test_the_window_is_the_timed_steps(tmp_path: Path) -> None:
    steps = [{"step": n, "flags": 2 if n == 5 else 0, "start_ns": 10 * n, "total_ns": 10} for n in range(8)]
    write(steps_file(tmp_path, 0), STEP_COLUMNS, steps)
    assert timed_window(tmp_path, 0, steady_from_step=2) == TimedSpan(20, 80, 6)
    assert timed_window(tmp_path, 0, steady_from_step=4) == TimedSpan(40, 80, 4)
    assert timed_window(tmp_path, 0, steady_from_step=9) is None


def test_a_long_run_is_not_held_in_memory(tmp_path: Path) -> None:
    """Ten rows a second for a week are six million."""
    write(steps_file(tmp_path, 0), STEP_COLUMNS, [dict.fromkeys(STEP_COLUMNS, 10**9 + n) for n in range(5000)])
    tracemalloc.start()
    try:
        assert timed_window(tmp_path, 0, steady_from_step=2) == TimedSpan(10**9, 2 * 10**9 + 2 * 4999, 5000)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_shares_and_rates_of_a_node(tmp_path: Path) -> None:
    """4 of 10 CPU seconds busy, 3 of them the job's; 2 s between the readings inside the window, others left out."""
    rows = [
        {"unix_ns": 90 * S, "cpu_busy_ns": 0, "cpu_total_ns": 0, "job_cpu_ns": 0, "mem_used_bytes": 99},
        {"unix_ns": 101 * S, "cpu_busy_ns": 50 * S, "cpu_total_ns": 90 * S, "job_cpu_ns": 7 * S, "mem_used_bytes": 5},
        {"unix_ns": 102 * S, "cpu_busy_ns": 51 * S, "cpu_total_ns": 95 * S, "job_cpu_ns": 8 * S, "mem_used_bytes": 8},
        {"unix_ns": 103 * S, "cpu_busy_ns": 54 * S, "cpu_total_ns": 100 * S, "job_cpu_ns": 10 * S, "mem_used_bytes": 6},
        {"unix_ns": 105 * S, "cpu_busy_ns": 99 * S, "cpu_total_ns": 999 * S, "job_cpu_ns": 11 * S, "mem_used_bytes": 99},
    ]
    for row, received in zip(rows, (0, 1000, 1500, 4000, 9999), strict=True):
        row["net_rx_bytes"] = received
    write(node_file(tmp_path, "n1"), NODE_COLUMNS, rows)
    found = node_summary(tmp_path, "n1", WINDOW, samples=4 * WINDOW.steps)
    assert (found.host, found.window_s, found.samples, found.readings, found.gpus) == ("n1", 4, 32, 3, ())
    assert (found.cpu_busy_share, found.cpu_job_share) == (0.4, 0.3)
    assert found.cpu_foreign_share == pytest.approx(0.1)
    assert (found.net_rx_bytes_per_s, found.ib_rx_bytes_per_s) == (1500, None)
    assert (found.mem_used_peak_bytes, found.mem_total_bytes) == (8, None)


def test_a_window_without_readings_is_unknown(tmp_path: Path) -> None:
    write(node_file(tmp_path, "n1"), NODE_COLUMNS, [{"unix_ns": 101 * S, "cpu_busy_ns": 1, "cpu_total_ns": 2}])
    found = node_summary(tmp_path, "n1", WINDOW, samples=4 * WINDOW.steps)
    assert (found.readings, found.cpu_busy_share, found.net_rx_bytes_per_s) == (1, None, None)


def test_gpus_are_apart(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [gpu_row(101, gpu=gpu, power_mw=1000 * (gpu + 1)) for gpu in (1, 0)]
    write(gpus_file(tmp_path, "n1"), GPU_COLUMNS, rows)
    with gpus_file(tmp_path, "n1").open("a") as out:
        out.write("101500000000,0,9")
    found = node_summary(tmp_path, "n1", WINDOW, samples=4 * WINDOW.steps).gpus
    assert [(gpu.gpu, gpu.readings, gpu.power_w_peak) for gpu in found] == [(0, 1, 1.0), (1, 1, 2.0)]


def test_energy_is_the_counters() -> None:
    """300 J in the 2 s between readings are 600 J in a window of 4 s, whatever single readings of power say."""
    rows = [gpu_row(101, energy_mj=5_000_000, power_mw=1), gpu_row(103, energy_mj=5_300_000, power_mw=1)]
    found = gpu_summary(0, rows, WINDOW.s)
    assert (found.energy_j, found.energy_from) == (600, "counter")


def test_energy_falls_back_on_power() -> None:
    rows = [gpu_row(101, energy_mj=9, power_mw=200_000), gpu_row(103, energy_mj=3, power_mw=300_000)]
    found = gpu_summary(0, rows, WINDOW.s)
    assert (found.power_w_mean, found.power_w_peak) == (250, 300)
    assert (found.energy_j, found.energy_from) == (1000, "power")
    nothing = gpu_summary(0, [gpu_row(101), gpu_row(103)], WINDOW.s)
    assert (nothing.energy_j, nothing.energy_from) == (None, None)


def test_clocks_and_utilisation() -> None:
    rows = [gpu_row(101 + n / 10, sm_mhz=mhz, util_percent=mhz // 15) for n, mhz in enumerate((1500, 1500, 900))]
    found = gpu_summary(2, [*rows, gpu_row(102, mem_used_bytes=7, temperature_c=80)], WINDOW.s)
    assert (found.gpu, found.readings, found.sm_mhz_median, found.sm_mhz_min) == (2, 4, 1500, 900)
    assert (found.sm_mhz_begin, found.sm_mhz_end) == (1500, 900)
    assert found.util_percent_mean == pytest.approx((100 + 100 + 60) / 3)
    assert (found.mem_used_peak_bytes, found.temperature_c_peak, found.throttle) == (7, 80, None)


def test_throttle_reasons_are_words() -> None:
    assert throttle_shares([]) is None
    assert throttle_shares([0, 0]) == {}
    assert throttle_shares([0x4, 0x0, 0x44, 0x1000]) == {"sw_power_cap": 0.5, "hw_thermal_slowdown": 0.25, "0x1000": 0.25}


def test_a_counter_that_falls_is_unknown() -> None:
    """It was reset or wrapped: no growth is better than a wrong one. Readings without it are passed over."""
    rows = [gpu_row(101, energy_mj=1), gpu_row(102), gpu_row(103, energy_mj=5)]
    assert increase(rows, "energy_mj") == (4, 2.0)
    assert increase([*rows, gpu_row(104, energy_mj=4)], "energy_mj") is None
    assert increase(rows[:2], "energy_mj") is None


def node(energy_j: float | None) -> NodeTelemetry:
    return NodeTelemetry(samples=500, gpus=(GpuTelemetry(gpu=0, readings=2, energy_j=energy_j),))


def test_energy_per_1000_samples() -> None:
    nodes = [node(100.0), node(300.0)]
    assert energy_j_per_1000_samples(nodes) == 800
    assert energy_j_per_1000_samples([*nodes, node(None)]) is None
    assert energy_j_per_1000_samples([*nodes, NodeTelemetry(samples=500)]) is None


@pytest.mark.dear
def test_a_run_leaves_readings_and_a_summary(tmp_path: Path) -> None:
    ran = forked.ran(tmp_path, given.point(2, nodes=2, steps=300, measure={"telemetry_hz": 10.0}))
    found = ran.end["telemetry"]
    assert (found["hz"], found["energy_j_per_1000_samples"]) == (10, None)
    assert [node["host"] for node in found["nodes"]] == ["node0", "node1"]
    for node in found["nodes"]:
        assert node_file(ran.attempt, node["host"]).stat().st_size > 200
        assert (node["samples"], node["gpus"], node["readings"] >= 2) == (300 * 8, [], True)
        assert 0 < node["cpu_job_share"] <= 1.1
        assert 0 < node["cpu_busy_share"] <= 1
        about = ran.read(f"nodes/{node['host']}.json")["telemetry"]
        assert about == {"hz": 10.0, "gpus": [], "no_gpus": "the run uses no GPU"}
    assert all(entry["peak_memory_bytes"]["resident"] > 2**20 for entry in ran.end["ranks"])
    assert ran.end["flops_per_sample"] == 24_995_328


HZ = 10.0

BUSY = "while True: pass"


def rank(local_rank: int = 0) -> Rank:
    where = {"host": "here", "master_addr": "127.0.0.1", "master_port": 1}
    return Rank(rank=local_rank, local_rank=local_rank, world=1, nodes=1, job="7", restart=0, **where)  # type: ignore[arg-type]


def started_in(attempt: Path, **changes: Any) -> ReaderProcess:
    found = start_reader(given.point(1, measure={"telemetry_hz": HZ}, **changes), rank(), attempt)
    assert found
    return found


@pytest.fixture
def started(tmp_path: Path) -> Iterator[ReaderProcess]:
    found = started_in(tmp_path)
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
def test_readings_are_the_nodes_and_come_at_the_rate_asked_for(tmp_path: Path, started: ReaderProcess) -> None:
    file = node_file(tmp_path, "here")
    until(lambda: file.exists() and len(rows(file)) >= 15)
    found = rows(file)
    assert tuple(found[0]) == NODE_COLUMNS
    apart_s = [(after - before) / 1e9 for before, after in itertools.pairwise(counter(file, "unix_ns"))]
    assert min(apart_s) < 2 / HZ
    assert sum(apart_s) > (len(apart_s) - 1) / HZ  # the first of them may have been late
    first, last = found[0], found[-1]
    assert abs(time.time_ns() - (last["unix_ns"] or 0)) < 60e9
    assert last["mem_total_bytes"] == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 0 < (last["mem_used_bytes"] or 0) < (last["mem_total_bytes"] or 0)
    elapsed_ns = (last["unix_ns"] or 0) - (first["unix_ns"] or 0)
    passed_ns = (last["cpu_total_ns"] or 0) - (first["cpu_total_ns"] or 0)
    assert passed_ns / elapsed_ns / (os.cpu_count() or 1) == pytest.approx(1, abs=0.3)
    assert (last["ib_rx_bytes"] is None) == (not list(Path("/sys/class/infiniband").glob("*")))


@pytest.mark.dear
def test_work_of_the_job_is_seen(tmp_path: Path) -> None:
    busy = subprocess.Popen([sys.executable, "-c", BUSY])
    found = started_in(tmp_path)
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
    assert start_reader(given.point(1), rank(), tmp_path) is None
    assert start_reader(given.point(1, measure={"telemetry_hz": HZ}), rank(local_rank=1), tmp_path) is None
    assert not (tmp_path / "nodes").exists()


@pytest.mark.timed
def test_it_ends_when_told(tmp_path: Path, started: ReaderProcess) -> None:
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
    monkeypatch.setattr("hpcddp.worker.telemetry.reader_process.LAST_READING_S", 0.1)
    os.kill(started.pid, signal.SIGSTOP)
    started.stop()
    pipes = started._process.stdin, started._process.stdout
    assert (started._process.returncode, [pipe and pipe.closed for pipe in pipes]) == (-signal.SIGKILL, [True, True])


def _start_and_wait(attempt: Path, pids: Any) -> None:
    found = started_in(attempt)
    loader = os.fork()
    if loader:
        pids.send((found.pid, loader))
    time.sleep(60)
    os._exit(0)


def test_it_ends_with_its_rank(tmp_path: Path) -> None:
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
        os.kill(started.pid, sent)
    until(file.exists)
    before = len(rows(file))
    until(lambda: len(rows(file)) >= before + 2)


def test_ranks_go_first(started: ReaderProcess) -> None:
    until(lambda: os.getpriority(os.PRIO_PROCESS, started.pid) == 19)


def test_it_runs_the_code_of_its_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot, checkout = tmp_path / "snapshot", tmp_path / "checkout"
    package = Path(hpcddp.__file__).parent
    for folder in ("core", "worker"):
        shutil.copytree(package / folder, snapshot / "hpcddp" / folder)
    shutil.copy(package / "__init__.py", snapshot / "hpcddp")
    code = snapshot / "hpcddp" / "worker" / "telemetry" / "reader.py"
    code.write_text(code.read_text().replace("the run uses no GPU", "said by the snapshot"))
    (checkout / "hpcddp").mkdir(parents=True)
    for decoy in (checkout / "json.py", checkout / "hpcddp" / "__init__.py"):
        decoy.write_text("raise SystemExit('imported from the working directory')")
    monkeypatch.chdir(checkout)
    monkeypatch.syspath_prepend(str(snapshot))
    found = started_in(tmp_path)
    found.stop()
    assert found.description["no_gpus"] == "said by the snapshot"


def test_gpus_that_cannot_be_read_are_no_error(tmp_path: Path) -> None:
    found = started_in(tmp_path, device="cuda")
    file = node_file(tmp_path, "here")
    until(lambda: file.exists() and len(rows(file)) >= 2)
    found.stop()
    assert found._process.returncode == 0
    if not found.description["gpus"]:  # here is no driver
        assert found.description["no_gpus"].startswith("no NVML: ")
        assert not gpus_file(tmp_path, "here").exists()
    else:
        assert tuple(rows(gpus_file(tmp_path, "here"))[0]) == GPU_COLUMNS
