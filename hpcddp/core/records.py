"""The records of an attempt, as files: names, columns and the writers.

Everything is written as the job goes, flushed once a second while steps go on, readable without hpcddp. An attempt's folder:

    launch.json            by rank 0 once all ranks have met: hosts, versions, profile as used, environment
    transport.json         by rank 0 once ranks have exchanged something: network, adapters and links that NCCL or gloo chose
    ranks/00000.steps.csv  one row per step of that rank, integer nanoseconds; an empty cell was not measured
    ranks/00000.buckets.csv  with `comm: on`: one row per all-reduce of gradients
    ranks/00000.trace.json.gz  a profile, where asked for
    ranks/00000.error.json by a rank that fails: exception, message, host, `fault`
    ranks/00000.collectives.json  by every rank at a hang: the last collectives that it has begun, as torch has them
    nodes/HOST.json        by the first rank of each node: its processors and GPUs
    nodes/HOST.node.csv  nodes/HOST.gpus.csv  telemetry, by one process of the node
    epochs.csv             of a point with `work: train`, by rank 0: one row per epoch of the run; an attempt that goes on with
                           the run repeats those of the epochs before it, so that the newest attempt's file has all
    comm.json              of a point with `work: comm`, by rank 0: times of collectives by operation and size
    events.jsonl           of a run that resumes, one per line, by rank 0: checkpoints written, or passed over
    checkpoints/00000120.DIGEST.pt  after 120 steps of the run (training/checkpoint.py); two of a run are kept
    checkpoints/00000120.shards/    with sharded parameters each shard of it (training/checkpoint.py)
    end.json               by rank 0, renamed into place last: state, reason, gates, rows and checksum per rank; of a run that
                           failed `fault`: kind, rank and host at fault, the line of the rank's log. By the last rank where rank 0
                           is lost
    .end.reserve           room on the disk for the end.json of a failure, while the run lasts

Version history of SCHEMA: 1 (0.1.0) as above. Of STEP_ROWS, `step_rows` in launch.json, which grows by columns at the end that a
reader may pass over: 1 (where launch.json does not say) STEP_COLUMNS_1; 2 (0.1.0) `loss_e9` as well; 3 (0.1.0) `samples` as well.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import time
import zlib
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

SCHEMA = 1
STEP_ROWS = 3

PARTS = ("data_wait", "h2d_exposed", "forward", "backward", "comm_exposed", "optimizer", "record", "other")
"""The parts of a step in the order they happen; each lies between two marks on one timeline."""

SHARDED_PARTS = ("all_gather_forward", "all_gather_backward", "reduce_scatter")
"""What comm_exposed is made of where parameters are sharded: end.json has their means, step rows their sum."""

STEP_COLUMNS_1 = (
    *("step", "flags", "start_ns", "data_wait_ns", "h2d_exposed_ns", "h2d_hidden_ns", "forward_ns", "backward_ns"),
    *("comm_exposed_ns", "optimizer_ns", "record_ns", "other_ns", "total_ns"),
)
"""`step` counts from 0 over the run: an attempt that takes the run up goes on at its checkpoint's. `start_ns` is Unix time;
h2d_hidden_ns overlaps other parts and is outside their sum."""

STEP_COLUMNS = (*STEP_COLUMNS_1, "loss_e9", "samples")
"""`loss_e9` is the mean loss over the rank's batch times 10^9, rounded: an integer as all cells are, and with more digits than
fp32 has from a loss of 0.01 on. Cross entropy is not negative. Empty where nothing was trained, or the loss is not finite.
`samples` are the rank's in a script's own loop; empty in hpcddp's, whose batches are full."""

MOST_LOSS_E9 = 10**15 - 1
"""A loss of a million and any above it: what has so many digits is exact in a double, whoever reads it."""

BUCKET_COLUMNS = ("step", "index", "bytes", "ready_ns", "done_ns")
"""Unix times on the rank's own timeline: when the bucket's gradients were there, and when their all-reduce had ended."""

EPOCH_COLUMNS = (
    *("epoch", "step", "samples", "train_ns", "elapsed_ns", "lr_e12", "batch"),
    *("train_loss_e9", "correct", "total", "eval_loss_e9"),
)
"""An epoch of `work: train`, as it ended. `epoch` counts from 1; `step` and `samples` (of all ranks) are those of the run so far.
`train_ns` is the sum of rank 0's steps so far, `elapsed_ns` what passed meanwhile, evaluations with it; neither has what passed
between attempts. `lr_e12` (the learning rate times 10^12) and `batch` (of all ranks) are those of the epoch's last step.
`train_loss_e9` is the mean over ranks and the epoch's steps times 10^9, empty where it is not finite. The last three are of the
evaluation, of every sample once over all ranks, and empty where the epoch was not evaluated."""

NODE_COLUMNS = (
    *("unix_ns", "cpu_busy_ns", "cpu_total_ns", "job_cpu_ns", "mem_used_bytes", "mem_total_bytes", "net_rx_bytes"),
    *("net_tx_bytes", "ib_rx_bytes", "ib_tx_bytes", "energy_mj", "power_mw"),
)
"""A reading of a node; times, traffic and energy are counters since it booted, summed over its processors and interfaces. Energy
and power are of the whole node, GPUs included, where worker/telemetry/node.py finds a source."""

GPU_COLUMNS = (
    *("unix_ns", "gpu", "util_percent", "mem_used_bytes", "power_mw", "energy_mj"),
    *("sm_mhz", "mem_mhz", "temperature_c", "throttle_reasons"),
)
"""A reading of a GPU by NVML or AMD SMI; `gpu` counts as CUDA does in this job, `energy_mj` since the driver was loaded."""

WARMUP = 1
"""Bit of `flags`: the step belongs to the warm-up and counts in no statistic."""

AFTER_PAUSE = 2
"""Bit of `flags`: the first step after a pause that is not timed. It counts, but for a script's own loop in no statistic."""

FLUSH_EVERY_S = 1.0


def steps_file(attempt: Path, rank: int) -> Path:
    """Where a rank's step rows are."""
    return attempt / "ranks" / f"{rank:05d}.steps.csv"


def buckets_file(attempt: Path, rank: int) -> Path:
    """Where a rank's all-reduces are, with `comm: on`."""
    return attempt / "ranks" / f"{rank:05d}.buckets.csv"


def epochs_file(attempt: Path) -> Path:
    """Where the epochs of `work: train` are."""
    return attempt / "epochs.csv"


def node_file(attempt: Path, host: str) -> Path:
    """Where the readings of a node are."""
    return attempt / "nodes" / f"{host}.node.csv"


def gpus_file(attempt: Path, host: str) -> Path:
    """Where the readings of a node's GPUs are; there is none without NVML or AMD SMI."""
    return attempt / "nodes" / f"{host}.gpus.csv"


def trace_file(attempt: Path, rank: int) -> Path:
    """Where a rank's profile is, with `profile_steps`: events as Chrome's, gzipped."""
    return attempt / "ranks" / f"{rank:05d}.trace.json.gz"


def error_file(attempt: Path, rank: int) -> Path:
    """Where a rank that failed says why."""
    return attempt / "ranks" / f"{rank:05d}.error.json"


def collectives_file(attempt: Path, rank: int) -> Path:
    """Where a rank says at a hang which collectives it has begun."""
    return attempt / "ranks" / f"{rank:05d}.collectives.json"


def write_json(file: Path, plain: Any, *, sync: bool = True) -> None:
    """Writes the value as JSON, keys sorted, in the way of write_aside."""
    write_aside(file, (json.dumps(plain, indent=1, sort_keys=True, allow_nan=False) + "\n").encode(), sync=sync)


@contextlib.contextmanager
def naming(file: Path) -> Iterator[None]:
    """An OSError in it names the file: write(2), fsync(2) and close(2) on a full disk do not say which one it was."""
    try:
        yield
    except OSError as error:
        if error.filename is not None or error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(file)) from error


def write_file(file: Path, content: str | bytes, mode: Literal["w", "x"] = "w") -> None:
    """Text in UTF-8, or bytes; OSError names the file, also where no more of it fits on the disk."""
    with naming(file), file.open(f"{mode}b") as out:
        out.write(content.encode() if isinstance(content, str) else content)


def write_aside(file: Path, data: bytes | memoryview, *, sync: bool = True) -> None:
    """Writes a file beside it, syncs and renames: a reader sees the old file, or the complete new one. Failing leaves nothing.
    Without `sync`, for what can be made again, a machine that goes down may leave neither. A link in its place is replaced, never
    written through.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    aside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        aside.unlink(missing_ok=True)
        with naming(file), aside.open("xb") as out:
            out.write(data)
            out.flush()
            if sync:
                os.fsync(out.fileno())
        aside.replace(file)
    except OSError:
        with contextlib.suppress(OSError):
            aside.unlink(missing_ok=True)
        raise


def append_line(file: Path, *plains: Any, sync: bool = True) -> None:
    """A JSON line for each value, added in a single write, synced: those of concurrent writers do not mix on a local file system.
    OSError where not all of it could be written. Without `sync` for what may be missing after the machine went down.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False) + "\n" for plain in plains]
    text = "".join(lines).encode()
    handle = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    with naming(file):
        try:
            if os.write(handle, text) < len(text):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if sync:
                os.fsync(handle)
        finally:
            os.close(handle)


class RowWriter:
    """Appends rows to a CSV of integers; `rows` and `crc32` (of all bytes, header included) go into end.json. OSError names the
    file where it cannot be written, as on a full disk; the file then ends with the last whole row.
    """

    def __init__(self, file: Path, columns: tuple[str, ...]) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        self._file = file
        self._out = file.open("xb", buffering=0)
        self._bytes = 0
        self._pending = [",".join(columns)]
        self._flush_at = 0.0
        self.rows = 0
        self.crc32 = 0

    def row(self, values: Iterable[int | None]) -> None:
        """One row, in the order of the columns; None was not measured."""
        self._pending.append(",".join(["" if value is None else str(value) for value in values]))
        self.rows += 1
        now = time.monotonic()
        if now >= self._flush_at:
            self.flush()
            self._flush_at = now + FLUSH_EVERY_S

    def flush(self) -> None:
        """Hands everything to the operating system."""
        if self._pending:
            data = ("\n".join(self._pending) + "\n").encode()
            self._pending.clear()
            with naming(self._file):
                self._write(data)
            self.crc32 = zlib.crc32(data, self.crc32)

    def _write(self, data: bytes) -> None:
        left = memoryview(data)
        try:
            while left:
                left = left[self._out.write(left) or 0 :]
        except OSError:
            with contextlib.suppress(OSError):
                self._out.truncate(self._bytes)
            raise
        self._bytes += len(data)

    def __enter__(self) -> RowWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if not isinstance(error, OSError):  # a disk that has failed is not asked again
                self.flush()
        finally:
            with naming(self._file):  # a file server may hold back what is written, and find only now that there is no room
                self._out.close()


NO_WRITE = 0o022
"""Bits of umask(2): no write permission for group and others."""


@contextlib.contextmanager
def not_for_others(trusted: Collection[int]) -> Iterator[int]:
    """Files made inside are writable by this user only, whatever the umask: 002 lets a whole project's group write. Where groups
    are trusted the umask stays. Yields the umask that held before.
    """
    before = os.umask(NO_WRITE)
    os.umask(before if trusted else before | NO_WRITE)
    try:
        yield before
    finally:
        os.umask(before)
