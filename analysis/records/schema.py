"""What analysis reads of an attempt's JSON files, and of which type it is: checked once, so that nothing later meets another one.

Keys may be absent (a reader that needs one says so) and others may be there; a value that is there is of its type.
"""

from __future__ import annotations

import functools
import types
import typing
from collections.abc import Mapping
from typing import Annotated, Any, TypedDict

from hpcddp.analysis.records.rows import Rejected

Count = Annotated[int, 0]
"""A whole number, at least as large as said."""

Some = Annotated[int, 1]

NoLess = Annotated[float, 0]

MOST = 2**63 - 1

Word = str | int | float | bool | None
"""For display only."""


class NodeKind(TypedDict, total=False):
    smt: Some | None
    physical_cores: Some | None
    gpus: Count | None


class Fabric(TypedDict, total=False):
    gbps_per_node: NoLess | None


class Profile(TypedDict, total=False):
    fabric: Fabric | None
    node_types: dict[str, NodeKind] | None
    default_node_type: str | None


class DataSet(TypedDict, total=False):
    name: str | None
    samples: Count | None


class Launch(TypedDict, total=False):
    """launch.json"""

    schema: int
    point: str
    ranks: Some
    gpus: list[str]
    env_id: str
    backend: str | None
    launcher: str | None
    hosts: list[str] | None
    ranks_per_node: Some | None
    cpus_of_ranks: list[Count] | None
    profile: Profile | None
    data: DataSet | None
    tf32: dict[str, bool | str] | None
    environment: dict[str, Word] | None
    versions: dict[str, Word] | None
    clock: str | None
    communication: str | None
    git_commit: str | None
    started_unix_ns: Count | None
    gates: list[str] | None


class Gate(TypedDict):
    name: str
    passed: bool
    evidence: str


class Offset(TypedDict):
    unix_ns: Count
    offset_ns: int
    error_ns: Count


class Clock(TypedDict, total=False):
    start: Offset | None
    end: Offset | None


class RankEnd(TypedDict, total=False):
    rank: Count
    host: str
    rows: Count
    crc32: Count
    bucket_rows: Count | None
    bucket_crc32: Count | None
    clock: Clock | None
    peak_memory_bytes: dict[str, Count] | None
    page_faults: dict[str, Count] | None


class NodeTelemetry(TypedDict, total=False):
    host: str | None
    cpu_busy_share: NoLess | None
    cpu_job_share: NoLess | None
    cpu_foreign_share: NoLess | None


class Telemetry(TypedDict, total=False):
    energy_j_per_1000_samples: NoLess | None
    nodes: list[NodeTelemetry] | None


class Protocol(TypedDict, total=False):
    steady_from_step: Count | None
    stopped_by: str | None
    warmup_detected_steps: Count | None


class CommCheck(TypedDict, total=False):
    sentence: str | None
    closes: bool | None


class Evaluation(TypedDict, total=False):
    samples: Count | None
    correct: Count | None


class Made(TypedDict):
    attempt: str
    first_step: Count
    steps: Some


class End(TypedDict, total=False):
    """end.json of an attempt that is done, or was interrupted."""

    state: str
    history: list[Made] | None
    first_step: Count | None
    gates: list[Gate]
    ranks: list[RankEnd]
    global_batch: Some
    protocol: Protocol | None
    comm_check: CommCheck | None
    telemetry: Telemetry | None
    evaluation: Evaluation | None
    flops_per_sample: Count | None
    loss_first: float | None
    loss_last: float | None


class Size(TypedDict):
    bytes: Some
    calls: Some
    time_s: NoLess
    time_min_s: NoLess
    time_max_s: NoLess
    algbw_bytes_per_s: NoLess | None
    busbw_bytes_per_s: NoLess | None
    correct: bool | None


class Fit(TypedDict):
    latency_s: NoLess | None
    bandwidth_bytes_per_s: NoLess | None


class Operation(TypedDict):
    sizes: list[Size]
    fit: Fit
    not_supported: str | None


class Comm(TypedDict):
    """comm.json"""

    schema: int
    backend: str
    ops: dict[str, Operation]


def check_shape(plain: Mapping[str, Any], shape: type, where: str) -> None:
    """Rejected, with the key and the value, where `plain` is not of the TypedDict `shape`."""
    _check(plain, shape, where)


def _check(value: Any, kind: Any, where: str) -> None:
    if typing.is_typeddict(kind):
        _check_record(_expect(value, dict, where), kind, where)
        return
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType or origin is typing.Union:
        _check_union(value, args, where)
    elif origin is Annotated:
        if _expect(value, args[0], where) < args[1]:
            raise Rejected(f"{where} is {_shown(value)}, below {args[1]}")
    elif origin is list:
        for i, each in enumerate(_expect(value, list, where)):
            _check(each, args[0], f"{where}[{i}]")
    elif origin is dict:
        for key, each in _expect(value, dict, where).items():
            _check(each, args[1], f"{where}.{key}")
    else:
        _expect(value, kind, where)


def _check_record(plain: dict[str, Any], shape: Any, where: str) -> None:
    for key in shape.__required_keys__ - plain.keys():
        raise Rejected(f"{where} lacks '{key}'")
    for key, kind in _kinds(shape).items():
        if key in plain:
            _check(plain[key], kind, f"{where}.{key}" if ": " in where else f"{where}: {key}")


def _check_union(value: Any, kinds: tuple[Any, ...], where: str) -> None:
    if value is None and type(None) in kinds:
        return
    others = [kind for kind in kinds if kind is not type(None)]
    for kind in others[:-1]:
        try:
            return _check(value, kind, where)
        except Rejected:
            continue
    _check(value, others[-1], where)


def _expect(value: Any, kind: type, where: str) -> Any:
    """A whole number is a number; true is none."""
    kinds = (int, float) if kind is float else kind
    if not isinstance(value, kinds) or (isinstance(value, bool) and kind is not bool):
        raise Rejected(f"{where} is {_shown(value)}, not {_NAMES[kind]}")
    if isinstance(value, int) and abs(value) > MOST:
        raise Rejected(f"{where} is {_shown(value)}, too large to be true")
    return value


_NAMES = {str: "text", int: "a whole number", float: "a number", bool: "true or false", list: "a list", dict: "an object"}


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


@functools.cache
def _kinds(shape: type) -> dict[str, Any]:
    return typing.get_type_hints(shape, include_extras=True)
