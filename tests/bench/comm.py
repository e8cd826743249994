"""Whether `bench comm` finds the rate of a link, and what an exchange costs, on a slow wire: `python -m tests.bench.comm`.

Two gloo ranks at the ends of a wire throttled by a token bucket (tests/net/link.py). Of `rate` bits per second TCP gets the
payload share, 1448 of 1514; the bandwidth fitted to messages of 4 MiB and more should be that within 2 %. Each rate is measured
ROUNDS times and the median round counts. Send/receive is printed beside the others but not bounded: each of its messages
finds the bucket full, and the first 128 KiB or 2 ms of it pass at once.

Two gloo ranks, one at each end of a wire of a known rate, train CIFAR's ResNet-18 and VGG-11. Bound, 10 % or 2 % of the step: the
step with exchange less the step without is contention (growth of backward's operators, by the profiler) and exposed tail (by the
step clock), pair by pair; the profiler's tail is the step clock's; the difference is the same without the profiler as with it.
Needs root, iproute2, and two quiet cores.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from hpcddp.core.comm_record import bus_share
from hpcddp.core.epoch_plan import EpochPlan
from hpcddp.core.schema import encode
from hpcddp.worker.comm.bench import bench_comm
from hpcddp.worker.comm.check import NEAR, SMALL, check_comm
from hpcddp.worker.comm.hook import time_buckets
from hpcddp.worker.ranks import this_rank
from hpcddp.worker.rendezvous import join
from hpcddp.worker.timing.clock import HostClock
from hpcddp.worker.timing.steptimer import StepTimer
from hpcddp.worker.training.feeds import ResidentFeed
from hpcddp.worker.training.trainer import make_trainer
from tests.net.link import PAYLOAD_SHARE, Link, throttled_link
from tests.worker import given

RATES_MBIT = (100, 300, 1000)
SIZES = tuple(2**power for power in range(22, 26))
BOUNDED = ("all_reduce", "broadcast")
OPS = (*BOUNDED, "send_recv")
BOUND = 0.02
ROUNDS = 3


def of_links() -> dict[str, object]:
    """Prints a line for each rate and operation."""
    ratios: dict[int, dict[str, float]] = {}
    print(f"{'Mbit/s':>6}  {'operation':<10}  {'recovered/expected':>18}  rounds")
    with tempfile.TemporaryDirectory() as scratch, throttled_link(None) as link:
        for mbit in RATES_MBIT:
            rounds = [recovered(link, mbit, Path(scratch, f"{mbit}-{number}")) for number in range(ROUNDS)]
            ratios[mbit] = {op: statistics.median(found[op] for found in rounds) for op in OPS}
            for op in OPS:
                each = " ".join(f"{found[op]:.4f}" for found in rounds)
                print(f"{mbit:>6}  {op:<10}  {ratios[mbit][op]:>18.4f}  {each}", flush=True)
    return summary(ratios)


def recovered(link: Link, mbit: int, folder: Path) -> dict[str, float]:
    """Operation -> fitted bus bandwidth over the wire's payload rate."""
    link.set_rate(mbit)
    expected = mbit * 1e6 / 8 * PAYLOAD_SHARE
    measured = link.values(folder, measure)[0]["ops"]
    return {op: measured[op]["fit"]["bandwidth_bytes_per_s"] * bus_share(op, 2) / expected for op in OPS}


def measure() -> Any:
    """In each rank."""
    group = join(this_rank("local"), "cpu")
    found = bench_comm(group, SIZES, OPS)
    group.leave()
    return encode(found)


def summary(ratios: dict[int, dict[str, float]]) -> dict[str, object]:
    worst = max(abs(found[op] - 1) for found in ratios.values() for op in BOUNDED)
    return {
        "bench": "comm_link",
        "recovered_over_expected": {mbit: {op: round(found[op], 4) for op in OPS} for mbit, found in ratios.items()},
        "worst_of": BOUNDED,
        "worst": round(worst, 4),
        "bound": BOUND,
        "holds": worst <= BOUND,
    }


BATCH = 16
TIMEOUT_S = 900.0
COLUMNS = (
    *("sync_step_s", "no_sync_step_s", "difference_s", "profiled_difference_s", "contention_s"),
    *("hook_exposed_s", "profiler_exposed_s", "residual_s"),
)


def main() -> int:
    """Prints both tables and a line of JSON each; 1 where a bound does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=12, help="steps with and without exchange, of each kind")
    parser.add_argument("--mbit", type=int, nargs="+", default=RATES_MBIT, help="rates of the wire of the second part")
    parser.add_argument("--models", nargs="+", default=["resnet18", "vgg11"])
    chosen = parser.parse_args()
    results = [of_links(), of_closures(chosen.models, chosen.mbit, chosen.pairs)]
    print(*map(json.dumps, results), sep="\n")
    return 0 if all(result["holds"] for result in results) else 1


def of_closures(models: Sequence[str], rates_mbit: Sequence[int], pairs: int) -> dict[str, object]:
    """Prints a line for each model and rate."""
    figures = []
    print("    model Mbit/s", *(f"{name[:-2]:>21}" for name in COLUMNS), " discarded  closes  (ms)", flush=True)
    for model, mbit in itertools.product(models, rates_mbit):
        figures.append({"model": model, "mbit": mbit, **closure(model, mbit, pairs)})
        print(row(figures[-1]), flush=True)
    bounds = {"share_of_difference": NEAR, "or_share_of_step": SMALL}
    return {"bench": "comm_closure", "figures": figures, "bounds": bounds, "holds": all(each["closes"] for each in figures)}


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
