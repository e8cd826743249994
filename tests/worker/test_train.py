"""How many steps a run has, and what an epoch is."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Literal

import pytest

from hpcddp.core.errors import HpcddpError
from hpcddp.core.jobspec import spec_to_dict
from hpcddp.core.point import Data, Point
from hpcddp.worker.main import run
from hpcddp.worker.training.window import timed_steps
from tests.worker import forked, given


def with_work(point: Point, work: Literal["steps", "epoch"], warmup: int) -> Point:
    return dataclasses.replace(point, work=work, measure=dataclasses.replace(point.measure, warmup_steps=warmup))


def test_steps_are_timed_after_the_warm_up() -> None:
    """`work: steps`: the warm-up comes on top."""
    assert timed_steps(with_work(given.point(steps=4), "steps", 50), given.plan(1000)) == 4


def test_an_epoch_is_one_pass_warm_up_included() -> None:
    """`work: epoch`: every sample once, so that the work is fixed."""
    assert timed_steps(with_work(given.point(steps=4), "epoch", 50), given.plan(1000)) == 950


def test_an_epoch_must_outlast_its_warm_up() -> None:
    """Otherwise nothing is timed, and the error says what to change."""
    with pytest.raises(HpcddpError, match=r"an epoch has 50 steps of 4 samples and measure.warmup_steps is 50: .*lower it"):
        timed_steps(with_work(given.point(), "epoch", 50), given.plan(50))


def test_an_epoch_runs_to_its_end(tmp_path: Path) -> None:
    """64 samples in global batches of 2 x 4 are 8 steps, and one epoch begun."""
    point = given.point(2, work="epoch", data=Data(name="tests.worker.test_evaluate:tiny"))
    spec = given.job(tmp_path, point)
    forked.values(tmp_path / "output", 2, run, spec_to_dict(spec))
    end = json.loads((spec.attempt_dir("7", 0) / "end.json").read_text())
    assert (end["steps"], [rank["rows"] for rank in end["ranks"]]) == (8, [8, 8])
    assert any(gate["evidence"].startswith("1 epoch(s) begun") for gate in end["gates"])
