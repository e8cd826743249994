"""Telemetry of a run: one process per node reads counters beside the ranks; its readings are summed up after training."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

import hpcddp
from hpcddp.core.epoch_plan import EpochPlan
from hpcddp.core.point import Point
from hpcddp.core.schema import decode_record, encode
from hpcddp.core.telemetry_record import NodeTelemetry, Telemetry
from hpcddp.worker.binding import pci_address
from hpcddp.worker.ranks import Rank
from hpcddp.worker.rendezvous import ProcessGroup
from hpcddp.worker.telemetry.summary import node_summary, run_summary, timed_window

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
        return dict(json.loads(line)) if line else {"no_gpus": "telemetry ended at once; the job's output says why"}

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
    """All ranks call it when they have trained; `telemetry` of end.json on rank 0 (None if there is nothing), None elsewhere.

    `plan`: what each step trains; None: the point's batch.
    """
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
