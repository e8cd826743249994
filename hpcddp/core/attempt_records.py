"""end.json and error files of an attempt as frozen dataclasses; launch.json is in core/launch_record.py.

For Python 3.10, without libraries.

The worker writes them by `schema.encode`, study and analysis read them by `schema.decode_record`: a key that an older version did
not write, or that is null, has its default, and one that a newer version added is passed over. A field without a default is one
that no reader can do without. Units are in the names; what is None was not measured, or does not apply.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hpcddp.core.damaged_record import DamagedFiles
from hpcddp.core.launch_record import StepRange
from hpcddp.core.loader_record import LoaderTimes
from hpcddp.core.profiled_exchange_record import ProfiledExchange
from hpcddp.core.records import SCHEMA
from hpcddp.core.schema import Count, NonNegative, Positive, added_later
from hpcddp.core.telemetry_record import Telemetry


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
