"""Which jobs NCCL Inspector watches."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcddp.worker.comm.inspector import inspect_collectives
from tests.worker import given

PLUGIN = {"NCCL_PROFILER_PLUGIN": "/opt/nccl/libnccl-profiler-inspector.so"}


def test_it_writes_into_the_attempt(tmp_path: Path) -> None:
    """As its README has the variables; what the user has set stays."""
    env = {**PLUGIN, "NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS": "500"}
    inspect_collectives(given.point(2, measure={"comm": "check"}), tmp_path, env)
    assert env == {
        **PLUGIN,
        "NCCL_INSPECTOR_ENABLE": "1",
        "NCCL_INSPECTOR_DUMP_DIR": str(tmp_path / "inspector"),
        "NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS": "500",
    }
    assert (tmp_path / "inspector").is_dir()


@pytest.mark.parametrize(
    ("comm", "env"), [("on", PLUGIN), ("check", {}), ("check", {"NCCL_PROFILER_PLUGIN": "libnccl-profiler-other.so"})]
)
def test_elsewhere_nothing_changes(tmp_path: Path, comm: str, env: dict[str, str]) -> None:
    """Timed steps of other runs cost what they cost without, and no plugin is looked for."""
    found = dict(env)
    inspect_collectives(given.point(2, measure={"comm": comm}), tmp_path, found)
    assert (found, list(tmp_path.iterdir())) == (env, [])
