"""The part of a cluster profile that says what the workers run in: modules, Python, container, variables, and the
conditions on which these are set.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from hpcddp.core.errors import UsageError
from hpcddp.core.schema import added_later


@dataclass(frozen=True, kw_only=True)
class Container:
    """An image that the ranks run in."""

    image: str
    """Its file or reference; of the CSCS engine, its environment definition file."""
    runtime: Literal["apptainer", "pyxis", "podman-hpc", "cscs", "charliecloud"]
    binds: tuple[str, ...] = ()
    """`PATH` or `OUTSIDE:INSIDE`, besides run root, data root and the job's code."""
    gpus: Literal["nvidia", "amd", "none"] = "nvidia"


@dataclass(frozen=True, kw_only=True)
class Environment:
    """The environment the workers run in."""

    kind: Literal["module", "conda", "venv", "container", "system"] = "system"
    module_init: tuple[str, ...] = ()
    """Files that define `module`; the first that exists is sourced."""
    modules: tuple[str, ...] = ()
    """Loaded in this order."""
    activate: tuple[str, ...] = ()
    """Shell lines after the modules."""
    python: str = "python3"
    """One word, or several (`apptainer exec --nv image.sif python3`)."""
    torch: str | None = None
    """Which torch build this machine needs, in words."""
    container: Container | None = added_later(None)


@dataclass(frozen=True, kw_only=True)
class When:
    """The jobs that an environment rule fits; what is not given fits all."""

    fabric: str | None = None
    """Part of the fabric's name."""
    nccl: str | None = None
    """NCCL's version: `<2.21`, `>=2.27`."""
    node_type: tuple[str, ...] = ()
    nodes: str | None = None
    """`>1`, `1`."""


@dataclass(frozen=True, kw_only=True)
class EnvRule:
    """A variable that is exported in some jobs: a value, or what a command prints there."""

    name: str
    value: str | None = None
    command: str | None = None
    """Run in the job before the ranks start; what prints nothing sets nothing."""
    when: When = When()
    source: str
    """A key of the profile's `sources`."""


Compare = Callable[[tuple[int, ...], tuple[int, ...]], bool]
SIGNS: Mapping[str, Compare] = {"": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}

FORM = re.compile(r"([<>]=?|)\s*(\d+(?:\.\d+)*)")
"""A condition on a number with parts: `>1`, `1`, `<2.21`, `>=2.27`."""


def condition_holds(condition: str, *number: int) -> bool:
    """Whether it holds of `number`, by as many parts as the condition has: 2.21.5 is `2.21` and `<=2.21`."""
    found = FORM.fullmatch(condition)
    if found is None:
        raise UsageError(f"`{condition}` is not a condition. Write `>1`, `<2.21`, `>=2.27` or a number.")
    parts = tuple(map(int, found[2].split(".")))
    return SIGNS[found[1]](number[: len(parts)], parts)
