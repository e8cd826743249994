"""A sweep's point that is a script of the user's own: its command line, its files, and what its job found out of it.

Standard library only, Python 3.10.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

from hpcddp.core.launch_record import ScriptFacts
from hpcddp.core.point import Data, Point, Workload


def arguments(workload: Workload) -> list[str]:
    """The words behind the script's name: `--depth 12 --amp --sizes 1 2`."""
    return [word for name, value in workload.args.items() for word in _words(name, value)]


def script_text(workload: Workload) -> str:
    """`train.py --depth 12`, as people write it."""
    return " ".join([Path(workload.script or "").name, *arguments(workload)])


def command_text(point: Point) -> str | None:
    """The same of a point whose loop is the user's, in a sweep or not; None of hpcddp's own."""
    if point.script:
        return " ".join([point.script.name, *point.script.arguments])
    return script_text(point.workload) if point.workload.script else None


def completed(point: Point, facts: ScriptFacts) -> Point:
    """The point with what its job found out; its id is the same."""
    workload = dataclasses.replace(
        point.workload,
        model=facts.model,
        data=Data(name=facts.data),
        precision=facts.precision,
        batch_per_gpu=facts.samples_per_step,
        accumulate=facts.iterations_per_step,
        loader_workers_per_rank=facts.loader_workers_per_rank,
        parallel=facts.parallel,
    )
    return dataclasses.replace(point, workload=workload)


def facts_of(workload: Workload) -> ScriptFacts:
    """What `completed` put into a point."""
    return ScriptFacts(
        model=workload.model,
        data=workload.data.name,
        precision=workload.precision,
        samples_per_step=workload.batch_per_gpu,
        iterations_per_step=workload.accumulate,
        loader_workers_per_rank=workload.loader_workers,
        parallel="ddp" if workload.parallel == "ddp" else "none",
    )


def _words(name: str, value: object) -> Iterator[str]:
    if value is None or value is False:
        return
    yield f"--{name}"
    if isinstance(value, (list, tuple)):
        yield from map(str, value)
    elif value is not True:
        yield str(value)
