"""Where the runs of a sweep lie, by which name the user may call them, and who changes them: one command at a time."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterator
from pathlib import Path

from hpcddp.cluster.ownership import check_links, owner_of, trusted_gids
from hpcddp.cluster.settings import Settings, load_settings
from hpcddp.core.errors import HpcddpError, UsageError
from hpcddp.core.lock import HeldError, HeldLock, exclusive_lock
from hpcddp.core.records import not_for_others
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


def shell_path(path: Path) -> str:
    """As the user would type it: from here where it lies below."""
    here = Path.cwd()
    return shlex.quote(os.path.relpath(path) if here in path.parents else str(path))


@contextlib.contextmanager
def study_lock(study: Study, denied: str | None = None) -> Iterator[HeldLock]:
    """Holds the study's lock inside the block; HpcddpError says who else does, or that nothing can be written there: `denied`,
    with the reason in its braces, or else who may.
    """
    check_links(study)
    with contextlib.ExitStack() as stack:
        try:
            with not_for_others(trusted_gids()):
                study.submit_lock.mkdir(parents=True, exist_ok=True)
            held = stack.enter_context(exclusive_lock(study.submit_lock))
        except HeldError as error:
            raise HpcddpError(f"{study.folder}: another hpcddp is at work here: {error}. Try again when it is done") from error
        except OSError as error:
            words = denied or f"nothing can be changed there ({{}}); it belongs to {owner_of(study.folder)}"
            raise HpcddpError(f"{study.folder}: {words.format(error.strerror)}") from error
        yield held
