"""Tasks shared out among forked processes, one thread each, in which the first that fails ends all."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from typing import Generic, TypeVar

import torch

from hpcddp.core.bootstrap import die_with_parent
from hpcddp.core.errors import HpcddpError

Task = TypeVar("Task")
Result = TypeVar("Result")
Advance = Callable[[int], None]
"""Called with how much has been done since the last call."""
Work = Callable[[Task, Advance], Result]

MOST_PROCESSES = 8
"""Unless more are asked for: together they write about 1 GB/s, what file systems commonly take from one node, and leave
some processors of a login node to others."""

REPORT_EVERY_S = 0.1
"""A process says so often how far it is."""


@dataclass(frozen=True)
class Finished(Generic[Result]):
    """What a task came to."""

    result: Result


@dataclass(frozen=True)
class Worker:
    """One process, and the connection over which it is given tasks and says how far it is."""

    process: ForkProcess
    connection: Connection


def processors() -> int:
    """As many as this process may use: in a job, those that it was given."""
    return len(os.sched_getaffinity(0))


def default_processes() -> int:
    """On a machine that is shared with others: as many as it has processors, up to MOST_PROCESSES."""
    return min(processors(), MOST_PROCESSES)


def run_tasks(work: Work[Task, Result], tasks: Sequence[Task], processes: int, advance: Advance) -> Generator[Result, None, None]:
    """`work` on every task, in `processes` processes; results in the order in which they come. An exception ends all."""
    used = min(processes, len(tasks))
    with _one_thread():
        if used <= 1:
            for task in tasks:
                yield work(task, advance)
            return
        with contextlib.ExitStack() as stack:
            workers = [stack.enter_context(_started(work)) for _ in range(used)]
            yield from _shared_out(workers, tasks, advance)


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """More threads gain nothing on batches this small and lose much on a busy login node (7,000 samples/s, not 140,000)."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _shared_out(workers: Sequence[Worker], tasks: Sequence[Task], advance: Advance) -> Iterator[Result]:
    left = iter(tasks)
    by_connection = {worker.connection: worker for worker in workers}
    for worker in workers:
        worker.connection.send(next(left))
    pending = len(tasks)
    while pending:
        for ready in wait(list(by_connection)):
            message: Finished[Result] | BaseException | int = _received(by_connection[ready])  # type: ignore[index]  # only connections are waited for
            if isinstance(message, Finished):
                pending -= 1
                following = next(left, None)
                if following is not None:
                    by_connection[ready].connection.send(following)  # type: ignore[index]
                yield message.result
            elif isinstance(message, BaseException):
                raise message
            else:
                advance(message)


def _received(worker: Worker) -> Finished[Result] | BaseException | int:
    try:
        message: Finished[Result] | BaseException | int = worker.connection.recv()
    except EOFError:
        worker.process.join()
        code = worker.process.exitcode
        reason = f"by signal {-code}, perhaps out of memory" if code is not None and code < 0 else f"with exit code {code}"
        raise HpcddpError(f"one of the processes ended {reason}; finished files stay, run again to resume") from None
    return message


@contextlib.contextmanager
def _started(work: Work[Task, Result]) -> Iterator[Worker]:
    """A process that works until the block ends. Forked: no import of torch for each, and what they read is shared."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work_off, args=(work, theirs, os.getpid()), daemon=True)
    process.start()
    theirs.close()  # so that its end is seen when the process has ended
    try:
        yield Worker(process, ours)
    finally:
        process.kill()
        process.join()
        ours.close()


def _work_off(work: Work[Task, Result], connection: Connection, parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; the parent ends the others
    die_with_parent(str(parent), signal.SIGKILL)
    if os.getppid() != parent:  # killed before that, and not waited for yet
        return
    torch.set_num_threads(1)
    advance = _Reports(connection)
    while True:
        try:
            task = connection.recv()
        except EOFError:
            return
        try:
            result = work(task, advance)
        except Exception as error:
            connection.send(error)
        else:
            advance.flush()
            connection.send(Finished(result))


class _Reports:
    """Sums up what was done, and sends it now and then."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._amount = 0
        self._sent_at_s = 0.0

    def __call__(self, amount: int) -> None:
        self._amount += amount
        if time.monotonic() >= self._sent_at_s + REPORT_EVERY_S:
            self.flush()

    def flush(self) -> None:
        self._connection.send(self._amount)
        self._amount, self._sent_at_s = 0, time.monotonic()
