"""`measure.comm: check`, by real ranks."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from hpcddp.core.jobspec import spec_to_dict
from hpcddp.worker.comm.check import check_comm
from hpcddp.worker.comm.hook import time_buckets
from hpcddp.worker.comm.views import NEAR, SMALL
from hpcddp.worker.main import run
from hpcddp.worker.ranks import this_rank
from hpcddp.worker.rendezvous import join
from hpcddp.worker.timing.clock import HostClock
from hpcddp.worker.timing.steptimer import StepTimer
from hpcddp.worker.training.feeds import ResidentFeed
from hpcddp.worker.training.trainer import make_trainer
from tests.net.link import PAYLOAD_SHARE, Link
from tests.worker import forked, given
from tests.worker.test_run import JOB, read, rows

MBIT = 200
GRADIENT_BYTES = 1_686_560
"""Of the MNIST CNN: with two ranks each sends as much."""


@pytest.fixture(scope="module")
def checked(link: Link, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The records of two ranks on a slow network, with the check."""
    link.set_rate(MBIT)
    study = tmp_path_factory.mktemp("checked")
    spec = given.job(study, given.point(2, measure={"comm": "check"}))
    summaries = link.values(study / "output", run, spec_to_dict(spec))
    assert summaries[0]["gates_passed"] is True
    return spec.attempt_dir(JOB, 0)


def test_the_record_says_whether_the_views_agree(checked: Path) -> None:
    """`closes` and the sentence say the same; the tails are of the same steps, and agree on a busy machine too."""
    found = read(checked / "end.json")["comm_check"]
    assert found["profiler_exposed_s"] == pytest.approx(
        found["profiled_hook_exposed_s"], rel=NEAR, abs=SMALL * found["sync_step_s"]
    )
    assert found["sentence"].startswith("the views agree" if found["closes"] else "the views of the exchange do not agree")
    assert found["pairs"] == 20
    assert 0 <= found["discarded"] < 20
    assert 0 < found["profiled_pairs"] <= 12
    assert found["rank"] in {0, 1}


def test_the_exchange_takes_what_the_network_needs(checked: Path) -> None:
    """With exchange a step cannot be shorter than sending the gradients, 71 ms; without, nothing is sent."""
    found = read(checked / "end.json")["comm_check"]
    sending_s = GRADIENT_BYTES * 8 / (MBIT * 1e6 * PAYLOAD_SHARE)
    assert found["sync_step_s"] > 0.9 * sending_s
    assert found["difference_s"] > 0.3 * sending_s


def test_steps_of_the_check_are_in_no_file(checked: Path) -> None:
    """Rows are the two warm-up and four timed steps; bucket rows are theirs only."""
    end = read(checked / "end.json")
    assert end["steps"] == len(rows(checked, 0)) == 6
    assert end["ranks"][0]["bucket_rows"] == len((checked / "ranks" / "00000.buckets.csv").read_text().splitlines()) - 1
    assert (checked / "ranks" / "00000.buckets.csv").read_text().splitlines()[-1].startswith("5,")


@pytest.mark.dear
def test_the_model_stays_as_training_left_it(tmp_path: Path) -> None:
    """Parameters, BatchNorm's statistics and the optimizer are those from before, and no gradient stays."""
    assert forked.values(tmp_path, 2, _state_before_and_after) == [True, True]


def _state_before_and_after() -> bool:
    rank = this_rank("local")
    group = join(rank, "cpu")
    source = given.mnist(8)
    workload = given.workload(model="tests.worker.test_comm_check:with_batchnorm")
    trainer = make_trainer(workload, source, group.device, rank.rank)
    timer = StepTimer(HostClock())
    assert trainer.ddp
    time_buckets(trainer.ddp, timer)
    feed = ResidentFeed(source.batch(torch.arange(4 * rank.rank, 4 * rank.rank + 4)), given.plan(1))
    trainer.step(feed.next(timer), timer.mark)
    before = copy.deepcopy([trainer.module.state_dict(), trainer.optimizer.state_dict()])
    check_comm(group, trainer, feed, timer, pairs=2)
    after = [trainer.module.state_dict(), trainer.optimizer.state_dict()]
    same = _same(before, after) and all(parameter.grad is None for parameter in trainer.module.parameters())
    group.leave()
    return same


def with_batchnorm(classes: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 5), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4 * 24 * 24, classes))


def _same(before: Any, after: Any) -> bool:
    if isinstance(before, torch.Tensor):
        return torch.equal(before, after)
    if isinstance(before, dict):
        return before.keys() == after.keys() and all(_same(before[key], after[key]) for key in before)
    if isinstance(before, list):
        return len(before) == len(after) and all(map(_same, before, after))
    return bool(before == after)
