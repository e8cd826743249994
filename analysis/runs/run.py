"""A run as a value: its records, reduced to statistics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import compress, pairwise
from statistics import fmean
from typing import Literal

from hpcddp.analysis.records.epochs import Epoch
from hpcddp.analysis.records.steps import throughput_per_s
from hpcddp.analysis.runs.communication import Communication, RunNetwork
from hpcddp.analysis.runs.resources import Readings, Used
from hpcddp.analysis.runs.signals import Early, Rhythm, RunSignals
from hpcddp.analysis.runs.slow_ranks import RankMap, Unevenness
from hpcddp.analysis.runs.step_times import Distribution, LossEnds, Stalls, TypicalStep
from hpcddp.analysis.runs.timeline import Timeline
from hpcddp.core.attempt_records import DamagedFiles, LoaderTimes, ProfiledExchange, ShardedExchange
from hpcddp.core.comm_record import CommRecord
from hpcddp.core.launch_record import ScriptFacts, Staging
from hpcddp.core.point import Point
from hpcddp.core.run_root import RunKey
from hpcddp.core.start_up import StartUp
from hpcddp.core.text import one_line

NOT_STARTED = "not started"
"""The reason of a run without any attempt or failed job."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One repetition of a point; None is unknown."""

    label: str
    run: int
    state: Literal["counts", "rejected", "missing"]
    reason: str | None = None
    """Why it does not count."""
    point: Point | None = None
    attempt: str | None = None
    """JOB.RESTART, of the one that ended the run."""
    start_up: StartUp | None = None
    """Of that attempt."""
    restarts: int = 0
    """How many attempts before it made steps that count."""
    lost_steps: int = 0
    """Steps that count and of which no records are left."""
    env_id: str | None = None
    software: Mapping[str, str] = field(default_factory=dict)
    """Of its last attempt, as records/json_files.py has it."""
    started_unix_ns: int | None = None
    """When the ranks of its first attempt that counts had met."""
    processors: tuple[str, ...] = ()
    """Names of the nodes' processors, each once, where these trained."""
    gpu: str | None = None
    """The GPUs' names, each once, joined by ` + `; None on a CPU."""
    fabric_gbps: float | None = None
    """Of all of a node's adapters, as the cluster's profile had it."""
    network: RunNetwork | None = None
    script: ScriptFacts | None = None
    """What its job found out of a script's workload; `point` has it too."""
    epoch_samples: int | None = None
    """Samples of the training set."""
    unofficial: tuple[str, ...] = ()
    """Names of its files that are not the official ones."""
    global_batch: int | None = None
    """Of the first epoch, where it grows."""
    steady_steps: int | None = None
    steady_samples: int | None = None
    timed_ns: int | None = None
    """What they took, summed over ranks."""
    step_ns: float | None = None
    """The mean over them: what rates come from."""
    typical: TypicalStep | None = None
    step_ci_percent: float | None = None
    """Half the width of its 95 % interval within this run, % of it."""
    windows_apart: tuple[float, float] | None = None
    stopped_by: str | None = None
    """What ended the timed steps, as the run said; with it, where it saw the end of its warm-up."""
    warmup_detected_steps: int | None = None
    comm_check: str | None = None
    """With `comm: check`: what the run said of how its views of the exchange agree."""
    comm_check_closes: bool | None = None
    sharded: ShardedExchange | None = None
    """What ranks wait for where parameters are sharded; with `comm: on`."""
    profiled: ProfiledExchange | None = None
    """What a profiler saw of the exchange in a script's loop; with `comm: check`."""
    part_ns: Mapping[str, float | None] | None = None
    """Of the parts and the hidden copies, the mean over steady steps and ranks."""
    first_wait_ns: float | None = None
    """With `work: train`, the mean wait for an epoch's first batch; None where no timed step begins an epoch."""
    timed_epochs: tuple[bool, ...] = ()
    """With `work: train`, of each epoch whether it is timed from its first step to its last."""
    used: Used = Used()
    readings: Readings = Readings()
    signals: RunSignals | None = None
    early: Early | None = None
    rhythm: Rhythm | None = None
    stalls: Stalls | None = None
    distribution: Distribution | None = None
    rank_map: RankMap | None = None
    """Of several ranks."""
    unevenness: Unevenness | None = None
    """The same."""
    timeline: Timeline | None = None
    exchange: Communication | None = None
    """With `comm: on` only."""
    collectives: CommRecord | None = None
    """comm.json, of a benchmark of collectives."""
    damaged: Mapping[str, DamagedFiles] = field(default_factory=dict)
    """By split, the pictures that could not be decoded."""
    loader: LoaderTimes | None = None
    """Of all its attempts; None where nothing was loaded."""
    decoder: str | None = None
    """Name and version of what decoded pictures."""
    staging: Staging | None = None
    """Of its last attempt, where data were copied to the nodes."""
    loss_first: float | None = None
    loss_last: float | None = None
    """Of the first and the last step alone, as end.json says."""
    samples_trained: int | None = None
    """By all ranks, warm-up included, up to the end of the timed steps."""
    losses: LossEnds | None = None
    epochs: tuple[Epoch, ...] | None = None
    """With `work: train` only: all of them."""
    eval_samples: int | None = None
    eval_correct: int | None = None
    eval_loss: float | None = None
    """Of the evaluation at the end: mean over its samples."""

    @property
    def key(self) -> RunKey:
        return RunKey(self.label, self.run)

    @property
    def name(self) -> str:
        """As a reader finds it: `r2 of n01-g4-b32-3fa9c1d2e07b`."""
        return f"r{self.run} of {one_line(self.label)}"

    @property
    def rate_per_s(self) -> Fraction | None:
        """Samples of the steady steps / the time they took, the mean over ranks; exactly."""
        if not (self.steady_samples and self.timed_ns and self.point):
            return None
        return throughput_per_s(self.steady_samples, Fraction(self.timed_ns, self.point.ranks))

    @property
    def samples_per_epoch(self) -> int | None:
        """What an epoch trains: with `work: train` the mean of timed epochs, or of all, without samples that fill no batch."""
        return round(self._per_epoch("samples")) if self.epochs else self.epoch_samples

    @property
    def pauses_s(self) -> float | None:
        """With `work: train`, what evaluations, checkpoints and other pauses took, the mean of an epoch."""
        return (self._per_epoch("elapsed_ns") - self._per_epoch("train_ns")) / 1e9 if self.epochs else None

    @property
    def trained_ns(self) -> float | None:
        return self._per_epoch("train_ns") if self.epochs else None

    def _per_epoch(self, name: str) -> float:
        """The mean of the timed epochs, or of all where none is, of what adds up over epochs."""
        totals = [0, *(getattr(each, name) for each in self.epochs or ())]
        each = [after - before for before, after in pairwise(totals)]
        return fmean([*compress(each, self.timed_epochs)] or each)

    @property
    def epoch_ns(self) -> float | None:
        return 1e9 * self.samples_per_epoch / float(self.rate_per_s) if self.samples_per_epoch and self.rate_per_s else None

    @property
    def trains(self) -> bool:
        """False for a benchmark of collectives: it has no steps."""
        return self.point is not None and self.point.work != "comm"


def by_reason(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """Reason why runs do not count -> the runs, in their order."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(run.reason or "reason unknown", []).append(run)
    return found
