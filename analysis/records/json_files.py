"""JSON of a study, checked once, so that nothing later meets another type: study.json, prediction.json, preflight's records, and
of an attempt launch.json with its software, end.json and comm.json.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from hpcddp.analysis.records.rows import DAY_NS, LATEST_NS, MOST_BUCKET_BYTES, Rejected
from hpcddp.analysis.util.files import is_there, read_object, read_raw, record_or_none
from hpcddp.analysis.util.wording import shortened
from hpcddp.core.attempt_records import AttemptEnd, EvaluationResult, GateResult, RankClock, TrainingEnd
from hpcddp.core.comm_record import CommRecord
from hpcddp.core.errors import HpcddpError
from hpcddp.core.launch_record import LaunchRecord
from hpcddp.core.point import Point
from hpcddp.core.prediction import PredictedPoint, PredictionRecord
from hpcddp.core.preflight import PreflightRecord
from hpcddp.core.records import SCHEMA
from hpcddp.core.run_root import Study
from hpcddp.core.schema import Count, MissingKeyError, Positive, SchemaError, decode_record
from hpcddp.core.text import escape_controls, thousands

MOST_RUNS = 1_000_000
HOLDS = ("batch_per_gpu", "global_batch")


@dataclass(frozen=True)
class StudyFile:
    """`repeats`: label -> runs that are expected, of the points that are still there; `train_epochs`: of a whole training;
    `in_sweep`: label -> runs that the sweep had at the last submission, where that is known."""

    name: str
    hold: str
    repeats: Mapping[str, int]
    train_epochs: int | None = None
    in_sweep: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class _Entry:
    label: str
    repeat: Positive | None = None
    in_sweep: Count | None = None


@dataclass(frozen=True, kw_only=True)
class _Sweep:
    hold: str = HOLDS[0]
    train_epochs: Positive | None = None


@dataclass(frozen=True, kw_only=True)
class _Content:
    """study.json."""

    name: str | None = None
    repeat: Positive
    points: tuple[_Entry, ...]
    sweep: _Sweep = _Sweep()


def read_expected(study: Study) -> StudyFile:
    """HpcddpError where it is damaged; jobs submitted by hand have none."""
    file, name = study.study_file, study.folder.resolve().name
    if not is_there(file):
        return StudyFile(name, HOLDS[0], {})
    try:
        return _checked(decode_record(_Content, read_raw(file)), name, study)
    except FileNotFoundError as error:
        raise HpcddpError(f"{file} is damaged: it links to nothing") from error
    except MissingKeyError as error:
        raise HpcddpError(f"{file} is damaged: it lacks '{error.key}'") from error
    except SchemaError as error:
        raise HpcddpError(f"{file} is damaged: {schema_sentence('study.json', error)}") from error
    except Rejected as error:
        raise HpcddpError(f"{file} is damaged: {error}") from error


def _checked(found: _Content, name: str, study: Study) -> StudyFile:
    repeats = {entry.label: entry.repeat or found.repeat for entry in found.points}
    for label in repeats:
        if label in ("", ".", "..") or "/" in label or not label.isprintable():
            raise Rejected(f"{label!r} is no label of a point")
    if sum(repeats.values()) > MOST_RUNS:
        raise Rejected(f"it has {thousands(sum(repeats.values()))} runs")
    if found.sweep.hold not in HOLDS:
        raise Rejected(f"hold is {found.sweep.hold!r}")
    there = {label: repeat for label, repeat in repeats.items() if study.has_point(label)}
    in_sweep = {entry.label: entry.in_sweep for entry in found.points if entry.in_sweep is not None}
    return StudyFile(escape_controls(found.name or name), found.sweep.hold, there, found.sweep.train_epochs, in_sweep)


def read_preflights(study: Study, warnings: list[str]) -> tuple[PreflightRecord, ...]:
    """Oldest first; what cannot be read is a warning."""
    found = []
    for file in sorted(study.preflights.glob("*.json")) if study.preflights.is_dir() else []:
        try:
            found.append(decode_record_file(PreflightRecord, read_object(file), file.name))
        except (Rejected, HpcddpError, FileNotFoundError) as error:
            warnings.append(f"preflight/{file.name} cannot be read: {error}")
    return tuple(sorted(found, key=lambda record: record.unix_ns))


def read_prediction(study: Study, warnings: list[str]) -> dict[str, PredictedPoint]:
    """Label -> what was predicted, of points with a band; a file that cannot be read is none, and a warning."""
    found = record_or_none(PredictionRecord, study.prediction_file)
    if found is None and is_there(study.prediction_file):
        warnings.append("prediction.json cannot be read, and no run is compared with it")
    points = [each for each in found.points if each.anchor] if found else []
    return {each.label: each for each in points if 0 < (each.low or 0) <= (each.samples_per_s or 0) <= (each.high or 0)}


def latest_on(host: str, records: Sequence[PreflightRecord], before_unix_ns: int | None) -> PreflightRecord | None:
    """The newest that measured the host, of those before a run began; `records` oldest first."""
    known = [record for record in records if before_unix_ns is None or record.unix_ns <= before_unix_ns]
    return next((record for record in reversed(known) if host in record.hosts), None)


PROPER = {
    **{"torch": "torch", "cuda": "CUDA", "rocm": "ROCm", "nccl": "NCCL", "rccl": "RCCL", "python": "Python"},
    **{"cudnn": "cuDNN", "miopen": "MIOpen", "torchvision": "torchvision", "hpcddp": "hpcddp"},
}
"""Key of launch.json's versions -> how it is written; what changes times most comes first."""

VERSIONED = [*PROPER.values()]

AROUND = ("APPTAINER_NAME", "SINGULARITY_NAME", "CH_RUNNING", "CONDA_DEFAULT_ENV", "VIRTUAL_ENV", "LOADEDMODULES")
"""Variables that name a container, an environment or modules."""

LETTERS = 24
"""Letters of such a variable in a name, as long as that many are enough to distinguish values."""


def launch_software(launch: LaunchRecord) -> dict[str, str]:
    """The versions of what is installed, and whatever else may tell environments apart."""
    found = {PROPER.get(name, name): version for name, version in launch.versions.items()}
    found |= {"freed memory": launch.freed_memory, **{name: launch.environment.get(name) for name in AROUND}}
    return {name: str(found[name]) for name in sorted(found, key=_weight) if found[name] is not None}


def version_words(facts: Mapping[str, str]) -> str:
    """`torch 2.3.0, CUDA 12.1`"""
    return ", ".join(f"{name} {version}" for name, version in facts.items() if name not in ("freed memory", *AROUND))


def environment_names(found: Iterable[tuple[str | None, Mapping[str, str]]]) -> dict[str | None, str]:
    """Id of an environment -> `torch 2.3.0`: the first item that differs, and more items only where that is not enough.

    `found`: the id and the software of each run. An item that differs between runs of one environment is not used. The id is in
    the name only where no item tells the environment from the others.
    """
    runs: dict[str | None, list[Mapping[str, str]]] = {}
    for env_id, facts in found:
        runs.setdefault(env_id, []).append(facts)
    chosen: list[tuple[str, ...]] = [() for _ in runs]
    for name in sorted({name for each in runs.values() for facts in each for name in facts}, key=_weight):
        values = [{facts.get(name, "") for facts in each} for each in runs.values()]
        if all(len(of_one) == 1 for of_one in values):
            texts = shortened([of_one.pop() for of_one in values], LETTERS if name in AROUND else sys.maxsize)
            longer = [(*of, f"{name} {text}" if text else f"no {name}") for of, text in zip(chosen, texts, strict=True)]
            chosen = longer if len(set(longer)) > len(set(chosen)) else chosen
    of_id = dict(zip(runs, chosen, strict=True))
    unclear = {env_id for env_id, texts in of_id.items() if not texts or chosen.count(texts) > 1}
    return {each: ", ".join([*texts, *([f"environment {each}"] if each in unclear else [])]) for each, texts in of_id.items()}


def _weight(name: str) -> tuple[bool, int, str]:
    return name in AROUND, VERSIONED.index(name) if name in VERSIONED else len(VERSIONED), name


End = TypeVar("End", bound=AttemptEnd)
T = TypeVar("T")

OF_ATTEMPT = ("launch.json", "end.json")


def decode_record_file(cls: type[T], plain: object, name: str) -> T:
    """`plain`, the content of the file of that name, as a `cls`; Rejected with the place and the value where it is none."""
    try:
        return decode_record(cls, plain)
    except SchemaError as error:
        raise Rejected(schema_sentence(name, error)) from error


def schema_sentence(name: str, error: SchemaError) -> str:
    """What is wrong in the file of that name: `end.json: ranks[0].rows is None, not a whole number`."""
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.path).removeprefix(".")
    where = f"{name}: {place}" if place else name
    if isinstance(error, MissingKeyError):
        of_attempt = name in OF_ATTEMPT and (not error.path or (error.path[0] == "ranks" and len(error.path) == 2))
        return f"{' or '.join(OF_ATTEMPT) if of_attempt else where} lacks '{error.key}'"
    return f"{where} {error.of_record}" if error.of_record else f"{where}: {error.message}"


@dataclass(frozen=True)
class EndFile:
    """The content of an attempt's end.json, which is checked only when it is decoded."""

    plain: Mapping[str, object]

    @property
    def state(self) -> object:
        """`done`, `interrupted` or `failed`."""
        return self.plain.get("state")

    @property
    def reason(self) -> object:
        return self.plain.get("reason")

    def decoded(self, cls: type[End]) -> End:
        """As a record of that class; Rejected where the file does not fit it."""
        return decode_record_file(cls, self.plain, "end.json")


def read_launch(attempt: Path, point: Point | None) -> LaunchRecord:
    """launch.json; Rejected where it is damaged, newer than this reader or of another point than the folder's."""
    label = attempt.parent.parent.name
    if point is None or point.label != label:
        raise Rejected(f"point.json of {label} is missing or of another point")
    launch = decode_record_file(LaunchRecord, _read(attempt / "launch.json"), "launch.json")
    try:
        launch.profile_facts()
    except SchemaError as error:
        raise Rejected(schema_sentence("launch.json", error)) from error
    if launch.schema != SCHEMA:
        raise Rejected(f"records of schema {launch.schema}; this hpcddp reads {SCHEMA}")
    if launch.point != point.id:
        raise Rejected(f"launch.json is of another point, {launch.point}")
    if launch.ranks != point.ranks:
        raise Rejected(f"launch.json has {launch.ranks} ranks, the point has {point.ranks}")
    return launch


def read_end_file(attempt: Path, warnings: list[str]) -> EndFile | None:
    """end.json; None where there is none or (with a warning) it cannot be read."""
    file = attempt / "end.json"
    if not is_there(file):
        return None
    try:
        return EndFile(read_object(file))
    except (HpcddpError, FileNotFoundError):
        warnings.append(f"{'/'.join(file.parts[-4:])} is damaged; the attempt counts as not ended")
        return None


def read_training_end(attempt: Path) -> TrainingEnd:
    """end.json of an attempt that trained and is done or was interrupted; Rejected where it is damaged or missing."""
    return EndFile(_read(attempt / "end.json")).decoded(TrainingEnd)


def read_comm(attempt: Path) -> CommRecord:
    """comm.json; Rejected where it is damaged or newer than this reader."""
    comm = decode_record_file(CommRecord, _read(attempt / "comm.json"), "comm.json")
    if comm.schema != SCHEMA:
        raise Rejected(f"comm.json of schema {comm.schema}; this hpcddp reads {SCHEMA}")
    check_comm_times(comm)
    return comm


def _read(file: Path) -> Mapping[str, object]:
    try:
        return read_object(file)
    except (HpcddpError, FileNotFoundError) as error:
        raise Rejected(f"{file.name} is damaged or missing") from error


MOST_MEMORY_BYTES = 2**50
"""The largest machines that share one memory have 48 TiB."""


OLDEST_GATES = ("parameters agree",)
"""What every version records of training; since launch.json says which `gates` there will be, those."""


def check_end(end: TrainingEnd, point: Point | None) -> None:
    """Rejected where end.json cannot be of that point, or its checksums or clocks cannot be."""
    if point is not None and end.global_batch != point.global_batch:
        raise Rejected(f"end.json: global_batch is {end.global_batch}, and the point's is {point.global_batch}")
    if end.evaluation:
        _check_evaluation(end.evaluation)
    for place, entry in enumerate(end.ranks):
        if entry.crc32 is None:
            raise Rejected(f"end.json: ranks[{place}].crc32 is None, not a whole number")
        if entry.bucket_rows and entry.bucket_crc32 is None:
            raise Rejected("launch.json or end.json lacks 'bucket_crc32'")
        _check_clock(f"rank {entry.rank}: its clock", entry.clock or RankClock())
        for kind, size in (entry.peak_memory_bytes or {}).items():
            if size > MOST_MEMORY_BYTES:
                raise Rejected(f"rank {entry.rank}: peak_memory_bytes {kind} is {size}: no machine has that")


def _check_evaluation(found: EvaluationResult) -> None:
    if found.correct is not None and found.correct > (found.samples or 0):
        raise Rejected(f"end.json: evaluation.correct is {found.correct}, of {found.samples} samples")
    if found.loss is not None and not 0 <= found.loss < math.inf:
        raise Rejected(f"end.json: evaluation.loss is {found.loss}: a cross entropy is not negative, nor infinite")


def missing_gate(found: Sequence[GateResult], launch: LaunchRecord, trains: bool) -> str | None:
    """The sentence for a gate that launch.json names and end.json lacks; None where all are there."""
    names = {gate.name for gate in found}
    for name in launch.gates or (OLDEST_GATES if trains else ()):
        if name not in names:
            return f"end.json: check `{name}` is missing"
    return None if names else "end.json: there is no check at all"


def _check_clock(whose: str, clock: RankClock) -> None:
    for when, offset in (("start", clock.start), ("end", clock.end)):
        if offset is None:
            continue
        for name, value in (("offset_ns", offset.offset_ns), ("error_ns", offset.error_ns)):
            if abs(value) > DAY_NS:
                raise Rejected(f"{whose}'s {name} at the {when} is {value}, more than a day")
        if offset.unix_ns > LATEST_NS:
            raise Rejected(f"{whose}'s unix_ns at the {when} is {offset.unix_ns}: no time of this century")
    if clock.start and clock.end and clock.end.unix_ns < clock.start.unix_ns:
        raise Rejected(f"{whose} ran backwards, from {clock.start.unix_ns} to {clock.end.unix_ns}")


def check_comm_times(comm: CommRecord) -> None:
    """Rejected where times of collectives cannot be true."""
    for op, found in comm.ops.items():
        for size in found.sizes:
            where = f"comm.json: {op} of {size.bytes} bytes"
            if size.bytes > MOST_BUCKET_BYTES:
                raise Rejected(f"{where}: no message has that many")
            if not 0 < size.time_min_s <= size.time_s <= size.time_max_s <= DAY_NS / 1e9:
                times = f"{size.time_min_s:g}, {size.time_s:g}, {size.time_max_s:g}"
                raise Rejected(f"{where} took {times} s at least, typically and at most, which cannot be")
