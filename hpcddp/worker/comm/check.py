"""`measure.comm: check`: after the timed steps, what the exchange costs is measured in two more ways.

No optimizer steps here, and random numbers and BatchNorm's running statistics are put back: the model stays as training left it.

With what the timed steps say these are three views of the exchange, which agree or do not.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import NamedTuple

import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, record_function

from hpcddp.core.attempt_records import CommCheck
from hpcddp.core.records import STEP_COLUMNS
from hpcddp.data import Batch
from hpcddp.worker.comm.trace import ProfiledStep, events_of, has_kernels, profiled_steps
from hpcddp.worker.rendezvous import ProcessGroup
from hpcddp.worker.timing.steptimer import StepTimer
from hpcddp.worker.training.ddp_warmup import restored
from hpcddp.worker.training.feeds import Feed
from hpcddp.worker.training.trainer import Trainer

NEAR = 0.10
"""Views agree when they are this share of the larger one apart, or"""

SMALL = 0.02
"""this share of the step."""

DISTURBED = 1.15
"""A step whose computing took this many times the usual, measured by the processor time it used, was held up by others."""


class Timed(NamedTuple):
    """Forward, backward and exchange of one step on one rank, by the step clock."""

    total_s: float
    exposed_s: float
    computing_s: float
    cpu_s: float | None
    """Processor time of the thread that computed; None where a GPU did."""


class Pair(NamedTuple):
    """The same batch with and without exchange, one after the other."""

    sync: Timed
    no_sync: Timed


class Profiled(NamedTuple):
    """A pair that ran under the profiler, and what the profiler saw of it."""

    timed: Pair
    sync: ProfiledStep
    no_sync: ProfiledStep


class Medians(NamedTuple):
    """Over the pairs of one rank, in seconds, as CommCheck has them."""

    sync_step_s: float
    no_sync_step_s: float
    difference_s: float
    difference_interval_s: tuple[float, float]
    hook_exposed_s: float
    profiled_difference_s: float
    profiled_hook_exposed_s: float
    profiler_exposed_s: float
    contention_s: float
    residual_s: float


def compare_views(pairs: Sequence[Pair], profiled: Sequence[Profiled]) -> CommCheck:
    """One rank's record.

    With exchange a step is longer by contention (the growth of backward's operators, copies into buckets among them) and by the
    exposed tail. Difference, contention and tail have sources of their own (two steps by the step clock, operators by the
    profiler, the end of one step by the step clock), so that the sum is no identity. It is formed pair by pair over the profiled
    pairs: what holds a step up from outside lengthens its operators too. Pairs without the profiler say what steps really take;
    their difference is known as well as its median's interval says.
    """
    plain = [pairs[number] for number in undisturbed(pairs)]
    watched = [profiled[number] for number in undisturbed([step.timed for step in profiled])]
    found = _medians(plain, watched)
    apart = _disagreements(found)
    return CommCheck(
        pairs=len(pairs),
        discarded=len(pairs) - len(plain),
        profiled_pairs=len(watched),
        closes=not apart,
        sentence=_sentence(found, apart),
        **found._asdict(),
    )


def _medians(plain: Sequence[Pair], watched: Sequence[Profiled]) -> Medians:
    differences_s = sorted(_difference_s(pair) for pair in plain)
    return Medians(
        sync_step_s=median(pair.sync.total_s for pair in plain),
        no_sync_step_s=median(pair.no_sync.total_s for pair in plain),
        difference_s=median(differences_s),
        difference_interval_s=_interval(differences_s),
        hook_exposed_s=median(pair.sync.exposed_s for pair in plain),
        profiled_difference_s=median(_difference_s(step.timed) for step in watched),
        profiled_hook_exposed_s=median(step.timed.sync.exposed_s for step in watched),
        profiler_exposed_s=median(step.sync.exposed_s for step in watched),
        contention_s=median(_contention_s(step) for step in watched),
        residual_s=median(_difference_s(step.timed) - _contention_s(step) - step.timed.sync.exposed_s for step in watched),
    )


def _difference_s(pair: Pair) -> float:
    return pair.sync.total_s - pair.no_sync.total_s


def _contention_s(step: Profiled) -> float:
    return step.sync.backward_s - step.no_sync.backward_s


def _interval(ordered: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of the median, by order statistics (Le Boudec 2010, chapter 2); of few values their range."""
    below = max(0, math.floor(len(ordered) / 2 - 0.98 * math.sqrt(len(ordered))))
    return ordered[below], ordered[-1 - below]


def undisturbed(pairs: Sequence[Pair]) -> list[int]:
    """Numbers of the pairs without a step that others held up; all of them where that would leave none."""
    limits = [DISTURBED * median(_ratio(pair[kind]) for pair in pairs) for kind in (0, 1)]
    plain = [number for number, pair in enumerate(pairs) if all(_ratio(pair[kind]) <= limits[kind] for kind in (0, 1))]
    return plain or list(range(len(pairs)))


def blind() -> CommCheck:
    """The record of a rank whose profiler saw nothing of its GPU: a view is missing, and the others are not compared."""
    why = "torch's profiler recorded no GPU kernel. The driver may not allow this user to profile (CUPTI)."
    return CommCheck(closes=False, sentence=f"the communication measurements cannot be compared: {why}")


def worst(records: Sequence[CommCheck]) -> CommCheck:
    """The record of the rank that closes least, so that where it closes, every rank's does."""

    def openness(rank: int) -> tuple[bool, float]:
        residual_s = records[rank].residual_s
        return not records[rank].closes, math.inf if residual_s is None else abs(residual_s)

    rank = max(range(len(records)), key=openness)
    return replace(records[rank], rank=rank)


def _ratio(step: Timed) -> float:
    return step.computing_s / step.cpu_s if step.cpu_s else 1.0


def _disagreements(found: Medians) -> list[str]:
    """What does not fit, in words: the sum within pairs, the two tails of the same steps, profiled and plain steps."""
    small_s = SMALL * found.sync_step_s

    def apart(a: float, b: float) -> bool:
        return bool(abs(a - b) > max(NEAR * max(abs(a), abs(b)), small_s))

    difference_s, left_s = found.profiled_difference_s, found.residual_s
    low_s, high_s = found.difference_interval_s
    sums_s = found.contention_s + found.hook_exposed_s
    checks = [
        (difference_s, difference_s - left_s, "the difference is {}, contention and exposed tail {}"),
        (
            found.profiler_exposed_s,
            found.profiled_hook_exposed_s,
            "the profiler's tail is {}, the step clock's of the same steps {}",
        ),
        (min(max(sums_s, low_s), high_s), sums_s, "without the profiler the difference is {} at the nearest, with it {}"),
    ]
    return [words.format(_ms(a), _ms(b)) for a, b, words in checks if apart(a, b)]


def _sentence(found: Medians, apart: list[str]) -> str:
    if apart:
        return f"the communication measurements disagree ({'; '.join(apart)}). Do not rely on this run's breakdown."
    return (
        f"the measurements agree: gradient all-reduce adds {_ms(found.difference_s)} to a step, "
        f"{_ms(found.contention_s)} by contention and {_ms(found.hook_exposed_s)} as exposed tail. "
        f"Profiled steps have a tail of {_ms(found.profiled_hook_exposed_s)}, the profiler {_ms(found.profiler_exposed_s)}."
    )


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"


PAIRS = 20
ROUNDS = 4
"""Pairs with and without the profiler come by turns, so that what changes slowly meets both alike."""

PROFILED_PAIRS_A_ROUND = 3
SYNC, NO_SYNC = "hpcddp: step with exchange", "hpcddp: step without exchange"


def check_comm(group: ProcessGroup, trainer: Trainer, feed: Feed, timer: StepTimer, pairs: int = PAIRS) -> CommCheck | None:
    """end.json's `comm_check` on rank 0, None elsewhere; all ranks call it. None with one rank: nothing is exchanged."""
    if group.rank.world == 1:
        return None
    plain, profiled = list[Pair](), list[Profiled]()
    with restored(trainer.module, trainer.device):
        steps = _Steps(trainer, feed.next(timer), timer)
        steps.pairs(2)  # warms both kinds up and ends as each second pair does
        for done in range(ROUNDS):
            plain += steps.pairs((pairs + done) // ROUNDS)
            profiled += steps.profiled(PROFILED_PAIRS_A_ROUND)
    found = compare_views(plain, profiled) if profiled else blind()
    records = group.gather_records("comm check", found)
    return worst(records) if records else None


class _Steps:
    def __init__(self, trainer: Trainer, batch: Batch, timer: StepTimer) -> None:
        self._trainer = trainer
        self._batch = batch
        self._timer = timer
        timer.close_step(0)
        self._last_row()

    def pairs(self, count: int) -> list[Pair]:
        """First with exchange, then first without, by turns. DDP's next forward after an exchange sends BatchNorm's buffers: this
        way both steps of a pair do, or neither."""
        found = []
        for number in range(count):
            first = self._timed(exchange=number % 2 == 0)
            second = self._timed(exchange=number % 2 == 1)
            found.append(Pair(second, first) if number % 2 else Pair(first, second))
        return found

    def profiled(self, count: int) -> list[Profiled]:
        """Pairs under the profiler, less a first one in which it warms up; none where it sees no kernel of a GPU. An exchange
        comes last, as in training: DDP's next forward sends BatchNorm's buffers."""
        cuda, pairs = self._trainer.device.type == "cuda", []
        with profile(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]) as profiler:
            for _ in range(1 + count):
                no_sync = self._timed(exchange=False, name=NO_SYNC)
                pairs.append(Pair(self._timed(exchange=True, name=SYNC), no_sync))
        events = events_of(profiler)
        if cuda and not has_kernels(events):
            return []
        return [
            Profiled(*both) for both in zip(pairs, profiled_steps(events, SYNC), profiled_steps(events, NO_SYNC), strict=True)
        ][1:]

    def _timed(self, *, exchange: bool, name: str = "") -> Timed:
        """One step that all ranks begin together; its last kernel has ended."""
        trainer, timer = self._trainer, self._timer
        dist.barrier(device_ids=[trainer.device.index] if trainer.device.type == "cuda" else None)
        timer.restart()
        cpu_ns = time.thread_time_ns()
        with record_function(name):
            trainer.gradients(self._batch, timer.mark, exchange=exchange)
            timer.close_step(0)
            row = self._last_row()
        cpu_ns = time.thread_time_ns() - cpu_ns
        trainer.optimizer.zero_grad(set_to_none=True)
        on_cpu = trainer.device.type == "cpu"
        return Timed(
            row["total_ns"] / 1e9,
            row["comm_exposed_ns"] / 1e9,
            (row["forward_ns"] + row["backward_ns"]) / 1e9,
            cpu_ns / 1e9 if on_cpu else None,
        )

    def _last_row(self) -> dict[str, int]:
        (*_, step) = self._timer.drain()
        return {name: value or 0 for name, value in zip(STEP_COLUMNS, step.row, strict=True)}
