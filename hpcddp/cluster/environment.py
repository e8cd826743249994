"""The part of a cluster profile that says what the workers run in: modules, Python, container, variables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hpcddp.core.schema import added_later


@dataclass(frozen=True, kw_only=True)
class Container:
    """An image that the ranks run in."""

    image: str
    """Its file or reference, as the runtime takes it; of the CSCS container engine, its environment definition file."""
    runtime: Literal["apptainer", "pyxis", "podman-hpc", "cscs", "charliecloud"]
    binds: tuple[str, ...] = ()
    """What the ranks need besides run root, data root and the job's code: `PATH` or `OUTSIDE:INSIDE`."""
    gpus: Literal["nvidia", "amd", "none"] = "nvidia"


@dataclass(frozen=True, kw_only=True)
class Environment:
    """The environment the workers run in, named apart from the login node's (that one only runs hpcddp itself)."""

    kind: Literal["module", "conda", "venv", "container", "system"] = "system"
    module_init: tuple[str, ...] = ()
    """Files that define `module` where a batch shell lacks it; the first that exists is sourced."""
    modules: tuple[str, ...] = ()
    """Loaded in this order, each checked."""
    activate: tuple[str, ...] = ()
    """Shell lines after the modules (conda, venv), each checked."""
    python: str = "python3"
    """The command that runs Python there; a shell word, or several (`apptainer exec --nv image.sif python3`)."""
    torch: str | None = None
    """Which torch build this machine's GPUs and processors need, in words."""
    container: Container | None = added_later(None)


@dataclass(frozen=True, kw_only=True)
class When:
    """The jobs that an environment rule fits; what is not given fits all."""

    fabric: str | None = None
    """Part of the fabric's name (as in "Slingshot 11")."""
    nccl: str | None = None
    """NCCL's version, asked of torch in the job: `<2.21`, `>=2.27`."""
    node_type: tuple[str, ...] = ()
    nodes: str | None = None
    """Nodes of the job: `>1`, `1`."""


@dataclass(frozen=True, kw_only=True)
class EnvRule:
    """A variable that is exported in some jobs: a value, or what a command prints there."""

    name: str
    value: str | None = None
    command: str | None = None
    """Shell text, run in the job before the ranks start; what prints nothing sets nothing."""
    when: When = When()
    source: str
    """A key of the profile's `sources`."""
