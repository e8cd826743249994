"""What is said of runs that the sweep does not have any more."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcddp.core.run_root import Study
    from hpcddp.study.status import RunState

LIVE = ("queued", "running", "unknown")
"""What `cancel` may end."""


def not_in_sweep_words(states: Sequence[RunState], where: Path) -> str | None:
    """Which they are and what ends them; None where there is none but what is done. `where`: the study's folder, or its sweep."""
    from hpcddp.core.run_key import run_ranges
    from hpcddp.core.text import count

    gone = [state for state in states if not state.in_sweep and state.phase != "done"]
    if not gone:
        return None
    live = [state for state in gone if state.phase in LIVE]
    runs = run_ranges(state.key for state in live or gone)
    if not live:
        verb = "is" if len(gone) == 1 else "are"
        return f"{count(len(gone), 'run')} {verb} not in the sweep any more and not submitted again: {runs}"
    sure = {state.phase for state in live} <= {"queued", "running"}
    verb = ("waits or runs" if len(live) == 1 else "wait or run") if sure else "may wait or run"
    which = f"{count(len(live), 'run')} not in the sweep any more {verb}: {runs}"
    return f"{which}; `hpcddp cancel {shlex.quote(str(where))} --not-in-sweep` ends {'it' if len(live) == 1 else 'them'}"


def name_of(study: Study, sweep: Path) -> Path:
    """What `cancel` and `status` take for the study: the sweep, unless its runs were sent elsewhere with --runs."""
    import contextlib
    import os

    from hpcddp.cluster.settings import load_settings
    from hpcddp.commands.options import study_folder
    from hpcddp.core.errors import HpcddpError

    root = os.environ.get("HPCDDP_RUNS")
    with contextlib.suppress(HpcddpError):
        usual = study_folder(sweep, Path(root) if root else None, load_settings()[0])
        if sweep.is_file() and usual.absolute() == study.folder.absolute():
            return sweep
    return study.folder
