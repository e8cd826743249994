"""What the options of a command line ask for: which points, on which layout, how far to go; and how the user is talked to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class PointOptions:
    """Which points of a sweep, and what is changed in them."""

    cluster: str | None = None
    """--cluster: a profile by name or file; None: the sweep's, or the one of this machine."""
    hosts: str | None = None
    """--hosts: reached by ssh in place of the cluster's nodes."""
    settings: tuple[str, ...] = ()
    """--set, each as KEY=VALUE."""
    groups: tuple[str, ...] = ()
    """--group; none: all of them."""
    conditions: tuple[str, ...] = ()
    """--where; a point must meet all of them."""
    also: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """--input and --comm, by key of the sweep: each point is measured with each of the values."""
    job_options: tuple[str, ...] = ()
    """--job-option: raw options of sbatch."""


@dataclass(frozen=True, kw_only=True)
class LayoutOptions:
    """A layout where there is no sweep file; None: what the profile has by default."""

    nodes: int | None = None
    gpus_per_node: int | None = None
    node_type: str | None = None


@dataclass(frozen=True, kw_only=True)
class SubmitOptions:
    """How far `hpcddp submit` goes, and how much it submits at once; its --help says what each does."""

    runs: Path | None = None
    """The run root; None: the user's own, or the sweep's folder."""
    dry_run: bool = False
    each_point: bool = False
    smoke: bool = False
    preflight: bool = False
    wait: bool = False
    yes: bool = False
    max_running: int | None = None
    max_jobs: int | None = None
    after: tuple[str, ...] = ()
    prepare: bool = False
    failed: bool = False
    one_allocation: bool = False
    until_ci: float | None = None
    """Per cent."""
    max_repeat: int = 0


@dataclass(frozen=True, kw_only=True)
class Console:
    """How the user is talked to."""

    echo: Callable[[str], None]
    """A result, on stdout."""
    remark: Callable[[str], None]
    """What is worth knowing besides, on stderr."""
    progress: Callable[[str], None]
    """What changes while the user waits, on stderr."""
    confirm: Callable[[str], object]
    """A question; raises where the answer is no."""
