"""The watchdog thread: every rank sends rank 0 a beat a second, so that one that dies, stops or hangs is named at once.

Nothing else would name it: gloo and NCCL report a broken connection, or nothing for ten minutes, and Slurm sees processes only.
Beats go over TCP to rank 0, at the address of the rendezvous: a file system that nodes share may show a beat a minute late, and
its metadata server would get a request a second from every rank; in the rendezvous' store one thread waits for another.
The thread wakes once a second, and at once when a connection ends; the steps themselves do nothing for it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import select
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import TracebackType

from hpcddp.core.attempt_records import Fault
from hpcddp.core.errors import HpcddpError
from hpcddp.core.point import Point
from hpcddp.worker.faults import fault_of
from hpcddp.worker.finish import end_with_others, fail
from hpcddp.worker.master import Store
from hpcddp.worker.ranks import Rank
from hpcddp.worker.timing.steptimer import StepTimer
from hpcddp.worker.watchdog.flight_recorder import Dump, dump_collectives
from hpcddp.worker.watchdog.progress import RankProgress, hang_limit_s
from hpcddp.worker.watchdog.protocol import Ending, Hub, SelfMonitor, Spoke

PERIOD_S = 1.0

ANSWER_S = 3.0
"""How long a rank whose collective failed waits to hear which rank is the cause."""

ROWS_S = 1.0
"""How long a rank that ends with another waits for its own main thread to fail of the same: it writes the last rows out."""


class Watchdog:
    """Around all that ranks do together: `with Watchdog(...)` ends the process, the fault recorded, where an error leaves it."""

    def __init__(self, rank: Rank, store: Store, attempt: Path, point: Point) -> None:
        self._rank, self._attempt, self._point = rank, attempt, point
        self._progress = RankProgress(hang_limit_s(), time.monotonic())
        self._monitor = _monitor(rank, store, partial(dump_collectives, attempt, rank.rank))
        self._wake, self._waker = os.pipe()
        self._monitor.ends.register(self._wake, select.POLLIN)
        self._stopped = False
        self._failing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hpcddp-watchdog", daemon=True)

    def watch_steps(self, timer: StepTimer | None, reader_pid: int | None = None) -> None:
        """The steps begin, and `timer` knows how far they are; None: they are over. `reader_pid`: telemetry's process."""
        self._progress.watch_steps(timer, reader_pid)

    def leave(self) -> None:
        """From here on this rank's end is no fault, nor is the others'."""
        self._monitor.leave()

    def __enter__(self) -> Watchdog:
        os.register_at_fork(after_in_child=self._monitor.close)  # a loader's process that holds it would keep the connection open
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None:
            self._fail(error)
        self._stopped = True
        os.write(self._waker, b"\n")
        self._thread.join()
        self._monitor.close()

    def _fail(self, error: BaseException) -> None:
        self._failing.set()
        fault = fault_of(error, self._rank, self._point)
        if fault.kind in ("contact", "time_out"):
            self._thread.join(ANSWER_S)  # that thread ends the process when rank 0 names the cause
            fault = self._monitor.cause_of(fault)
        self._monitor.report(fault)
        fail(self._attempt, self._rank, error, fault)

    def _run(self) -> None:
        try:
            self._beat_until_stopped()
        except Exception:
            print(f"hpcddp: rank {self._rank.rank} on {self._rank.host} is no longer monitored", file=sys.stderr)
            traceback.print_exc()

    def _beat_until_stopped(self) -> None:
        due_s = time.monotonic()
        while not self._stopped:
            some_ended = self._monitor.ends.poll(max(0.0, 1000 * (due_s - time.monotonic())))
            now_s = time.monotonic()
            ending = self._monitor.receive(now_s) if some_ended else None
            if not ending and now_s >= due_s:
                due_s = now_s + PERIOD_S
                beat = self._progress.beat(now_s)
                ending = self._monitor.tick(beat, now_s, late=self._progress.late)
            if ending:
                self._end(ending)

    def _end(self, ending: Ending) -> None:
        fault, own = ending.fault, ending.fault.rank == self._rank.rank
        if own and fault.kind in ("hung", "late"):
            fault = self._with_place(fault)
        if ending.action != "locate":
            self._failing.wait(ROWS_S)
        if ending.action == "follow":
            end_with_others(self._rank, fault)
        self._monitor.report(fault)
        fail(self._attempt, self._rank, HpcddpError(fault.sentence), fault, for_all=ending.for_all)

    def _with_place(self, fault: Fault) -> Fault:
        """With the place in the source where this process is, whose stack goes into the log."""
        stack = traceback.extract_stack(sys._current_frames()[threading.main_thread().ident or 0])
        print("hpcddp: where it is:", *stack.format(), sep="\n", file=sys.stderr)
        last = stack[-1]
        what, mark, collective = fault.sentence.partition("; ")
        where = f"{what} (in {last.name}, {Path(last.filename).name} line {last.lineno})"
        return dataclasses.replace(fault, sentence=f"{where}{mark}{collective}")


@contextlib.contextmanager
def stepping(watchdog: Watchdog | None, timer: StepTimer, reader_pid: int | None) -> Iterator[None]:
    """Around the steps: outside of them ranks may take as long as they like."""
    if watchdog:
        watchdog.watch_steps(timer, reader_pid)
    yield
    if watchdog:
        watchdog.watch_steps(None)


def _monitor(rank: Rank, store: Store, dump: Dump) -> Hub | Spoke | SelfMonitor:
    """A rank that cannot be watched trains all the same."""
    if rank.world == 1:
        return SelfMonitor(rank)
    try:
        return Spoke(rank, store, dump) if rank.rank else Hub(rank, store, dump)
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: the store's
        print(f"hpcddp: rank {rank.rank} on {rank.host} cannot be monitored, but continues: {error}", file=sys.stderr)
        return SelfMonitor(rank)
