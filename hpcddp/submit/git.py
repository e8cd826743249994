"""Which commit a sweep was submitted from, for the record."""

from __future__ import annotations

import subprocess
from pathlib import Path


def git_commit(folder: Path) -> str | None:
    """The commit checked out there, `+` behind it where tracked files differ; None outside a repository or without git."""
    commit = _git(folder, "rev-parse", "HEAD")
    return commit and f"{commit}{'+' if _git(folder, 'status', '--porcelain', '--untracked-files=no') else ''}"


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
