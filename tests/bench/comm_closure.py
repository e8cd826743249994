"""What the exchange of gradients costs a step, seen in three ways on a slow network: `python -m tests.bench.comm_closure`.

Two gloo ranks, one at each end of a wire of a known rate, train CIFAR's ResNet-18 and VGG-11. Bound, 10 % or 2 % of the step: the
step with exchange less the step without is contention (growth of backward's operators, by the profiler) and exposed tail (by the
step clock), pair by pair; the profiler's tail is the step clock's; the difference is the same without the profiler as with it.
Needs root, iproute2, and two quiet cores.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from hpcddp.core.epoch_plan import EpochPlan
from hpcddp.core.schema import encode
from hpcddp.worker.comm.check import NEAR, SMALL, check_comm
from hpcddp.worker.comm.hook import time_buckets
from hpcddp.worker.ranks import this_rank
from hpcddp.worker.rendezvous import join
from hpcddp.worker.timing.clock import HostClock
from hpcddp.worker.timing.steptimer import StepTimer
from hpcddp.worker.training.feeds import ResidentFeed
from hpcddp.worker.training.trainer import make_trainer
from tests.net.link import throttled_link
from tests.worker import given

BATCH = 16
TIMEOUT_S = 900.0
COLUMNS = (
    *("sync_step_s", "no_sync_step_s", "difference_s", "profiled_difference_s", "contention_s"),
    *("hook_exposed_s", "profiler_exposed_s", "residual_s"),
)


def main() -> int:
    """Prints the table and one line of JSON; 1 where a bound does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=12, help="steps with and without exchange, of each kind")
    parser.add_argument("--mbit", type=int, nargs="+", default=[100, 300, 1000], help="rates of the wire")
    parser.add_argument("--models", nargs="+", default=["resnet18", "vgg11"])
    chosen = parser.parse_args()
    figures = []
    print("    model Mbit/s", *(f"{name[:-2]:>21}" for name in COLUMNS), " discarded  closes  (ms)", flush=True)
    for model in chosen.models:
        for mbit in chosen.mbit:
            figures.append({"model": model, "mbit": mbit, **closure(model, mbit, chosen.pairs)})
            print(row(figures[-1]), flush=True)
    holds = all(figure["closes"] for figure in figures)
    bounds = {"share_of_difference": NEAR, "or_share_of_step": SMALL}
    print(json.dumps({"bench": "comm_closure", "figures": figures, "bounds": bounds, "holds": holds}))
    return 0 if holds else 1


def closure(model: str, mbit: float, pairs: int) -> dict[str, Any]:
    """The record of a cross-check, `pairs` pairs long, over a wire of this rate."""
    with tempfile.TemporaryDirectory() as folder, throttled_link(mbit) as link:
        found: dict[str, Any] = link.values(Path(folder), checked, model, pairs, timeout_s=TIMEOUT_S)[0]
    return found


def checked(model: str, pairs: int) -> dict[str, Any] | None:
    """In each rank: the cross-check of a model with the hook on, on one resident batch."""
    rank = this_rank("local")
    group = join(rank, "cpu")
    source = given.cifar(BATCH * rank.world)
    trainer = make_trainer(given.workload(model=model), source, group.device, rank.rank)
    assert trainer.ddp
    timer = StepTimer(HostClock())
    time_buckets(trainer.ddp, timer)
    feed = ResidentFeed(source.batch(torch.arange(rank.rank * BATCH, (rank.rank + 1) * BATCH)), EpochPlan(BATCH, BATCH))
    found = check_comm(group, trainer, feed, timer, pairs)
    group.leave()
    record: dict[str, Any] | None = encode(found)
    return record


def row(figure: dict[str, Any]) -> str:
    figures = " ".join(f"{figure[name] * 1e3:21.1f}" for name in COLUMNS)
    return (
        f"{figure['model']:>9} {figure['mbit']:6} {figures}  {figure['discarded']:3} of {figure['pairs']:2}  {figure['closes']}"
    )


if __name__ == "__main__":
    sys.exit(main())
