"""Paths of the user's files: as they are typed, and whether they stay in a folder."""

from __future__ import annotations

import shlex
from pathlib import Path


def typed_path(path: Path | str) -> str:
    """The path as a shell takes it: quoted where need be, `~` for the home folder."""
    home, text = str(Path.home()), str(path)
    return f"~/{shlex.quote(text.removeprefix(f'{home}/'))}" if text.startswith(f"{home}/") else shlex.quote(text)


def is_below(path: Path, folder: Path) -> bool:
    """Whether `path` lies in `folder` or below, links followed."""
    return folder.resolve() in path.resolve().parents
