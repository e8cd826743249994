"""The user's own models and data: `package.module:factory`, found where the job runs. Standard library only, Python 3.10."""

from __future__ import annotations

import importlib
from typing import Any

from hpcddp.core.errors import UsageError


def load_factory(what: str, name: str) -> Any:
    """The function that `name` says; UsageError where it is not there. `what` (model or data) is for the error."""
    module_name, _, factory_name = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # the module is there; what it imports is not, and its own traceback says so best
        raise UsageError(f"{what} `{name}`: no module `{error.name}` on the job's PYTHONPATH") from error
    factory = getattr(module, factory_name, None)
    if not callable(factory):
        raise UsageError(f"{what} `{name}`: {module_name} ({module.__file__}) has no function `{factory_name}`")
    return factory
