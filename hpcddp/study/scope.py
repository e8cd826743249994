"""Which runs of a study its sweep still has: points are taken out of a sweep, and `repeat` is lowered, while jobs wait and run.

A point is in the sweep while the file gives it, as it is or with the options (`--set`, `--cluster`, `--comm`, ...) that it was
submitted with; its runs are those that `repeat` says there, and those that --until-ci added. --where and --group choose what is
submitted, and take nothing out. Where that cannot be said (the point was recorded by an older hpcddp, the file cannot be read any
more) nothing is called taken out.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hpcddp.cluster.profile_file import current_cluster, load_profile
from hpcddp.core.errors import HpcddpError
from hpcddp.core.point import to_json
from hpcddp.core.run_root import Study, run_ranges
from hpcddp.core.schema import encode
from hpcddp.core.study_files import StudyPoint, SweepChanges
from hpcddp.core.text import count
from hpcddp.study.status import RunState, run_states
from hpcddp.study.study_folder import shell_path
from hpcddp.study.study_records import read_study_file
from hpcddp.study.submission_log import latest_events
from hpcddp.sweep.expand import expand
from hpcddp.sweep.file import read_sweep

LIVE = ("queued", "running", "unknown")
"""Phases of runs that `cancel` may end."""


def scope_by_file(sweep: Path, points: Sequence[StudyPoint]) -> dict[str, int]:
    """Label -> how many runs of the point the file has now: 0 where the point was taken out; no entry where that is not known."""
    read: dict[str, dict[str, int] | None] = {}
    scope: dict[str, int] = {}
    for point in points:
        if not point.options:
            continue
        ways = {to_json(encode(changes)): changes for changes in (SweepChanges(), *point.options)}
        read |= {key: _repeats(sweep, changes) for key, changes in ways.items() if key not in read}
        known = [repeats for key in ways if (repeats := read[key]) is not None]
        if len(known) == len(ways):
            runs = max(repeats.get(point.label, 0) for repeats in known)
            scope[point.label] = max(runs, point.until_ci) if runs else 0
    return scope


def study_scope(study: Study, sweep: Path) -> dict[str, int]:
    """`scope_by_file` of all points of a study; {} where nothing was submitted."""
    return scope_by_file(sweep, read_study_file(study).points) if sweep.is_file() else {}


def recorded_runs_gone(study: Study, sweep: Path) -> list[RunState]:
    """Runs of the study that the file does not have now and that may wait or run, by the records alone: no cluster is asked."""
    scope = study_scope(study, sweep)
    events = latest_events(study).values()
    gone = {event.key for event in events if event.event == "submitted" and event.run > scope.get(event.label, event.run)}
    states = run_states(study, scope=scope) if gone else []
    return [state for state in states if state.key in gone and state.phase == "unknown"]


def not_in_sweep_words(states: Sequence[RunState], where: Path) -> str | None:
    """Which runs are not in the sweep any more, and the command that ends them; None where all of these are done. `where`: the
    study's folder, or its sweep.
    """
    gone = [state for state in states if not state.in_sweep and state.phase != "done"]
    if not gone:
        return None
    live = [state for state in gone if state.phase in LIVE]
    runs = run_ranges(state.key for state in live or gone)
    if not live:
        verb = "is" if len(gone) == 1 else "are"
        return f"{count(len(gone), 'run')} {verb} no longer in the sweep and not submitted again: {runs}"
    sure = {state.phase for state in live} <= {"queued", "running"}
    verb = ("waits or runs" if len(live) == 1 else "wait or run") if sure else "may wait or run"
    which = f"{count(len(live), 'run')} no longer in the sweep {verb}: {runs}"
    return f"{which}; `hpcddp cancel {shell_path(where)} --not-in-sweep` ends {'it' if len(live) == 1 else 'them'}"


def _repeats(sweep: Path, changes: SweepChanges) -> dict[str, int] | None:
    """Label -> runs of all points that the file has with these options; None where it has none with them."""
    try:
        source = read_sweep(sweep, changes.set, changes.cluster)
        cluster = source.sweep.cluster or current_cluster()
        points = [] if cluster is None else expand(source, load_profile(cluster), (), changes.also)
    except (HpcddpError, OSError, TypeError):
        return None
    return {planned.point.label: source.sweep.repeat for planned in points} if points else None
