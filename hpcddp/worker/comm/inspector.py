"""NCCL Inspector, a profiler plugin that comes with NCCL's sources (2.28 on): a job that has it at hand is watched by it, too.

At hand is what NCCL_PROFILER_PLUGIN names, which the user or the site sets. The variables are those of its README (NVIDIA/nccl,
plugins/profiler/inspector); what the user has set of them stays. It writes a line of JSON for each collective.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from pathlib import Path

from hpcddp.core.point import Point
from hpcddp.core.records import inspector_folder

PLUGIN = "NCCL_PROFILER_PLUGIN"

DUMP_EVERY_US = 1_000_000
"""It holds the last 1,024 collectives of a communicator between two dumps, and by default dumps at the end only."""


def inspect_collectives(point: Point, attempt: Path, env: MutableMapping[str, str] = os.environ) -> None:
    """With `comm: check`, before NCCL reads its variables."""
    if point.measure.comm != "check" or "inspector" not in Path(env.get(PLUGIN, "")).name:
        return
    folder = inspector_folder(attempt)
    folder.mkdir(parents=True, exist_ok=True)
    env.setdefault("NCCL_INSPECTOR_ENABLE", "1")
    env.setdefault("NCCL_INSPECTOR_DUMP_DIR", str(folder))
    env.setdefault("NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS", str(DUMP_EVERY_US))
