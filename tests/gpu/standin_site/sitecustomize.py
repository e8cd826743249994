"""On PYTHONPATH, gives a job's ranks the stand-in for CUDA as they begin to train, and other processes nothing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


class BeforeTraining:
    """Finds no module; is asked for each before it is imported."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name == "hpcddp.worker.attempt":
            sys.meta_path.remove(self)
            from tests.gpu import device, standin

            standin.install(device.gpu_count())
        return None


sys.meta_path.insert(0, BeforeTraining())
