"""What submitit pickles: a function named in text, imported only in the job, so that the login side never loads torch.

Standard library only, Python 3.10.
"""

from __future__ import annotations

import importlib
import os
import signal
from collections.abc import Mapping
from pathlib import Path

from hpcddp.core.launcher import by_torchrun, read_task

WORKER = "hpcddp.worker.main:run"


def call(entry: str, spec: Mapping[str, object]) -> object:
    """Calls `package.module:function` with `spec`."""
    if by_torchrun():
        signal.signal(
            signal.SIGTERM, signal.SIG_DFL
        )  # torchrun ends the other ranks by it when one fails; submitit had it ignored
    module, _, function = entry.partition(":")
    return getattr(importlib.import_module(module), function)(spec)


def call_task(entry: str, shared: Mapping[str, object]) -> object:
    """The same in a task of an array, with `shared` and what is the task's own; submitit says the task's folder."""
    return call(entry, {**shared, **read_task(Path(os.environ["SUBMITIT_FOLDER"]))})
