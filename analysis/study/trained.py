"""What was trained, on what and when, as the runs' records have it: every report says it once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from hpcddp.analysis.records.json_files import version_words
from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.study.axes import DEFAULTS, axis_text, value_order
from hpcddp.analysis.study.series import OUTSIDE, short_name
from hpcddp.analysis.util.wording import unit
from hpcddp.core.own_script import command_text
from hpcddp.core.point import FOUND_IN_SCRIPT, Point, flat_keys, to_json

NAMES = {
    **{"workload.model": "model", "script": "script", "workload.data.name": "data", "workload.precision": "precision"},
    **{"workload.batch_per_gpu": "batch", "global_batch": "global batch", "workload.loader_workers_per_rank": "workers"},
    **{"workload.parallel": "parallel", "workload.optimizer.name": "optimizer", "workload.optimizer.lr": "learning rate"},
    **{"workload.optimizer.momentum": "momentum", "workload.seed": "seed", "measure.epochs": "epochs"},
}
"""Keys that are always named. Any other key is where it varies; and where it is not the default, a key of IF_SET."""

IF_SET = ("workload.", "measure.input", "measure.target_accuracy")

UNKNOWN = "unknown (the script's own)"

SHOWN, LETTERS = 12, 32
"""Values of what varies in a text, and letters of all of them on the terminal; report.json has every value."""

CLUTTER = re.compile(r"^((NVIDIA|AMD|Intel(\(R\))?|Tesla|Instinct) )+|\((R|TM)\)| \d+-Core Processor$| CPU @ .*$")
"""Of a GPU's or a processor's name: the terminal has 80 columns."""

Facts = Mapping[str, Sequence[str]]
"""What -> its values, several where it varies."""


def trained(runs: Iterable[Run]) -> dict[str, list[str]]:
    """Of the runs that count, or of the rejected ones where none counts; what no record says is not there."""
    done = [run for run in runs if run.point and run.state != "missing"]
    chosen = [run for run in done if run.state == "counts"] or done
    facts: dict[str, Sequence[str | None]] = {
        **_of_keys([*{run.point.id: run.point for run in chosen if run.point and run.trains}.values()]),
        "GPU": [run.gpu for run in chosen],
        "CPU": [name for run in chosen for name in run.processors],
        "cluster": [run.point.cluster for run in chosen if run.point],
        "date": [days(run.started_unix_ns for run in chosen)],
        "software": [version_words(run.software) for run in chosen],
    }
    found = {name: list(dict.fromkeys(text for text in texts if text)) for name, texts in facts.items()}
    return {name: texts for name, texts in found.items() if texts}


def days(unix_ns: Iterable[int | None]) -> str:
    """`2025-03-01`, or from and to; UTC. Empty where none is known."""
    found = sorted({f"{datetime.fromtimestamp(ns / 1e9, UTC):%Y-%m-%d}" for ns in unix_ns if ns})
    return " to ".join(dict.fromkeys([*found[:1], *found[-1:]]))


def fact_text(values: Sequence[str]) -> str:
    """`64 samples per GPU`; `varies: 32, 64 samples per GPU`"""
    if len(values) == 1:
        return values[0]
    units = {re.sub(r"^\d+", "", value) for value in values}
    shared = units.pop() if len(units) == 1 else ""
    between = "; " if any(", " in value for value in values) else ", "
    more = f" and {len(values) - SHOWN} more" if len(values) > SHOWN else ""
    return f"varies: {between.join(value.removesuffix(shared) for value in values[:SHOWN])}{more}{shared}"


def facts_line(facts: Facts) -> str:
    """`resnet50 on imagenet, batch 64/GPU, fp32, A100, leonardo`; of what varies its values, the ends of more than two
    batches, or how many there are."""
    model = " on ".join(_short(name, facts[name]) for name in ("model", "data") if name in facts)
    batch = "global batch" if "global batch" in facts else "batch"
    others = [_short(name, facts[name]) for name in (batch, "precision", "GPU", "CPU", "cluster") if name in facts]
    return ", ".join(filter(None, [model, *others]))


def _short(name: str, values: Sequence[str]) -> str:
    texts = [CLUTTER.sub("", value) for value in values]
    if len(texts) == 1:
        short = texts[0].replace(" samples per ", "/").removesuffix(" samples")
        return f"{name} {short}" if name.endswith("batch") else short
    if name.endswith("batch") and len(texts) > 2:
        return f"{name} {texts[0].split()[0]}-{texts[-1].replace(' samples per ', '/').removesuffix(' samples')}"
    text = fact_text(texts).removeprefix("varies: ").replace(", ", "/")
    return text if len(text) <= LETTERS else f"{name}: {len(texts)} values"


def _of_keys(points: Sequence[Point]) -> dict[str, list[str]]:
    flat = [_flat(point) for point in points]
    device = unit("cpu" if all(point.device == "cpu" for point in points) else "cuda")
    units = {"batch": f" samples per {device}", "global batch": " samples", "workers": " per rank"}
    found: dict[str, list[str]] = {}
    for key in [*NAMES, *sorted({key for each in flat for key in each} - set(NAMES))]:
        values = {to_json(each[key]): each[key] for each in flat if key in each}
        if _is_named(key, [*values.values()], flat):
            name = NAMES.get(key) or short_name(key)
            texts = [f"{axis_text(value)}{units.get(name, '')}" for value in sorted(values.values(), key=value_order)]
            found[key if name in found else name] = texts
    return found


def _flat(point: Point) -> dict[str, Any]:
    """The point's keys as far as they were set or recorded: a script's loop has an optimizer of its own."""
    flat = flat_keys(point) | {"global_batch": point.global_batch}
    if not point.own_loop:
        unused = "workload.optimizer.momentum" if point.workload.optimizer.name in ("adamw", "lamb") else ""
        return {key: value for key, value in flat.items() if key != unused}
    exchanges = point.ranks > 1 and point.workload.parallel == "ddp"
    known = {name for name in FOUND_IN_SCRIPT if point.workload.model and (exchanges or name != "workload.parallel")}
    found = {key: value for key, value in flat.items() if key in known or not key.startswith(("workload.", "script."))}
    if not found.get("workload.loader_workers_per_rank", True):
        found["workload.loader_workers_per_rank"] = "none found"
    return {**found, "script": command_text(point), "workload.optimizer.name": UNKNOWN, "workload.seed": UNKNOWN}


def _is_named(key: str, values: Sequence[Any], flat: Sequence[Mapping[str, Any]]) -> bool:
    if key == "global_batch":
        return len(values) == 1 and len({each.get("workload.batch_per_gpu") for each in flat}) > 1
    if len(values) == 1:
        return values[0] not in (None, "") if key in NAMES else key.startswith(IF_SET) and values[0] != DEFAULTS.get(key)
    return len(values) > 1 and key not in ("cluster", "device", *OUTSIDE)
