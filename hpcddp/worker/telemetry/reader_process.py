"""Telemetry of a run: one process per node reads counters beside the ranks; a summary of each node's timed window afterwards."""

from __future__ import annotations

import contextlib
import csv
import itertools
import json
import os
import select
import statistics
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import hpcddp
from hpcddp.core.attempt_records import GpuTelemetry, NodeTelemetry, Telemetry
from hpcddp.core.epoch_plan import EpochPlan
from hpcddp.core.point import Point
from hpcddp.core.records import gpus_file, node_file, steps_file
from hpcddp.core.schema import decode_record, encode
from hpcddp.worker.binding import pci_address
from hpcddp.worker.ranks import Rank
from hpcddp.worker.rendezvous import ProcessGroup

Reading = dict[str, int | None]

THROTTLE = {
    0x001: "gpu_idle",
    0x002: "applications_clocks",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal_slowdown",
    0x040: "hw_thermal_slowdown",
    0x080: "hw_power_brake_slowdown",
    0x100: "display_clock",
    1 << 32: "throttled",
}
"""Bits of `throttle_reasons`: nvml.h, "Clocks Event Reasons"; the last is an AMD GPU's that does not say why. `gpu_idle` and
`applications_clocks` are no trouble of the GPU."""


@dataclass(frozen=True)
class TimedSpan:
    """The timed steps of one rank, with what lies between them."""

    begin_ns: int
    end_ns: int
    steps: int

    @property
    def s(self) -> float:
        return (self.end_ns - self.begin_ns) / 1e9


def timed_window(attempt: Path, rank: int, steady_from_step: int) -> TimedSpan | None:
    """From the rank's step rows; None without a timed step."""
    begin_ns = end_ns = steps = 0
    for row in _rows(steps_file(attempt, rank)):
        if (row["step"] or 0) >= steady_from_step:
            end_ns = (row["start_ns"] or 0) + (row["total_ns"] or 0)
            begin_ns = begin_ns if steps else row["start_ns"] or 0
            steps += 1
    return TimedSpan(begin_ns, end_ns, steps) if steps else None


def node_summary(attempt: Path, host: str, window: TimedSpan, samples: int, energy_source: str | None = None) -> NodeTelemetry:
    """What a node's readings say of the window, in which so many samples were trained; `energy_source` is where its energy and
    power are from."""
    rows = _within(window, _rows(node_file(attempt, host)))
    gpus: dict[int, list[Reading]] = {}
    for row in _within(window, _rows(gpus_file(attempt, host))):
        gpus.setdefault(row["gpu"] or 0, []).append(row)
    power_mw, energy_j = _known(rows, "power_mw"), _energy(rows, window.s)[0]
    busy, job = _cpu_share(rows, "cpu_busy_ns"), _cpu_share(rows, "job_cpu_ns")
    return NodeTelemetry(
        host=host,
        window_s=window.s,
        samples=samples,
        readings=len(rows),
        readings_s=(_time_ns(rows[-1]) - _time_ns(rows[0])) / 1e9 if len(rows) > 1 else None,
        cpu_busy_share=busy,
        cpu_job_share=job,
        cpu_foreign_share=None if busy is None or job is None else max(0.0, busy - job),
        net_rx_bytes_per_s=rate(rows, "net_rx_bytes"),
        net_tx_bytes_per_s=rate(rows, "net_tx_bytes"),
        ib_rx_bytes_per_s=rate(rows, "ib_rx_bytes"),
        ib_tx_bytes_per_s=rate(rows, "ib_tx_bytes"),
        mem_used_mean_bytes=_mean(_known(rows, "mem_used_bytes")),
        mem_used_peak_bytes=max(_known(rows, "mem_used_bytes"), default=None),
        mem_total_bytes=max(_known(rows, "mem_total_bytes"), default=None),
        power_w_mean=_mean([value / 1e3 for value in power_mw]),
        power_w_peak=max(power_mw) / 1e3 if power_mw else None,
        energy_j=energy_j,
        energy_from=energy_source if energy_j is not None else None,
        gpus=tuple(gpu_summary(gpu, readings, window.s) for gpu, readings in sorted(gpus.items())),
    )


def gpu_summary(gpu: int, rows: Sequence[Reading], window_s: float) -> GpuTelemetry:
    """What a GPU's readings within the window say of it."""
    sm_mhz, mem_mhz, power_mw = (_known(rows, column) for column in ("sm_mhz", "mem_mhz", "power_mw"))
    energy_j, energy_from = _energy(rows, window_s)
    quarter = -(-len(sm_mhz) // 4)
    return GpuTelemetry(
        gpu=gpu,
        readings=len(rows),
        util_percent_mean=_mean(_known(rows, "util_percent")),
        mem_used_mean_bytes=_mean(_known(rows, "mem_used_bytes")),
        mem_used_peak_bytes=max(_known(rows, "mem_used_bytes"), default=None),
        power_w_mean=_mean([value / 1e3 for value in power_mw]),
        power_w_peak=max(power_mw) / 1e3 if power_mw else None,
        sm_mhz_median=statistics.median(sm_mhz) if sm_mhz else None,
        sm_mhz_min=min(sm_mhz, default=None),
        sm_mhz_begin=statistics.median(sm_mhz[:quarter]) if sm_mhz else None,
        sm_mhz_end=statistics.median(sm_mhz[-quarter:]) if sm_mhz else None,
        mem_mhz_median=statistics.median(mem_mhz) if mem_mhz else None,
        temperature_c_peak=max(_known(rows, "temperature_c"), default=None),
        throttle=throttle_shares(_known(rows, "throttle_reasons")),
        energy_j=energy_j,
        energy_from=energy_from,
    )


def run_summary(hz: float, nodes: Sequence[NodeTelemetry]) -> Telemetry:
    """Of all nodes."""
    return Telemetry(hz=hz, energy_j_per_1000_samples=energy_j_per_1000_samples(nodes), nodes=tuple(nodes))


def energy_j_per_1000_samples(nodes: Sequence[NodeTelemetry]) -> float | None:
    """Sum over nodes and GPUs of energy_j / samples x 1000. Nodes of one job train the same samples: the first node's count."""
    parts = [gpu.energy_j for node in nodes for gpu in node.gpus]
    known = [joules for joules in parts if joules is not None]
    samples = nodes[0].samples
    if not known or len(known) < len(parts) or not all(node.gpus for node in nodes) or samples is None:
        return None
    return float(sum(known)) / samples * 1000


def throttle_shares(readings: Sequence[int]) -> dict[str, float] | None:
    """Word of each bit -> share of the readings that have it; {} if none has any, None without a reading."""
    if not readings:
        return None
    bits = [bit for bit in (1 << n for n in range(64)) if any(reading & bit for reading in readings)]
    return {THROTTLE.get(bit, hex(bit)): sum(1 for reading in readings if reading & bit) / len(readings) for bit in bits}


def increase(rows: Sequence[Reading], column: str) -> tuple[int, float] | None:
    """How much a counter grew between its first and last reading, and the seconds between them; None of fewer than two. A counter
    that falls was reset (a driver reloaded) or wrapped: what it grew is unknown, and so is everything made of it."""
    known = [(_time_ns(row), value) for row in rows if (value := row[column]) is not None]
    if len(known) < 2 or any(after[1] < before[1] for before, after in itertools.pairwise(known)):
        return None
    return known[-1][1] - known[0][1], (known[-1][0] - known[0][0]) / 1e9


def rate(rows: Sequence[Reading], column: str) -> float | None:
    """A counter's growth per second."""
    grown = increase(rows, column)
    return grown[0] / grown[1] if grown and grown[1] > 0 else None


def _energy(rows: Sequence[Reading], window_s: float) -> tuple[float | None, str | None]:
    counted_mw = rate(rows, "energy_mj")
    if counted_mw is not None:
        return counted_mw / 1e3 * window_s, "counter"
    power_mw = _mean(_known(rows, "power_mw"))
    return (power_mw / 1e3 * window_s, "power") if power_mw is not None else (None, None)


def _cpu_share(rows: Sequence[Reading], column: str) -> float | None:
    grown, total = increase(rows, column), increase(rows, "cpu_total_ns")
    return grown[0] / total[0] if grown and total and total[0] else None


def _rows(file: Path) -> Iterable[Reading]:
    """A CSV of integers; nothing of a file that is not there. A torn last line is left out."""
    if not file.is_file():
        return
    with file.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(line for line in lines if line.endswith("\n")):
            yield {name: int(value) if value else None for name, value in row.items()}


def _within(window: TimedSpan, rows: Iterable[Reading]) -> list[Reading]:
    return [row for row in rows if window.begin_ns <= _time_ns(row) <= window.end_ns]


def _time_ns(row: Reading) -> int:
    return row["unix_ns"] or 0


def _known(rows: Sequence[Reading], column: str) -> list[int]:
    return [value for row in rows if (value := row[column]) is not None]


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


PROGRAM = "import sys; sys.path[:] = sys.argv.pop(1).split('\\n'); from hpcddp.worker.telemetry.reader import main; main()"

START_LIMIT_S = 30.0
"""NVML takes seconds to start where no process holds the driver."""

LAST_READING_S = 5.0


class ReaderProcess:
    """The process of this node. `description`, as nodes/HOST.json has it: `hz`, `gpus` and `no_gpus`, why there are none;
    `node_energy`, the source of the node's energy, where there is one."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.pid = process.pid
        self.description: dict[str, Any] = self._read_description()

    def _read_description(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], START_LIMIT_S)[0]:
            return {"no_gpus": f"telemetry has not begun within {START_LIMIT_S:.0f} s"}
        line = self._process.stdout.readline()
        return dict(json.loads(line)) if line else {"no_gpus": "telemetry ended at once; the job's output shows the reason"}

    def stop(self) -> None:
        """Returns when it has ended. A line ends it, as closing the pipe might not: a loader's process may hold a copy of it."""
        with self._process:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.communicate(b"\n", timeout=LAST_READING_S)
            self._process.kill()


def start_reader(point: Point, rank: Rank, attempt: Path) -> ReaderProcess | None:
    """The process of this node, started by its first rank; None in others, and with `telemetry_hz: 0`."""
    if rank.local_rank or not point.measure.telemetry_hz:
        return None
    path = "\n".join([*sys.path, str(Path(hpcddp.__file__).parent.parent)])  # its own may be known to an import hook only
    gpus = point.layout.gpus_per_node if point.device == "cuda" else 0
    amd = [",".join(_bus_addresses())] if gpus and torch.version.hip is not None else []
    arguments = (attempt, rank.host, point.measure.telemetry_hz, os.getpid(), rank.ranks_per_node, gpus, *amd)
    # without site's start-up hooks: they take time and may bring anything; all paths come with `path`
    command = [sys.executable, "-S", "-B", "-c", PROGRAM, path, *map(str, arguments)]
    return ReaderProcess(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))


def _bus_addresses() -> list[str]:
    """Of the GPUs that this process sees, in torch's order; none where one's is not known."""
    found = [pci_address(index) for index in range(torch.cuda.device_count())]
    return [address for address in found if address is not None] if None not in found else []


def finish_telemetry(  # noqa: PLR0913 - what was read, of which steps
    reader: ReaderProcess | None,
    point: Point,
    group: ProcessGroup,
    attempt: Path,
    steady_from_step: int,
    *,
    plan: EpochPlan | None = None,
) -> Telemetry | None:
    """`telemetry` of end.json on rank 0, or None; all ranks call it when they have trained. `plan`: None is the point's batch."""
    own = None
    if reader:
        reader.stop()
        window = timed_window(attempt, group.rank.rank, steady_from_step)
        source, plan = reader.description.get("node_energy"), plan or EpochPlan(point.global_batch, point.global_batch)
        if window:
            samples = plan.samples_before(steady_from_step + window.steps) - plan.samples_before(steady_from_step)
            own = node_summary(attempt, group.rank.host, window, samples, source)
    nodes = [decode_record(NodeTelemetry, entry) for entry in group.gather("telemetry", encode(own)) if entry]
    return run_summary(point.measure.telemetry_hz, nodes) if nodes else None
