"""Ranks on CPUs keep memory that they free, and record how many page faults their steps took."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hpcddp.jobspec import spec_to_dict
from hpcddp.point import flat_keys
from hpcddp.worker.freed_memory import freed_memory
from hpcddp.worker.launch_record import env_id
from hpcddp.worker.main import run
from tests.worker import forked, given

STEPS = 20


def records(study: Path, keep: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """launch.json, and page faults of the rank, of a model whose activations come and go."""
    what = given.point(1, batch_per_gpu=64, steps=STEPS, warmup=10, measure={"keep_memory": keep, "input": "synthetic"})
    spec = given.job(study, what)
    (outcome,) = forked.ranks(study / "output", 1, run, spec_to_dict(spec))
    assert outcome.code == 0, outcome.output
    attempt = spec.attempt_dir("7", 0)
    (rank,) = json.loads((attempt / "end.json").read_text())["ranks"]
    return json.loads((attempt / "launch.json").read_text()), rank["page_faults"]


def test_freed_memory_is_kept_unless_the_user_says_otherwise(tmp_path: Path) -> None:
    """A step of the MNIST CNN takes thousands of page faults otherwise; what was done is recorded, and is another environment."""
    (first, few), (second, many) = records(tmp_path / "kept", True), records(tmp_path / "returned", False)
    assert (first["freed_memory"], second["freed_memory"]) == ("kept", "returned")
    assert few["steps"] == many["steps"] == STEPS + 1  # from the pause before the last warm-up step on
    assert few["minor"] / STEPS < 200
    assert many["minor"] / STEPS > 5 * few["minor"] / STEPS
    assert first["env_id"] != second["env_id"]


def test_environments_of_before_stay_what_they_were() -> None:
    """Memory that is not kept, as none was, adds nothing to what is hashed; kept memory does."""
    versions = {"torch": "2.7.1"}
    assert env_id(versions, "cpu") == env_id(versions, "cpu", "returned") == "ec6aff47afc4"
    assert env_id(versions, "cpu", "kept") != env_id(versions, "cpu")


@pytest.mark.parametrize(("device", "keep", "says"), [("cpu", True, "kept"), ("cpu", False, "returned"), ("cuda", True, None)])
def test_what_is_done_with_freed_memory(device: Any, keep: bool, says: str | None) -> None:
    """On GPUs nothing: steps there take none from the host."""
    assert freed_memory(given.point(1, device=device, measure={"keep_memory": keep})) == says


def test_the_key_is_written_where_it_is_not_the_default() -> None:
    """Records and scripts of runs without it stay as they are, and the id is that of before; false is another point."""
    usual, returned = given.point(1), given.point(1, measure={"keep_memory": False})
    assert "keep_memory" not in json.dumps(spec_to_dict(given.job(Path("/s"), usual)))
    assert spec_to_dict(given.job(Path("/s"), returned))["point"]["measure"]["keep_memory"] is False
    assert usual.id != returned.id
    assert flat_keys(usual)["measure.keep_memory"] is True
