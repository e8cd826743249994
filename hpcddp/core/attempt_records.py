"""end.json and error files of an attempt as frozen dataclasses; launch.json is in core/launch_record.py.

For Python 3.10, without libraries.

The worker writes them by `schema.encode`, study and analysis read them by `schema.decode_record`: a key that an older version did
not write, or that is null, has its default, and one that a newer version added is passed over. A field without a default is one
that no reader can do without. Units are in the names; what is None was not measured, or does not apply. `merge` says what a field
is of a run that several attempts made.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hpcddp.core.errors import HpcddpError
from hpcddp.core.launch_record import StepRange
from hpcddp.core.records import SCHEMA
from hpcddp.core.schema import Count, NonNegative, Positive, added_later, decode_record
from hpcddp.core.text import count


@dataclass(frozen=True, kw_only=True)
class GpuTelemetry:
    """Of one GPU of the job."""

    gpu: int
    """As CUDA numbers them in this job."""
    readings: int = field(metadata={"merge": "sum"})
    util_percent_mean: float | None = field(default=None, metadata={"merge": "mean"})
    """Share of time in which any kernel ran, %."""
    mem_used_mean_bytes: float | None = added_later(None, merge="mean")
    mem_used_peak_bytes: int | None = field(default=None, metadata={"merge": "max"})
    power_w_mean: float | None = field(default=None, metadata={"merge": "mean"})
    power_w_peak: float | None = field(default=None, metadata={"merge": "max"})
    sm_mhz_median: int | float | None = None
    sm_mhz_min: int | None = field(default=None, metadata={"merge": "min"})
    sm_mhz_begin: int | float | None = None
    sm_mhz_end: int | float | None = None
    """Medians over the first and the last quarter of the readings."""
    mem_mhz_median: int | float | None = added_later(None)
    temperature_c_peak: int | None = field(default=None, metadata={"merge": "max"})
    throttle: Mapping[str, float] | None = None
    """Reason (of reader_process.THROTTLE) -> share of the readings that had it; {} if none, None if unknown."""
    energy_j: float | None = field(default=None, metadata={"merge": "sum"})
    """Over the whole window."""
    energy_from: str | None = None
    """`counter`, or `power` (mean power x window) where the GPU does not count its energy."""


@dataclass(frozen=True, kw_only=True)
class NodeTelemetry:
    """Of one node."""

    host: str | None = None
    window_s: float | None = field(default=None, metadata={"merge": "sum"})
    """From the first to the end of the last timed step of the node's first rank."""
    samples: int | None = field(default=None, metadata={"merge": "sum"})
    """Of the whole job, trained in that window."""
    readings: int | None = field(default=None, metadata={"merge": "sum"})
    """Of the node within the window; rates and shares need two."""
    readings_s: float | None = added_later(None, merge="sum")
    """From the first to the last of them: of this span are rates and shares."""
    cpu_busy_share: NonNegative | None = field(default=None, metadata={"merge": "max"})
    """Busy time of all logical CPUs / all their time (waiting for disks is idle, stolen time busy)."""
    cpu_job_share: NonNegative | None = field(default=None, metadata={"merge": "max"})
    """The same of this job's processes only."""
    cpu_foreign_share: NonNegative | None = field(default=None, metadata={"merge": "max"})
    """Busy less job, at least 0."""
    net_rx_bytes_per_s: float | None = field(default=None, metadata={"merge": "mean"})
    net_tx_bytes_per_s: float | None = field(default=None, metadata={"merge": "mean"})
    ib_rx_bytes_per_s: float | None = field(default=None, metadata={"merge": "mean"})
    ib_tx_bytes_per_s: float | None = field(default=None, metadata={"merge": "mean"})
    mem_used_mean_bytes: float | None = added_later(None, merge="mean")
    mem_used_peak_bytes: int | None = field(default=None, metadata={"merge": "max"})
    mem_total_bytes: int | None = field(default=None, metadata={"merge": "max"})
    power_w_mean: float | None = added_later(None, merge="mean")
    power_w_peak: float | None = added_later(None, merge="max")
    energy_j: float | None = added_later(None, merge="sum")
    """Of the node over the whole window, GPUs included."""
    energy_from: str | None = added_later(None)
    """The source of power and energy: `pm_counters` (Cray, the whole node) or `module power` (Grace Hopper, its modules)."""
    gpus: tuple[GpuTelemetry, ...] = ()
    """One per GPU of the job; none without NVML or AMD SMI."""


@dataclass(frozen=True, kw_only=True)
class Telemetry:
    """Of a run."""

    hz: float | None = None
    """Readings per second asked for."""
    energy_j_per_1000_samples: NonNegative | None = None
    """GPU energy of all nodes / samples trained in the window x 1000; None if any GPU's is unknown."""
    nodes: tuple[NodeTelemetry, ...] = ()
    """In the order of their first ranks."""


READS = 4096
"""Bytes a batch from which on files are read: the clock itself reads some 400 of /proc, a batch of 32 MNIST digits has 25,088."""


@dataclass(frozen=True, kw_only=True)
class LoaderTimes:
    """Times of all ranks' loaders while timed steps were made, summed; None is unknown."""

    workers: Count
    """Processes that load for one rank; 0: the rank loads its own."""
    samples_per_s: NonNegative
    """What all loaders give together when asked for nothing else: of each rank the samples read over `read_s` and `hand_over_s`,
    times its processes, but no more than the rank can take (`receive_s`)."""
    samples: Positive = field(metadata={"merge": "sum"})
    """Read, some of them for steps that were never made."""
    batches: Positive = field(metadata={"merge": "sum"})
    read_s: NonNegative = field(metadata={"merge": "sum"})
    """In the calls that read a batch."""
    compute_s: NonNegative = field(metadata={"merge": "sum"})
    """Of that on a processor: decoding, cutting, copying."""
    processor_wait_s: NonNegative | None = field(default=None, metadata={"merge": "sum"})
    """Of that waiting for a free processor; None where the kernel does not say."""
    hand_over_s: NonNegative = field(default=0.0, metadata={"merge": "sum"})
    """Processor time of the processes between two such calls, for passing batches on."""
    receive_s: NonNegative = field(default=0.0, metadata={"merge": "sum"})
    """Processor time of the ranks for taking batches from their processes."""
    read_bytes: Count | None = added_later(None, merge="sum")
    """Of files, in the calls that read batches; None where the kernel does not say."""
    prefetch_cut: str | None = added_later(None)
    """Why loader processes read fewer batches ahead than the usual two, on the first rank where they do."""

    @property
    def storage_wait_s(self) -> float | None:
        """Of `read_s` what is neither: waiting for files, or for anything else (`waits_for_files`)."""
        if self.processor_wait_s is None:
            return None
        return max(0.0, self.read_s - self.compute_s - self.processor_wait_s)

    @property
    def waits_for_files(self) -> bool:
        """Whether files were read at all, as far as that is known; a batch of none has read the kernel's own accounts."""
        return self.read_bytes is None or self.read_bytes >= READS * self.batches


@dataclass(frozen=True, kw_only=True)
class DamagedFiles:
    """Pictures of a split that could not be decoded, each once; others were taken in their places."""

    pictures: Count
    read: Count
    """How many different pictures the attempt read, damaged ones included."""
    first: tuple[str, ...] = ()
    """`CLASS/FILE (why)`, in the order of names."""


def replaced_words(damaged: Mapping[str, DamagedFiles]) -> str | None:
    """`3 damaged train pictures replaced`; None where there are none."""
    found = [f"{count(each.pictures, f'damaged {split} picture')}" for split, each in sorted(damaged.items()) if each.pictures]
    return f"{', '.join(found)} replaced" if found else None


@dataclass(frozen=True, kw_only=True)
class ProfiledExchange:
    """Means over ranks and the profiled steps, which the profiler makes longer than the timed ones."""

    method: str
    """How it was measured, in words."""
    steps: Positive
    step_s: NonNegative
    collectives_s: NonNegative
    """With a collective on its way, for each rank its own."""
    exposed_s: NonNegative
    """Of that, with nothing computing meanwhile: transfer, and what a rank waits for others."""
    by_operation_s: Mapping[str, NonNegative]
    """`all_gather`: its collectives one by one; several may be on their way at a time."""
    step_clock_exposed_s: NonNegative | None = None
    """comm_exposed of the same steps by the step clock; None where nothing marks it."""


@dataclass(frozen=True, kw_only=True)
class GateResult:
    """What must hold before a run's figures count, and whether it did; `evidence` is a sentence."""

    name: str
    passed: bool
    evidence: str


@dataclass(frozen=True, kw_only=True)
class ClockOffset:
    """`offset_ns` to add to a rank's times to have rank 0's, give or take `error_ns`, measured at `unix_ns`."""

    unix_ns: Count
    offset_ns: int
    error_ns: Count


@dataclass(frozen=True, kw_only=True)
class RankClock:
    """A rank's clock against rank 0's before and after training; None is unknown."""

    start: ClockOffset | None = None
    end: ClockOffset | None = None

    @property
    def offsets(self) -> list[ClockOffset]:
        """Those that are known, in the order of time."""
        return [offset for offset in (self.start, self.end) if offset is not None]


@dataclass(frozen=True, kw_only=True)
class RankEnd:
    """What end.json says of a rank that trained."""

    rank: Count
    host: str
    rows: Count
    """Of its step rows."""
    crc32: Count | None
    """Of all bytes of that file; None only where an attempt came to write no end.json."""
    bucket_rows: Count | None = added_later(None)
    bucket_crc32: Count | None = added_later(None)
    clock: RankClock | None = added_later(None)
    peak_memory_bytes: Mapping[str, Count] | None = added_later(None)
    """`allocated` and `reserved` of its GPU, or `resident` on a CPU."""

    @property
    def offsets(self) -> list[ClockOffset]:
        """Of its clock, those that are known."""
        return self.clock.offsets if self.clock else []


@dataclass(frozen=True, kw_only=True)
class MeasuringProtocol:
    """How an attempt was measured: what was asked for, and what came of it."""

    input: str | None = None
    gc: str | None = None
    warmup: str | None = None
    warmup_steps: Count | None = None
    warmup_detected_steps: Count | None = None
    """Where the run saw the end of its warm-up."""
    steady_from_step: Count = 0
    """The first step that counts."""
    stop: str | None = None
    stopped_by: str | None = None
    timed_steps: Count | None = None
    pauses: tuple[Count, ...] = ()
    interval_of: str | None = None
    interval_percent: float | None = None
    effective_steps: float | None = None


@dataclass(frozen=True, kw_only=True)
class EvaluationResult:
    """The whole evaluation set's counts; the mean loss is None where it is no number."""

    samples: Count | None = None
    correct: Count | None = None
    loss: float | None = None


@dataclass(frozen=True, kw_only=True)
class CommCheck:
    """With `comm: check`: how the views of the exchange agree, on the rank where they agree least; see worker/comm/check.py.

    What the profiler saw is missing where it saw nothing.
    """

    rank: Count | None = None
    closes: bool | None = None
    """Whether they agree."""
    sentence: str | None = None
    residual_s: float | None = None
    pairs: Count | None = added_later(None)
    discarded: Count | None = added_later(None)
    profiled_pairs: Count | None = added_later(None)
    sync_step_s: float | None = added_later(None)
    no_sync_step_s: float | None = added_later(None)
    difference_s: float | None = added_later(None)
    difference_interval_s: tuple[float, ...] = added_later(())
    hook_exposed_s: float | None = added_later(None)
    profiled_difference_s: float | None = added_later(None)
    profiled_hook_exposed_s: float | None = added_later(None)
    profiler_exposed_s: float | None = added_later(None)
    contention_s: float | None = added_later(None)


@dataclass(frozen=True, kw_only=True)
class ShardedExchange:
    """What of a step ranks wait for where parameters are sharded: means over ranks and timed steps, their sum comm_exposed."""

    method: str
    """How it was measured, in words."""
    all_gather_forward_s: NonNegative
    all_gather_backward_s: NonNegative
    reduce_scatter_s: NonNegative
    """With HSDP the all-reduce between copies, too."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What went wrong, on which rank. `kind` is one of a closed list, for programs; `sentence` is for people.

    user: the user can mend it. diverged: a loss is not finite. out_of_memory. disk: it cannot be written to, or read. loader:
    a process of the data loader died. contact: a collective failed, and nobody is known to be the cause; time_out: the same
    after a long wait. died: the process ended without a word. hung: no progress, and no sign of life. late: others waited for
    it until the time was over. silent: not heard from. stuck: no rank gets any further. interrupted: ended by a signal.
    error: anything else.
    """

    kind: str
    rank: int
    host: str
    sentence: str
    line: str | None = None
    """As the rank's log has it."""


@dataclass(frozen=True, kw_only=True)
class AttemptEnd:
    """end.json, whatever was measured; of an attempt that failed there is no more."""

    schema: int = SCHEMA
    state: str
    """`done`, `interrupted` or `failed`."""
    reason: str | None = None
    """A sentence, of the last two."""
    ended_unix_ns: Count | None = None
    fault: Fault | None = added_later(None)


@dataclass(frozen=True, kw_only=True)
class RankName:
    """A rank and where it ran."""

    rank: Count
    host: str


@dataclass(frozen=True, kw_only=True)
class CommEnd(AttemptEnd):
    """end.json of a benchmark of collectives that is done."""

    gates: tuple[GateResult, ...]
    ranks: tuple[RankName, ...]


@dataclass(frozen=True, kw_only=True)
class TrainingEnd(AttemptEnd):
    """end.json of an attempt that trained and is done, or was interrupted."""

    gates: tuple[GateResult, ...]
    ranks: tuple[RankEnd, ...]
    global_batch: Positive
    first_step: Count = 0
    """The run's step with which the attempt began."""
    steps: Count | None = None
    """Of the run that are made, those before `first_step` included."""
    history: tuple[StepRange, ...] = ()
    """Whose steps make up the run."""
    protocol: MeasuringProtocol = MeasuringProtocol()
    loss_first: float | None = None
    loss_last: float | None = None
    """Mean over ranks of the first and the last step."""
    evaluation: EvaluationResult | None = None
    compile_s: float | None = None
    comm_check: CommCheck | None = None
    sharded_exchange: ShardedExchange | None = added_later(None)
    """`parallel: fsdp` and `hsdp` with `comm: on`."""
    profiled_exchange: ProfiledExchange | None = added_later(None)
    """A script's own loop with `comm: check`; None where the profiler saw no collective."""
    telemetry: Telemetry | None = None
    loader: LoaderTimes | None = added_later(None)
    """None without a loader: `input: synthetic`, the user's own loop."""
    flops_per_sample: Count | None = None
    tokens_per_step: Count | None = added_later(None)
    """Of a rank, where a script of the user's own says so."""
    epoch_rows: Count | None = added_later(None)
    """Of epochs.csv; None where epochs are not what the point trains."""
    epoch_crc32: Count | None = added_later(None)
    """Of all bytes of that file."""
    damaged: Mapping[str, DamagedFiles] = added_later(dict)
    """By split (`train`, `eval`): the pictures that could not be decoded; nothing where all could."""


@dataclass(frozen=True, kw_only=True)
class ErrorRecord:
    """ranks/RANK.error.json: why a rank failed."""

    schema: int = SCHEMA
    rank: int
    host: str
    unix_ns: int
    type: str
    """Of the exception."""
    message: str
    traceback: str = ""
    fault: Fault | None = None
    """0.1.0 did not write it at first."""


def error_sentence(error: ErrorRecord) -> str:
    """With rank and host."""
    if error.fault is not None:
        return error.fault.sentence
    kind = "" if error.type == HpcddpError.__name__ else f"{error.type}: "  # as 0.1.0 wrote it at first
    return f"rank {error.rank} on {error.host}: {kind}{error.message}"


def first_error(attempt: Path) -> ErrorRecord | None:
    """The earliest, but for those of ranks that only miss another one, which come after all others."""
    files = (attempt / "ranks").glob("*.error.json")
    errors = (decode_record(ErrorRecord, json.loads(file.read_text(encoding="utf-8"))) for file in files)
    return min(errors, key=_order, default=None)


def _order(error: ErrorRecord) -> tuple[bool, int]:
    return error.fault is not None and error.fault.kind in ("contact", "time_out"), error.unix_ns
