"""One function per figure, DataFrame to matplotlib Figure, and the look they share."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

_temporary: list[tempfile.TemporaryDirectory[str]] = []
"""Goes with the process."""


def use_writable_folder() -> None:
    """A temporary one where the user's own, as matplotlib chooses it (get_configdir, get_cachedir), cannot be written."""
    if "MPLCONFIGDIR" not in os.environ and not all(map(_writable, _folders())):
        _temporary.append(tempfile.TemporaryDirectory(prefix="hpcddp-matplotlib-"))
        os.environ["MPLCONFIGDIR"] = _temporary[-1].name


def _folders() -> list[Path]:
    home = Path(os.path.expanduser("~"))
    bases = (os.environ.get("XDG_CONFIG_HOME") or home / ".config", os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    return [Path(base) / "matplotlib" for base in bases]


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


use_writable_folder()  # before matplotlib is imported: everything that does is below
