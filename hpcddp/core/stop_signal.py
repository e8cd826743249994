"""SIGUSR2, by which Slurm warns a job that its time is nearly over: blocked, and looked for between steps.

Slurm sends it to every process of a step (sbatch --signal, without `B:`), on each node at a moment of its own. It is blocked, not
handled: a mask, unlike a handler, holds in every thread and in every process that a rank forks or spawns (signal(7)). So it ends
no loader's process, sampler, compiler or torchrun, no handler runs in one, and no collective is interrupted; submitit's own
handler, which would requeue the job without a checkpoint, never runs either. The bootstrap blocks it before any thread is there.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

REQUEUE_VARIABLE = "HPCDDP_REQUEUE"
"""The file that asks the batch script to requeue its job; not set where nothing requeues."""


def block_stop_signal() -> None:
    """From now on SIGUSR2 stays pending, for stop_requested to find."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})


def stop_requested() -> bool:
    """Whether SIGUSR2 has arrived; it stays pending."""
    return signal.SIGUSR2 in signal.sigpending()


def request_requeue() -> bool:
    """Makes the file at which the batch script requeues its job; False where no script waits for one."""
    file = os.environ.get(REQUEUE_VARIABLE)
    if file:
        Path(file).touch()
    return bool(file)
