"""Paths of the user's files: as they are typed, whether they stay in a folder, and where settings and profiles are.

Imports next to nothing: completion in a shell asks it, too.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path


def typed_path(path: Path | str) -> str:
    """The path as a shell takes it: quoted where need be, `~` for the home folder."""
    home, text = str(Path.home()), str(path)
    return f"~/{shlex.quote(text.removeprefix(f'{home}/'))}" if text.startswith(f"{home}/") else shlex.quote(text)


def is_below(path: Path, folder: Path) -> bool:
    """Whether `path` lies in `folder` or below, links followed."""
    return folder.resolve() in path.resolve().parents


def config_folder(env: Mapping[str, str] = os.environ) -> Path:
    """Whether or not it exists. A relative XDG_CONFIG_HOME is ignored, as its standard says."""
    base = env.get("XDG_CONFIG_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".config") / "hpcddp"
