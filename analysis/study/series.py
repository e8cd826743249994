"""Which points may be compared: a series is the same workload, cluster, node type, GPU and environment at several layouts.

Points of a series differ in nodes and GPUs per node only (with `hold: global_batch` in the batch per GPU that follows).
Anything else that differs, env_id, GPU type and node type above all, makes another series: those are never averaged.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hpcddp.analysis.util.wording import shortened
from hpcddp.core.point import Point, flat_keys, to_json

SHORT = {
    "workload.batch_per_gpu": "batch/GPU",
    "workload.loader_workers_per_rank": "workers",
    "workload.data.name": "data",
    "workload.optimizer.name": "optimizer",
    "layout.node_type": "node type",
    "layout.physical_cores_per_rank": "cores/rank",
    "global_batch": "global batch",
    "env_id": "env",
    "gpu": "GPU",
}
"""Names of keys in tables and figures, where the last word of the key is not clear enough."""

OUTSIDE = (
    *("layout.nodes", "layout.gpus_per_node", "workload.data.root", "workload.data.stage"),
    "workload.global_batch",
    *("measure.comm", "measure.profile_steps", "measure.profile_ranks"),
    *("measure.evaluate", "measure.evaluate_every"),
    "workload.samples_per_step",
)
"""Keys in which points of one series may differ: what a series varies, what is not hashed, what happens after the timed steps,
and the communication hook (the breakdown comes from runs with it, the throughput from runs without it).
"""

LETTERS = 24
"""Letters of a value that distinguishes series, as long as that many are enough to distinguish them."""

FOUND = ("gpu", "env_id")
"""Keys of a series that are known at launch only."""

ENVIRONMENT = SHORT["env_id"]

SeriesKey = Mapping[str, Any]

Apart = Mapping[str, Mapping[str, Any]]
"""Text of a series key -> {short name: value} of what differs between series."""


def workload_key(point: Point, hold: str) -> SeriesKey:
    """Everything of a point that must be equal within a series, flat: `workload.model` and so on."""
    flat = {key: value for key, value in flat_keys(point).items() if key not in OUTSIDE}
    if hold == "global_batch":
        flat.pop("workload.batch_per_gpu", None)
        flat["global_batch"] = point.global_batch
    return flat


def series_key(point: Point, hold: str, environment: str | None, gpu: str | None) -> SeriesKey:
    """The workload key with what was found at launch: what tells the environment from the study's others, and the GPU."""
    return {**workload_key(point, hold), "env_id": environment, "gpu": gpu}


def key_text(key: SeriesKey) -> str:
    """The key as text: equal keys have equal text, which sorts the same everywhere."""
    return to_json(dict(key))


def same_workload(text: str, point: Point, hold: str) -> bool:
    """Whether the point belongs to the series, whatever GPU and environment it will find."""
    return as_planned(text) == key_text(workload_key(point, hold))


def as_planned(text: str) -> str:
    """The key without what was found at launch."""
    return key_text({name: value for name, value in json.loads(text).items() if name not in FOUND})


def series_order(text: str, first: str) -> tuple[int, tuple[str, ...], tuple[tuple[bool, float, str], ...]]:
    """Sorts series keys by how much and what differs from the first, then by values: all batches, then all workers."""
    key, base = json.loads(text), json.loads(first)
    values = [value for _, value in sorted(key.items())]
    numbered = tuple((isinstance(v, (int, float)), v if isinstance(v, (int, float)) else 0.0, to_json(v)) for v in values)
    names = sorted(name for name in key if key[name] != base.get(name))
    return len(names), tuple(names), numbered


def differing(texts: Iterable[str]) -> Apart:
    """What distinguishes these series, in their order; nothing for a single series.

    Where keys always differ together (a node type and its GPU, a GPU and its software), the first stands for all. Long values
    are cut to what distinguishes them.
    """
    keys = {text: json.loads(text) for text in texts}
    names = sorted({name for key in keys.values() for name in key}, key=lambda name: (name in FOUND, name == "env_id", name))
    partitions: dict[tuple[int, ...], str] = {}
    for name in names:
        values = [to_json(key.get(name)) for key in keys.values()]
        if len(set(values)) > 1:
            partitions.setdefault(tuple(values.index(value) for value in values), name)
    columns = {name: [key.get(name) for key in keys.values()] for name in partitions.values()}
    columns = {short_name(name): values if name == "env_id" else _distinct(values) for name, values in columns.items()}
    return {text: {name: values[i] for name, values in columns.items()} for i, text in enumerate(keys)}


def _distinct(values: Sequence[Any]) -> list[Any]:
    """The values unchanged if their texts are short enough, otherwise short texts that differ."""
    texts = [value_text(value) for value in values]
    short = shortened(texts, LETTERS)
    return list(values) if short == texts else short


def full_names(apart: Apart) -> dict[str, str]:
    """Key text -> `batch/GPU 64, workers 2`: everything that distinguishes the series from the others, and has a value."""
    return {text: words(with_values(values) or values) for text, values in apart.items()}


def with_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Those that have one."""
    return {name: value for name, value in values.items() if not is_unset(name, value)}


def is_unset(name: str, value: Any) -> bool:
    """Whether a key has no value; what is found at launch has one, known or not."""
    return value is None and name not in map(short_name, FOUND)


def short_names(apart: Apart) -> dict[str, str]:
    """Key text -> name, in full for the first series; for the others only what differs from the first."""
    first = next(iter(apart.values()), {})
    return {
        text: words({name: value for name, value in values.items() if values is first or value != first[name]})
        for text, values in apart.items()
    }


def short_name(key: str) -> str:
    """`workload.loader_workers_per_rank` -> `workers`; a variable by its name."""
    if key.startswith("env."):
        return key.removeprefix("env.")
    return SHORT.get(key, key.rpartition(".")[2].replace("_", " "))


def words(values: Mapping[str, Any]) -> str:
    """`batch/GPU 64, workers 2`; a software environment has its name alone, `torch 2.3.0`."""
    return ", ".join(f"{'' if name == ENVIRONMENT else f'{name} '}{text_of(name, value)}" for name, value in values.items())


def text_of(name: str, value: Any) -> str:
    """A value by its key's short name; `default` of a key without one."""
    return "default" if is_unset(name, value) else value_text(value)


def value_text(value: Any) -> str:
    """A key's value as short text; unknown where there is none."""
    if isinstance(value, list):
        return "+".join(map(str, value))
    if isinstance(value, bool):
        return "on" if value else "off"
    return "unknown" if value is None else value if isinstance(value, str) else str(value).removesuffix(".0")
