"""`measure.comm: check`: after the timed steps, what the exchange costs is measured in two more ways.

No optimizer steps here, and random numbers and BatchNorm's running statistics are put back: the model stays as training left it.
"""

from __future__ import annotations

import time

import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, record_function

from hpcddp.core.attempt_records import CommCheck
from hpcddp.core.records import STEP_COLUMNS
from hpcddp.data import Batch
from hpcddp.worker.comm.trace import events_of, has_kernels, profiled_steps
from hpcddp.worker.comm.views import Pair, Profiled, Timed, blind, compare, worst
from hpcddp.worker.rendezvous import ProcessGroup
from hpcddp.worker.timing.steptimer import StepTimer
from hpcddp.worker.training.ddp_warmup import restored
from hpcddp.worker.training.feeds import Feed
from hpcddp.worker.training.trainer import Trainer

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
    found = compare(plain, profiled) if profiled else blind()
    records = group.gather_records("comm check", found)
    return worst(records) if records else None


class _Steps:
    """Steps on one batch, without optimizer."""

    def __init__(self, trainer: Trainer, batch: Batch, timer: StepTimer) -> None:
        self._trainer = trainer
        self._batch = batch
        self._timer = timer
        timer.close_step(0)
        self._last_row()

    def pairs(self, count: int) -> list[Pair]:
        """First with exchange, then first without, by turns.

        DDP's next forward after an exchange sends BatchNorm's buffers: this way both steps of a pair do, or neither.
        """
        found = []
        for number in range(count):
            first = self._timed(exchange=number % 2 == 0)
            second = self._timed(exchange=number % 2 == 1)
            found.append(Pair(second, first) if number % 2 else Pair(first, second))
        return found

    def profiled(self, count: int) -> list[Profiled]:
        """Pairs under the profiler, less a first one in which it warms up; none where it sees no kernel of a GPU.

        An exchange comes last, as in training: DDP's next forward sends BatchNorm's buffers.
        """
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
