"""Imports the libraries that write for other tools when they are needed, and says which extra installs a missing one."""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Iterator
from typing import Any

from hpcddp.core.errors import HpcddpError


def library(module: str, extra: str) -> Any:
    """The module; HpcddpError where it, or one that it needs, is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise HpcddpError(f"{error.name or module} is not installed here: pip install 'hpcddp[{extra}]'") from error


@contextlib.contextmanager
def environment(**variables: str) -> Iterator[None]:
    """Sets these environment variables until the block ends."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
