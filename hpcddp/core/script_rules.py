"""Which values of a point cannot go with a training script of the user's own. Standard library only, Python 3.10."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

from hpcddp.core.point import Measure, Point, Workload

OF_SCRIPTS = ("script", "args", "samples_per_step")
"""Keys of `workload` that go with a script."""

FILLED_IN = ("batch_per_gpu",)
"""Follows from samples_per_step."""

OF_OWN_LOOP = ("input", "evaluate", "epochs", "evaluate_every", "target_accuracy")
"""Keys of `measure` that say what hpcddp's own loop does."""

NAME = re.compile(r"[A-Za-z][\w-]*")
"""Of an argument, behind its dashes."""


def own_script(point: Point) -> Iterator[str]:
    """What the script decides itself, and what its arguments may be."""
    workload, measure = point.workload, point.measure
    if workload.script is None:
        for key in _changed(workload, OF_SCRIPTS):
            yield f"workload.{key} goes with workload.script, the path of a training script, which this sweep does not have."
        return
    named = f"workload.script is {workload.script}"
    if point.work != "steps":
        yield f"{named} and work is {point.work}: how long an epoch is, only the script knows. Leave work out."
    for key in _changed(workload, [each for each in _keys(workload) if each not in (*OF_SCRIPTS, *FILLED_IN)]):
        if not workload.model:  # else the job found it
            yield f"{named}: workload.{key} is the script's own choice. Give it as an argument: workload.args.NAME."
    if workload.samples_per_step is None and workload.batch_per_gpu != Workload.batch_per_gpu and not workload.model:
        yield f"{named}: workload.batch_per_gpu is the script's own choice. Say it in workload.samples_per_step."
    for key in _changed(measure, OF_OWN_LOOP):
        yield f"{named}: measure.{key} is about the loop of hpcddp's own. Leave it out."
    for name, value in workload.args.items():
        if not NAME.fullmatch(name):
            yield f"workload.args: `{name}` cannot be the name of an argument: letters, digits, - and _."
        if not all(
            each is None or isinstance(each, (str, int, float)) for each in (value if isinstance(value, list) else [value])
        ):
            yield f"workload.args.{name} is {value!r}: it is text, a number, true or false, or a list of these. Write it so."


def _keys(workload: Workload) -> list[str]:
    return [field.name for field in dataclasses.fields(workload)]


def _changed(values: Workload | Measure, keys: list[str] | tuple[str, ...]) -> list[str]:
    """Those of the keys that do not have their default."""
    defaults = type(values)()
    return [key for key in keys if getattr(values, key) != getattr(defaults, key)]
