"""Runs of a simulated DDP job, event by event, written as docs/method.md and the README describe records.

Nothing here is shared with the code that writes or reads records: what passed between two exchanges is known from the events.
"""

from __future__ import annotations

import csv
import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Nanoseconds = NDArray[np.int64]

MS = 1_000_000
START_UNIX_NS = 1_750_000_000_000_000_000

COMPUTE_MS = 89.0
TRANSFER_MS = 6.0
OPTIMIZER_MS = 5.0
PAUSE_MS = 1000.0
BUCKET_BYTES = 25_000_000

COLUMNS = (
    *("step", "flags", "start_ns", "data_wait_ns", "h2d_exposed_ns", "h2d_hidden_ns", "forward_ns", "backward_ns"),
    *("comm_exposed_ns", "optimizer_ns", "record_ns", "other_ns", "total_ns"),
)
BUCKETS = ("ready 0", "done 0", "ready 1", "done 1")
WARMUP, AFTER_PAUSE = 1, 2
WARMUP_STEPS = 20


@dataclass(frozen=True, kw_only=True)
class Case:
    """What disturbs the steps; times in milliseconds on top of a step of 100."""

    noise_percent: float = 2.0
    """Standard deviation of a rank's computing time, AR(1)."""
    phi: float = 0.5
    jitter_percent: float = 0.0
    """Mean of an exponential delay between a step's exchange and the mark that ends it, on every rank by itself, of the step."""
    burst_every: int = 0
    burst_ms: float = 0.0
    """Every so many steps, all ranks wait so long for their batch."""
    slow_every: int = 0
    slow_ms: float = 0.0
    """Every so many steps, gradients travel for so much longer."""
    spike_share: float = 0.0
    spike_ms: float = 0.0
    """Share of steps in which one rank does something else for so long."""
    drift_percent: float = 0.0
    """By which computing gets slower from the first step to the last."""
    pauses: tuple[int, ...] = ()
    """Steps before which all ranks meet, and PAUSE_MS pass that are in no step."""
    first_ms: float = 0.0
    """What ranks wait on average for their batch after a pause; each rank by itself."""
    run_percent: float = 1.0
    """Standard deviation of what tells runs apart."""
    compute_ms: float = COMPUTE_MS
    transfer_ms: float = TRANSFER_MS
    slower: Callable[[int], float] = lambda rank: 1.0
    """Factor on a rank's computing."""
    data_ms: Callable[[int], float] = lambda rank: 0.0
    """What a rank waits for each batch."""
    link_ms: Callable[[int], float] = lambda rank: 0.0
    """By which gradients reach a rank later than the others."""
    warm_ms: float = 0.0
    warm_steps: int = 0
    """So many first steps compute longer by that, those after WARMUP_STEPS by less and less."""
    hook: bool = False
    """Whether buckets are written: one in the middle of backward, whose exchange is hidden, and one at its end."""
    clock_step_ms: float = 0.0
    """By which the last rank's clock is set forward while steps go on."""


CLEAN = Case()
CASES = {
    "clean": CLEAN,
    "long memory": Case(phi=0.9),
    "boundary jitter of 1 %": Case(jitter_percent=1.0),
    "boundary jitter of 5 %": Case(jitter_percent=5.0),
    "every fourth batch late": Case(burst_every=4, burst_ms=200.0),
    "every tenth exchange slow": Case(slow_every=10, slow_ms=60.0),
    "spikes": Case(spike_share=0.02, spike_ms=400.0),
    "drift": Case(drift_percent=10.0),
    "pauses": Case(jitter_percent=1.0, pauses=(60, 61, 150)),
}
STALLING = ("every fourth batch late", "every tenth exchange slow", "spikes")


@dataclass(frozen=True, kw_only=True)
class Events:
    """Times of `runs` runs of as many ranks, (runs, ranks, steps) in nanoseconds since the job began."""

    start: Nanoseconds
    end: Nanoseconds
    parts: Mapping[str, Nanoseconds]
    exchanged: Nanoseconds
    """(runs, steps): the end of each step's exchange, on the first rank that has it."""
    flags: tuple[int, ...]
    """Of each step."""
    buckets: Mapping[str, Nanoseconds]
    """`ready` and `done` of the first and the second bucket; empty without the hook."""
    clock_step_ns: int

    def passed_s(self) -> NDArray[np.float64]:
        """Seconds per step of each run, from exchange to exchange of the steps that count."""
        counted = np.flatnonzero(np.equal(self.flags, 0))
        per_step: NDArray[np.float64] = np.diff(self.exchanged)[:, counted - 1].mean(axis=1) / 1e9
        return per_step


def simulate(case: Case, runs: int, ranks: int, steps: int, seed: int) -> Events:
    """A step: wait for the batch, forward, backward, exchange (ends for all at once, after the last is ready), optimizer."""
    draw = np.random.default_rng(seed)
    shape = (runs, ranks)
    pace = 1 + case.run_percent / 100 * draw.standard_normal((runs, 1))
    noise = draw.standard_normal(shape)
    now = np.zeros(shape, np.int64)
    steps_so_far: dict[str, list[Nanoseconds]] = {name: [] for name in ("start", "end", "exchanged", *BUCKETS, *COLUMNS[3:12])}
    slower, late_data, link = (np.array([of(rank) for rank in range(ranks)]) for of in (case.slower, case.data_ms, case.link_ms))
    for step in range(steps):
        noise = case.phi * noise + np.sqrt(1 - case.phi**2) * draw.standard_normal(shape)
        drift = 1 + case.drift_percent / 100 * step / steps
        if step in case.pauses:
            now = now.max(axis=1, keepdims=True) + np.full(shape, _ns(PAUSE_MS))
        warm = case.warm_ms * (step < case.warm_steps) * (1 - max(0, step - WARMUP_STEPS) / max(1, case.warm_steps))
        compute = _ns((case.compute_ms * drift * slower + warm) * pace * (1 + case.noise_percent / 100 * noise))
        late = case.burst_every and step % case.burst_every == case.burst_every - 1
        wait = np.full(shape, _ns(case.burst_ms if late else 0.0)) + _ns(late_data * pace)
        if case.first_ms and step in case.pauses:
            wait = _ns(case.first_ms * draw.uniform(0.5, 1.5, shape))
        forward, backward = compute // 3, compute - compute // 3
        ready = now + wait + forward + backward
        slow = case.slow_every and step % case.slow_every == case.slow_every - 1
        transfer = _ns((case.transfer_ms * (ranks > 1) + (case.slow_ms if slow else 0.0)) * pace)
        exchanged = ready.max(axis=1, keepdims=True) + transfer + _ns(link)
        middle = ready - backward // 2
        hidden = middle.max(axis=1, keepdims=True) + transfer // 4
        other = _other(case, draw, shape)
        optimizer = np.broadcast_to(_ns(OPTIMIZER_MS * pace), shape)
        row = {"start": now, "data_wait_ns": wait, "forward_ns": forward, "backward_ns": backward}
        row |= {"comm_exposed_ns": exchanged - ready, "optimizer_ns": optimizer, "other_ns": other}
        now = exchanged + optimizer + other
        row |= {"ready 0": middle, "done 0": np.broadcast_to(hidden, shape), "ready 1": ready, "done 1": exchanged}
        for name, value in (row | {"end": now, "exchanged": exchanged.min(axis=1)}).items():
            steps_so_far[name].append(value)
    parts = {name: np.stack(steps_so_far[name], axis=-1) for name in COLUMNS[3:12] if steps_so_far[name]}
    return Events(
        start=np.stack(steps_so_far["start"], axis=-1),
        end=np.stack(steps_so_far["end"], axis=-1),
        parts=parts,
        exchanged=np.stack(steps_so_far["exchanged"], axis=-1),
        buckets={name: np.stack(steps_so_far[name], axis=-1) for name in BUCKETS} if case.hook and ranks > 1 else {},
        clock_step_ns=int(_ns(case.clock_step_ms)),
        flags=tuple(AFTER_PAUSE * (step in case.pauses) + WARMUP * (step < WARMUP_STEPS) for step in range(steps)),
    )


def _other(case: Case, draw: np.random.Generator, shape: tuple[int, int]) -> Nanoseconds:
    other: Nanoseconds = _ns(draw.exponential(1.0, shape) * case.jitter_percent / 100 * (COMPUTE_MS + TRANSFER_MS + OPTIMIZER_MS))
    if case.spike_share:
        hit = draw.random((shape[0], 1)) < case.spike_share
        who = draw.integers(shape[1], size=(shape[0], 1))
        other = other + np.where(hit & (np.arange(shape[1]) == who), _ns(case.spike_ms), 0)
    return other


def _ns(milliseconds: Any) -> Any:
    return np.asarray(np.rint(np.asarray(milliseconds) * MS), np.int64)


def write_attempt(folder: Path, events: Events, run: int, launch: Mapping[str, Any], end: Mapping[str, Any]) -> None:
    """Files of the run with this index; `end` is what end.json holds besides its ranks and steps."""
    ranks, steps = events.start.shape[1:]
    entries = [_write_rank(folder, events, run, rank, launch["ranks_per_node"]) for rank in range(ranks)]
    protocol = {"warmup": "fixed", "warmup_steps": WARMUP_STEPS, "warmup_detected_steps": 0}
    protocol |= {"steady_from_step": WARMUP_STEPS, "stopped_by": "steps"}
    ended = {"schema": 1, "state": "done", "reason": None, "first_step": 0, "steps": steps}
    _write_json(folder / "launch.json", launch)
    _write_json(folder / "end.json", {**ended, "protocol": protocol, "ranks": entries, **end})


def _write_rank(folder: Path, events: Events, run: int, rank: int, per_node: int) -> dict[str, Any]:
    file = folder / "ranks" / f"{rank:05d}.steps.csv"
    file.parent.mkdir(parents=True, exist_ok=True)
    starts, ends = events.start[run, rank], events.end[run, rank]
    with file.open("w", newline="") as out:
        rows = csv.writer(out, lineterminator="\n")
        rows.writerow(COLUMNS)
        parts = [events.parts[name][run, rank].tolist() if name in events.parts else None for name in COLUMNS[3:12]]
        for step, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
            cells = ["" if part is None else part[step] for part in parts]
            rows.writerow([step, events.flags[step], START_UNIX_NS + start, *cells, end - start])
    clock = {"unix_ns": START_UNIX_NS, "offset_ns": 0, "error_ns": 1000}
    moved = -events.clock_step_ns * (rank == events.start.shape[1] - 1)
    return {
        "rank": rank,
        "host": f"node{rank // per_node:03d}",
        "clock": {"start": clock, "end": clock | {"unix_ns": START_UNIX_NS + int(ends[-1]), "offset_ns": moved}},
        "rows": len(starts),
        "crc32": zlib.crc32(file.read_bytes()),
        **(_write_buckets(folder, events, run, rank) if events.buckets else {}),
    }


def _write_buckets(folder: Path, events: Events, run: int, rank: int) -> dict[str, int]:
    file, times = folder / "ranks" / f"{rank:05d}.buckets.csv", [events.buckets[name][run, rank].tolist() for name in BUCKETS]
    lines = ["step,index,bytes,ready_ns,done_ns"]
    for step, cells in enumerate(zip(*times, strict=True)):
        ready_0, done_0, ready_1, done_1 = (START_UNIX_NS + cell for cell in cells)
        lines += [f"{step},0,{BUCKET_BYTES},{ready_0},{done_0}", f"{step},1,{BUCKET_BYTES},{ready_1},{done_1}"]
    file.write_text("\n".join([*lines, ""]))
    return {"bucket_rows": len(lines) - 1, "bucket_crc32": zlib.crc32(file.read_bytes())}


def _write_json(file: Path, content: Mapping[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content))
