"""What submitit pickles: a function named in text, imported only in the job, so that the login side never loads torch.

Standard library only, Python 3.10.
"""

from __future__ import annotations

import importlib
from typing import Any

WORKER = "hpcddp.worker.main:run"


def call(entry: str, spec: dict[str, Any]) -> Any:
    """Calls `package.module:function` with `spec`."""
    module, _, function = entry.partition(":")
    return getattr(importlib.import_module(module), function)(spec)
