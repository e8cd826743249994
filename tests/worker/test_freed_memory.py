"""Ranks on CPUs keep memory that they free."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from hpcddp.core import malloc
from hpcddp.core.jobspec import spec_to_dict
from hpcddp.core.point import flat_keys
from hpcddp.worker import main
from hpcddp.worker.freed_memory import freed_memory
from hpcddp.worker.launch_record import env_id
from tests.worker import forked, given

STEPS = 20


def run_noting_malloc(spec: dict[str, Any]) -> int:
    """Runs a rank; how often it had malloc keep memory."""
    calls: list[None] = []

    def retain_freed_memory() -> bool:
        calls.append(None)
        return malloc.retain_freed_memory()

    with patch.object(main, "retain_freed_memory", retain_freed_memory):
        main.run(spec)
    return len(calls)


def records(study: Path, keep_memory: bool) -> tuple[int, dict[str, Any]]:
    """How often memory was kept, and launch.json."""
    what = given.point(1, batch_per_gpu=64, steps=STEPS, warmup=10, measure={"keep_memory": keep_memory, "input": "synthetic"})
    spec = given.job(study, what)
    (calls,) = forked.values(study / "output", 1, run_noting_malloc, spec_to_dict(spec))
    return calls, json.loads((spec.attempt_dir("7", 0) / "launch.json").read_text())


@pytest.mark.dear
def test_freed_memory_is_kept_unless_the_user_says_otherwise(tmp_path: Path) -> None:
    """What was done is recorded, and is another environment."""
    (once, retained), (never, returned) = records(tmp_path / "kept", True), records(tmp_path / "returned", False)
    assert (once, never) == (1, 0)
    assert (retained["freed_memory"], returned["freed_memory"]) == ("kept", "returned")
    assert retained["env_id"] != returned["env_id"]


def test_environments_of_before_stay_what_they_were() -> None:
    """Memory that is not kept, as none was, adds nothing to what is hashed; kept memory does."""
    versions = {"torch": "2.7.1"}
    assert env_id(versions, "cpu") == env_id(versions, "cpu", "returned") == "ec6aff47afc4"
    assert env_id(versions, "cpu", "kept") != env_id(versions, "cpu")


@pytest.mark.parametrize(
    ("device", "keep_memory", "recorded"), [("cpu", True, "kept"), ("cpu", False, "returned"), ("cuda", True, None)]
)
def test_what_is_done_with_freed_memory(device: Any, keep_memory: bool, recorded: str | None) -> None:
    """On GPUs nothing: steps there take none from the host."""
    assert freed_memory(given.point(1, device=device, measure={"keep_memory": keep_memory})) == recorded


def test_the_key_is_written_where_it_is_not_the_default() -> None:
    """Records and scripts of runs without it stay as they are, and the id is that of before; false is another point."""
    usual, returned = given.point(1), given.point(1, measure={"keep_memory": False})
    assert "keep_memory" not in json.dumps(spec_to_dict(given.job(Path("/s"), usual)))
    assert spec_to_dict(given.job(Path("/s"), returned))["point"]["measure"]["keep_memory"] is False
    assert usual.id != returned.id
    assert flat_keys(usual)["measure.keep_memory"] is True
