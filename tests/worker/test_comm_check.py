"""`measure.comm: check`, by real ranks.

The arithmetic of the cross-check, on steps whose times the test gives.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from hpcddp.core.attempt_records import CommCheck
from hpcddp.core.jobspec import spec_to_dict
from hpcddp.core.schema import encode
from hpcddp.worker.comm.check import NEAR, SMALL, Pair, Profiled, Timed, blind, check_comm, compare_views, undisturbed, worst
from hpcddp.worker.comm.hook import time_buckets
from hpcddp.worker.comm.trace import ProfiledStep
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


def pair(tail_s: float = 0.040, sync_computing_s: float = 0.110, computing_s: float = 0.100) -> Pair:
    """100 ms of computing, 110 beside an exchange of which 40 ms stay exposed; 90 ms of processor time."""
    sync = Timed(sync_computing_s + tail_s, tail_s, sync_computing_s, cpu_s=0.09)
    return Pair(sync, Timed(computing_s, 0.0, computing_s, cpu_s=0.09))


def profiled(backward_s: float = 0.080, tail_s: float = 0.041, timed: Pair | None = None) -> Profiled:
    """Backward's operators take 70 ms alone."""
    return Profiled(timed or pair(), ProfiledStep(backward_s, tail_s), ProfiledStep(0.070, 0.0))


def test_the_difference_is_contention_and_tail() -> None:
    """150 ms with exchange, 100 without: 10 ms by the operators' growth and 40 ms of tail leave nothing over."""
    found = compare_views([pair()] * 3, [profiled()] * 2)
    assert found.closes is True
    assert found.profiled_pairs == 2
    assert found.difference_interval_s == pytest.approx((0.050, 0.050))
    assert (found.pairs, found.discarded) == (3, 0)
    expected = {
        "sync_step_s": 0.150,
        "no_sync_step_s": 0.100,
        "difference_s": 0.050,
        "hook_exposed_s": 0.040,
        "profiled_difference_s": 0.050,
        "profiled_hook_exposed_s": 0.040,
        "profiler_exposed_s": 0.041,
        "contention_s": 0.010,
        "residual_s": 0.0,
    }
    assert {name: getattr(found, name) for name in expected} == pytest.approx(expected)
    assert found.sentence == (
        "the views agree: with exchange a step takes 50 ms longer, by contention 10 ms and an exposed tail of 40 ms "
        "(of profiled steps 40 ms, by the profiler 41 ms)"
    )


def test_what_is_left_over_is_said() -> None:
    """10 ms of 60 that nobody accounts for, 6 % of the step, do not close, and the sentence names both sides."""
    longer = pair(sync_computing_s=0.120)
    found = compare_views([longer], [profiled(timed=longer)])
    assert found.closes is False
    assert found.residual_s == pytest.approx(0.010)
    assert "the difference is 60 ms, contention and exposed tail 50 ms" in str(found.sentence)
    assert "do not rely on" in str(found.sentence)


def test_a_profiler_that_sees_another_tail_is_said() -> None:
    """The sum may close while the two clocks disagree on the tail."""
    found = compare_views([pair()], [profiled(tail_s=0.050)])
    assert found.closes is False
    assert found.residual_s == pytest.approx(0.0)
    assert "the profiler's tail is 50 ms, the step clock's of the same steps 40 ms" in str(found.sentence)


def test_what_holds_a_pair_up_lengthens_its_operators() -> None:
    """The sum is formed within each pair: 30 ms more in one of them, seen by both clocks, leave nothing over."""
    held_up = profiled(backward_s=0.110, timed=pair(sync_computing_s=0.140))
    found = compare_views([pair()] * 3, [profiled(), held_up, profiled()])
    assert found.closes is True
    assert found.residual_s == pytest.approx(0.0)


def test_a_profiler_that_changes_the_exchange_is_said() -> None:
    """Profiled steps whose difference lies outside what plain steps show tell of other steps."""
    slowed = profiled(backward_s=0.100, timed=pair(sync_computing_s=0.130))
    found = compare_views([pair()] * 20, [slowed] * 3)
    assert found.closes is False
    assert found.residual_s == pytest.approx(0.0)
    assert "without the profiler the difference is 50 ms at the nearest, with it 70 ms" in str(found.sentence)


def test_an_uncertain_difference_contradicts_nothing() -> None:
    """Plain steps that differ by 30 to 90 ms on a busy machine leave room for 70."""
    slowed = profiled(backward_s=0.100, timed=pair(sync_computing_s=0.130))
    found = compare_views([pair(tail_s=tail_s) for tail_s in (0.02, 0.03, 0.04, 0.06, 0.08)], [slowed] * 3)
    assert found.closes is True


def test_little_of_the_step_may_be_left_over() -> None:
    """2 ms are 40 % of what an almost hidden exchange costs, but under 2 % of the step."""
    hidden = pair(tail_s=0.0, sync_computing_s=0.105)
    found = compare_views([hidden], [profiled(backward_s=0.073, tail_s=0.0, timed=hidden)])
    assert found.closes is True
    assert found.residual_s == pytest.approx(0.002)


def test_a_pair_that_others_held_up_is_discarded() -> None:
    """Its computing took a third longer than usual for the same processor time."""
    pairs = [pair(), pair(computing_s=0.135), pair(), pair(sync_computing_s=0.150), pair()]
    assert undisturbed(pairs) == [0, 2, 4]
    found = compare_views(pairs, [profiled()])
    assert (found.pairs, found.discarded, found.closes) == (5, 2, True)


def test_without_processor_time_no_pair_is_discarded() -> None:
    """On a GPU the host's processor time says nothing about the computing."""
    timed = [Timed(total_s, 0.0, total_s, cpu_s=None) for total_s in (0.1, 0.2)]
    assert undisturbed([Pair(step, step) for step in timed]) == [0, 1]


def test_the_record_is_the_rank_that_closes_least() -> None:
    """One rank that does not close is what the record tells, however large another's residual is."""
    records = [
        CommCheck(closes=True, residual_s=0.003),
        CommCheck(closes=False, residual_s=-0.002),
        CommCheck(closes=False, residual_s=0.001),
    ]
    assert worst(records) == CommCheck(rank=1, closes=False, residual_s=-0.002)


def test_a_blind_profiler_is_no_agreement() -> None:
    """A rank that could not be watched comes before any that could: nothing is known of it. JSON holds what it tells."""
    found = worst([CommCheck(closes=True, residual_s=0.0), CommCheck(closes=False, residual_s=9.0), blind()])
    assert (found.rank, found.closes) == (2, False)
    assert "saw no kernel" in str(found.sentence)
    assert set(json.loads(json.dumps(encode(found), allow_nan=False))) == {"rank", "closes", "sentence", "residual_s"}
