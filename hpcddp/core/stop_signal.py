"""SIGUSR2, by which Slurm tells a job that its time is nearly over: held back, and asked for between steps.

Slurm sends it to every process of a step (sbatch --signal, without `B:`), on each node at a moment of its own. It is blocked, not
handled: a mask, unlike a handler, holds in every thread and in every process that a rank forks or spawns (signal(7)). So it ends
no loader's process, sampler, compiler or torchrun, no handler runs in one, and no collective is interrupted; submitit's own
handler, which would requeue the job without a checkpoint, never runs either. The bootstrap blocks it before any thread is there.
Standard library only, Python 3.10.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

REQUEUE_VARIABLE = "HPCDDP_REQUEUE"
"""The file that asks the batch script to requeue its job; not set where nothing requeues."""


def hold_back() -> None:
    """From now on SIGUSR2 waits until it is asked for."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})


def told_to_stop() -> bool:
    """Whether SIGUSR2 has come."""
    return signal.SIGUSR2 in signal.sigpending()


def ask_for_requeue() -> bool:
    """Leaves word for the batch script; False where there is none that would requeue its job."""
    file = os.environ.get(REQUEUE_VARIABLE)
    if file:
        Path(file).touch()
    return bool(file)
