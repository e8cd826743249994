"""Where the runs of a sweep lie, and by which name the user may call them."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from hpcddp.cluster.settings import Settings, load_settings
from hpcddp.core.errors import HpcddpError, UsageError
from hpcddp.core.run_root import Study


def study_folder(sweep: Path, runs: Path | None, settings: Settings) -> Path:
    """RUNS/NAME: --runs or HPCDDP_RUNS, the user's run root, or the folder the sweep is in."""
    folder = (runs or settings.run_root_here() or sweep.resolve().parent) / sweep.stem
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is not a folder, so no runs can go there: name the sweep {sweep.stem}.yaml, or give --runs")
    return folder


def usual_folder(sweep: Path) -> Path:
    """Where `hpcddp submit` puts the runs when it is given no --runs."""
    root = os.environ.get("HPCDDP_RUNS")
    return study_folder(sweep, Path(root) if root else None, load_settings()[0])


def sweep_or_folder(study: Study, sweep: Path) -> Path:
    """What `cancel` and `status` take for the study: the sweep, unless its runs were sent elsewhere with --runs."""
    with contextlib.suppress(HpcddpError):
        if sweep.is_file() and usual_folder(sweep).absolute() == study.folder.absolute():
            return sweep
    return study.folder
