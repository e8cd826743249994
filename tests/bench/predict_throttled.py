"""Whether the model of a step on more nodes holds on a slow wire: `python -m tests.bench.predict_throttled`.

DDP over the parameters of CIFAR's ResNet-18 and VGG-11, with its own buckets and gloo's all-reduces. Nothing is computed: forward
sleeps, and backward, twice as long in all, sleeps before each gradient. Backward takes 0.3, 1 and 2 times as long as the
exchange, which is the sum of all-reduces by `bench comm`. A step of one rank is the anchor, with its buckets. Two ranks, one at
each end of a wire throttled by a token bucket (tests/net/link.py), are predicted and measured. First steps sleep nowhere and are
not timed: in them DDP finds the order of gradients, and the token bucket is drained.

Bound, of predicted over measured step less 1: 10 % each, median 4 %. Beside it, not bounded: max(backward, exchange) + forward,
and the anchor's step with the loss of one doubling alone. Needs root, iproute2, and two quiet cores; takes three to four minutes.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from hpcddp.core.catalog import BUCKETS
from hpcddp.core.records import BUCKET_COLUMNS, STEP_COLUMNS
from hpcddp.predict.model import LOST_PER_DOUBLING, Anchor, Bucket, Network, predict, sent_share
from hpcddp.worker.comm.bench import bench_comm
from hpcddp.worker.comm.hook import time_buckets
from hpcddp.worker.ranks import this_rank
from hpcddp.worker.rendezvous import join
from hpcddp.worker.timing.clock import HostClock
from hpcddp.worker.timing.steptimer import StepTimer, TimedStep
from hpcddp.worker.training.backward import Backward
from hpcddp.worker.training.models import build_model
from tests.net.link import Link, throttled_link
from tests.worker import forked

MODELS = ("resnet18", "vgg11")
MBIT = 100
SHARES = (0.3, 1.0, 2.0)
"""Backward over exchange."""
FORWARD = 0.5
"""Of backward."""

UNTIMED, STEPS = 2, 3
WORST, MEDIAN = 0.10, 0.04
TIMEOUT_S = 300.0


class Nap(torch.autograd.Function):
    """Nothing; its backward sleeps, and has a gradient for the parameter then."""

    @staticmethod
    def forward(ctx: Any, chained: torch.Tensor, parameter: torch.Tensor, sleep_s: float) -> torch.Tensor:
        ctx.parameter, ctx.sleep_s = parameter, sleep_s
        return chained.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        time.sleep(ctx.sleep_s)
        return gradient, torch.zeros_like(ctx.parameter), None


class Sleeper(nn.Module):
    """A model's parameters; gradients come from the last to the first, evenly over backward."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.parts = nn.ParameterList(model.parameters())
        self.backward_s = 0.0

    def forward(self, chained: torch.Tensor) -> torch.Tensor:
        time.sleep(FORWARD * self.backward_s)
        for parameter in self.parts:
            chained = Nap.apply(chained, parameter, self.backward_s / len(self.parts))
        return chained


def slept(model: str, backwards_s: Sequence[float], steps: int) -> list[list[TimedStep]]:
    """In each rank: so many timed steps of each backward."""
    group = join(this_rank("local"), "cpu")
    sleeper = Sleeper(build_model(model, classes=10, height=32, seed=1))
    ddp, timer = DistributedDataParallel(sleeper), StepTimer(HostClock())
    time_buckets(ddp, timer)
    backward = Backward(ddp.parameters())
    timer.restart()
    for sleeper.backward_s in (*[0.0] * UNTIMED, *(each_s for each_s in backwards_s for _ in range(steps))):
        chained = ddp(torch.zeros(()))
        timer.mark("forward")
        backward(chained, timer.mark)
        ddp.zero_grad()
        timer.mark("optimizer")
        timer.close_step(0)
    timed = list(timer.drain())[UNTIMED:]
    group.leave()
    return [timed[first : first + steps] for first in range(0, len(timed), steps)]


def measured_network() -> Network:
    """In each rank."""
    group = join(this_rank("local"), "cpu")
    fit = bench_comm(group, ops=("all_reduce",)).ops["all_reduce"].fit
    group.leave()
    assert fit.bandwidth_bytes_per_s
    return Network(sent_share(2) * fit.bandwidth_bytes_per_s, fit.latency_s)


def anchor_of(step: TimedStep) -> tuple[Anchor, list[Bucket]]:
    """By the rows of one rank: its step, the share of forward, and how far into backward each bucket is ready."""
    row = cells(STEP_COLUMNS, step.row)
    anchor = Anchor(
        nodes=1, gpus_per_node=1, batch_per_gpu=1, step_s=step.total_ns / 1e9, ahead=row["forward_ns"] / step.total_ns
    )
    begun_ns, lasts_ns = row["start_ns"] + row["forward_ns"], row["backward_ns"] + row["comm_exposed_ns"]
    buckets = sorted((cells(BUCKET_COLUMNS, bucket) for bucket in step.buckets), key=lambda bucket: bucket["index"])
    return anchor, [Bucket(each["bytes"], (each["ready_ns"] - begun_ns) / lasts_ns) for each in buckets]


def cells(columns: Sequence[str], row: Sequence[int | None]) -> dict[str, int]:
    return {column: cell or 0 for column, cell in zip(columns, row, strict=True)}


@dataclass(frozen=True)
class Case:
    """Seconds of a step on two ranks: as measured, by the model, and by two simpler ones."""

    model: str
    share: float
    one_rank_s: float
    measured_s: float
    predicted_s: float
    closed_form_s: float
    constant_s: float

    def off(self, predicted_s: float) -> float:
        return predicted_s / self.measured_s - 1


def cases_of(link: Link, network: Network, model: str, folder: Path) -> list[Case]:
    """A case for each share."""
    exchange_s = sum(network.all_reduce_s(size, 2) for size in BUCKETS[model, 10])
    backwards_s = [share * exchange_s for share in SHARES]
    (one_rank,) = forked.values(folder / "one", 1, slept, model, backwards_s, 1, timeout_s=TIMEOUT_S)
    two_ranks = link.values(folder / "two", slept, model, backwards_s, STEPS, timeout_s=TIMEOUT_S)[0]
    cases = []
    for share, backward_s, (of_anchor,), of_two in zip(SHARES, backwards_s, one_rank, two_ranks, strict=True):
        anchor, buckets = anchor_of(of_anchor)
        predicted_s = predict("", anchor, 2, 1, buckets, network).step_s
        assert predicted_s
        measured_s = median(step.total_ns for step in of_two) / 1e9
        closed_form_s = max(backward_s, exchange_s) + FORWARD * backward_s
        constant_s = anchor.step_s * (1 + LOST_PER_DOUBLING)
        cases.append(Case(model, share, anchor.step_s, measured_s, predicted_s, closed_form_s, constant_s))
    return cases


def main() -> int:
    """Prints the table and one line of JSON; 1 where a bound does not hold."""
    print("   model backward/exchange  one rank  measured         predicted       closed form   constant alone  (s)", flush=True)
    cases = list[Case]()
    with tempfile.TemporaryDirectory() as scratch, throttled_link(MBIT) as link:
        network = link.values(Path(scratch, "bench"), measured_network)[0]
        for model in MODELS:
            cases += cases_of(link, network, model, Path(scratch, model))
            print(*map(row, cases[-len(SHARES) :]), sep="\n", flush=True)
    found = summary(cases, network)
    print(json.dumps(found))
    return 0 if found["holds"] else 1


def row(case: Case) -> str:
    guesses = (f"{guess:8.2f} ({case.off(guess):+6.1%})" for guess in (case.predicted_s, case.closed_form_s, case.constant_s))
    return f"{case.model:>8} {case.share:17g} {case.one_rank_s:9.2f} {case.measured_s:9.2f} {' '.join(guesses)}"


def summary(cases: Sequence[Case], network: Network) -> dict[str, object]:
    off = {
        name: [abs(case.off(getattr(case, f"{name}_s"))) for case in cases] for name in ("predicted", "closed_form", "constant")
    }
    return {
        "bench": "predict_throttled",
        "mbit": MBIT,
        "bytes_per_s": round(network.bytes_per_s),
        "off": {name: {"median": round(median(each), 4), "worst": round(max(each), 4)} for name, each in off.items()},
        "bounds": {"median": MEDIAN, "worst": WORST},
        "holds": median(off["predicted"]) <= MEDIAN and max(off["predicted"]) <= WORST,
    }


if __name__ == "__main__":
    sys.exit(main())
