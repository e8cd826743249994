"""The states of a study's runs as lines of at most 80 columns."""

from __future__ import annotations

import itertools
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from hpcddp.core.hours import Hours
from hpcddp.core.text import count, duration, thousands
from hpcddp.study.status import Phase, RunState
from hpcddp.study.used_hours import StudyHours

WIDTH = 80

LINE_SHOWN = 200
"""Characters of a log's line."""

RUNNING_SHOWN = 2
"""So many running jobs fit a line beside the counts."""

FOLDED_FROM = 4
"""So many stretches of runs with a common text below them are shown as one."""

FOLDED_NAMED = 2
"""The first of these have a line each."""

LONG_START_S = 60
"""From srun to the first step: torch is imported in 10 to 40 s from a shared file system."""

SHOWN_FROM_H = 0.05
"""Fewer node hours print as 0.0."""

ORDER: tuple[Phase, ...] = ("done", "running", "queued", "failed", "unknown", "missing")


def status_table(states: Sequence[RunState], hours: StudyHours | None = None) -> str:
    """A line for each stretch of runs of a point that are in the same state, and one that counts them all, with the hours that
    they took and will take. A text that is common to many of them stands there once.
    """
    lines, counts, taken = _run_lines(_stretches(states)), _counts(states), _hours_words(hours)
    last = [f"{counts}; {taken}"] if taken and len(counts) + 2 + len(taken) <= WIDTH else [counts, taken]
    return "\n".join([*lines, *(line for line in last if line)])


def _hours_words(hours: StudyHours | None) -> str:
    """`12.3 node hours, 49.2 GPU hours so far; at most 4.0 and 16.0 to come`; empty where it is nothing worth a word."""
    used = hours.used if hours else Hours()
    to_come = (hours.to_come if hours else None) or Hours()
    so_far, later = used.node >= SHOWN_FROM_H, to_come.node >= SHOWN_FROM_H
    if not later:
        return f"{used} so far" if so_far else ""
    if not so_far:
        return f"at most {to_come} to come"
    same = bool(used.gpu) == bool(to_come.gpu)
    amounts = " and ".join(thousands(amount, 1) for amount in (to_come.node, to_come.gpu) if amount)
    return f"{used} so far; at most {amounts if same else to_come} to come"


def failed_lines(states: Sequence[RunState]) -> list[str]:
    """Those of status_table on runs that failed."""
    return _run_lines(same for same in _stretches(states) if same[0].phase == "failed")


def _run_lines(stretches: Iterable[list[RunState]]) -> list[str]:
    return [line for alike in _by_text(stretches) for line in _folded(alike)]


def progress_line(states: Sequence[RunState]) -> str:
    """One line: how many runs are in which state, and how far those that run are."""
    live = [state for state in states if state.phase == "running"]
    running = [f"{state.key} {progress}" for state in live if (progress := _progress(state))]
    return "; ".join([_counts(states), *running[:RUNNING_SHOWN]])


def _counts(states: Sequence[RunState]) -> str:
    found = Counter(state.phase for state in states)
    counts = ", ".join(f"{found[phase]} {phase}" for phase in ORDER if found[phase])
    return f"{count(len(states), 'run')}: {counts}" if states else "no runs"


def _stretches(states: Sequence[RunState]) -> Iterator[list[RunState]]:
    for _, same in itertools.groupby(states, key=lambda state: (state.label, *_text(state))):
        yield list(same)


def _text(state: RunState) -> tuple[str | None, ...]:
    return state.phase, _words(state), state.next_step


def _by_text(stretches: Iterable[list[RunState]]) -> Iterator[list[list[RunState]]]:
    """Stretches with a common text, at the place of the first, where they are many; else each by itself."""
    alike: dict[tuple[str | None, ...], list[list[RunState]]] = {}
    for same in stretches:
        own = len(list(_lines([same]))) == 1
        alike.setdefault((same[0].label, str(same[0].run)) if own else (*_text(same[0]), same[0].line), []).append(same)
    for group in alike.values():
        yield from [group] if len(group) >= FOLDED_FROM else ([same] for same in group)


def _folded(alike: Sequence[list[RunState]]) -> Iterator[str]:
    if len(alike) == 1:
        yield from _lines(alike)
        return
    yield from (_head(same).rstrip() for same in alike[:FOLDED_NAMED])
    rest = [state for same in alike[FOLDED_NAMED:] for state in same]
    yield f"and {count(len(rest), 'run')} more, of {count(len({state.label for state in rest}), 'point')}:"
    yield from list(_lines(alike, beside=False))[1:]


def _lines(alike: Sequence[list[RunState]], *, beside: bool = True) -> Iterator[str]:
    """The first stretch, and the text that all have in common; what does not fit beside the run goes below it."""
    first, head = alike[0][0], _head(alike[0])
    text = _words(first) + _expected([state for same in alike for state in same])
    if beside and len(head) + 2 + len(text) <= WIDTH:
        yield f"{head}  {text}".rstrip()
    else:
        yield head.rstrip()
        yield from _below(text)
    if first.line:
        yield from _below(f"says: {textwrap.shorten(first.line, LINE_SHOWN, placeholder=' ...')}")
    if first.next_step:
        yield from _below(f"next: {first.next_step}")


def _head(same: Sequence[RunState]) -> str:
    first, last = same[0], same[-1]
    runs = f"r{first.run}" if first is last else f"r{first.run}-{last.run}"
    job = first.job if first is last and first.job else ""
    return f"{first.label}  {runs:<6} {first.phase:<7} {job:<7}"


def _below(text: str) -> list[str]:
    return wrapped(text, "    ")


def wrapped(text: str, indent: str = "") -> list[str]:
    """Its lines; what is to be copied is cut at blanks only."""
    return textwrap.wrap(
        text, WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False
    )


def _words(state: RunState) -> str:
    gone = None if state.in_sweep else "not in the sweep any more"
    return ", ".join(text for text in (_progress(state), state.detail, gone) if text)


def _expected(same: Sequence[RunState]) -> str:
    """When Slurm expects the first of these runs to start."""
    first = min((state.start for state in same if state.start), default=None)
    return f"; Slurm expects {datetime.fromisoformat(first):%d %b %H:%M}" if first else ""


def _progress(state: RunState) -> str | None:
    if state.steps_done is None:
        return None
    of = "" if state.steps_total is None else f" of {state.steps_total}"
    rate = "" if state.samples_per_s is None else f", {thousands(state.samples_per_s)} samples/s"
    left = "" if state.left_s is None else f", {duration(state.left_s)} left"
    slow = state.start_up_s is not None and state.start_up_s > LONG_START_S
    start = f", {duration(state.start_up_s or 0)} from srun to the first step" if slow else ""
    copied = "" if state.staging_s is None else f", data copied to its nodes in {duration(state.staging_s)}"
    return f"step {state.steps_done}{of}{rate}{left}{start}{copied}"
