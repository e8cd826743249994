"""The states of a study's runs as lines of at most 80 columns: runs in one state, for one reason, are one entry."""

from __future__ import annotations

import itertools
import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from hpcddp.core.causes import AGAIN
from hpcddp.core.hours import Hours
from hpcddp.core.run_root import run_numbers
from hpcddp.core.text import count, duration, first_few, thousands
from hpcddp.study.status import Phase, RunState
from hpcddp.study.used_hours import StudyHours

WIDTH = 80

LINE_SHOWN = 200
"""Characters of a log's line."""

RUNNING_SHOWN = 2
"""Running jobs that fit a line beside the counts."""

NAMES_SHOWN = 12
"""Names of points that fit a line."""

BAR_CELLS = 20

LONG_START_S = 60
"""From srun to the first step: torch is imported in 10 to 40 s from a shared file system."""

SHOWN_FROM_H = 0.05
"""Fewer node hours print as 0.0."""

ORDER: tuple[Phase, ...] = ("done", "running", "queued", "failed", "unknown", "missing")

LISTED: tuple[Phase, ...] = ("done", "missing", "queued", "unknown", "running", "failed")
"""What may need somebody comes last, where a terminal shows it."""


def status_table(states: Sequence[RunState]) -> str:
    """The entries, and below them how many runs are in which state."""
    return "\n".join([*run_lines(states), *total_lines(states)])


def total_lines(states: Sequence[RunState], hours: StudyHours | None = None) -> list[str]:
    """How many runs are in which state, and the hours that they took and will take: in one line where both fit."""
    counts, used = _counts(states), _hours_words(hours)
    return [f"{counts}; {used}"] if used and len(counts) + 2 + len(used) <= WIDTH else [line for line in (counts, used) if line]


def bar(states: Sequence[RunState]) -> str:
    """`############--------  62 % done`, rounded down; of the runs that the sweep has."""
    wanted = [state.phase for state in states if state.in_sweep]
    done = wanted.count("done")
    return f"{'#' * (BAR_CELLS * done // len(wanted)):-<{BAR_CELLS}}  {100 * done // len(wanted)} % done" if wanted else ""


def next_lines(states: Sequence[RunState], submit: str, analyze: str) -> list[str]:
    """Which of these two commands comes next, and why, in a line where both fit; none while nothing is left to do but wait."""
    wanted = [state for state in states if state.in_sweep]
    found = Counter(state.phase for state in wanted if state.phase != "unknown" or state.job is None)
    left = ", ".join(f"{count(found[phase], 'run')} {phase}" for phase in ("failed", "missing", "unknown") if found[phase])
    if not left:
        return [f"next: {analyze}"] if wanted and found["done"] == len(wanted) else []
    faulty = sum(state.phase == "failed" and not (state.next_step or AGAIN).startswith(AGAIN) for state in wanted)
    why = f"first fix what stopped {count(faulty, 'run')}" if faulty else left
    line = f"next: {submit} ({why})"
    return [line] if len(line) <= WIDTH else [f"next: {submit}", f"    {why}"]


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


def run_lines(states: Sequence[RunState], at_most: int | None = None) -> list[str]:
    """The entries. With `at_most` lines, the last entries of the state that has most are one without a text."""
    labels = short_labels(state.label for state in states)
    entries: list[tuple[list[RunState], list[str]]] = []
    folded: dict[Phase, list[RunState]] = {}
    for phase, same in itertools.groupby(_groups(states), key=lambda group: group[0].phase):
        entries += [(group, list(_entry(group, labels))) for group in itertools.islice(same, at_most)]
        folded |= {phase: rest} if (rest := [state for group in same for state in group]) else {}
    while at_most is not None and entries and sum(len(lines) for _, lines in entries) + len(folded) > at_most:
        longest, _ = Counter(group[0].phase for group, _ in entries).most_common(1)[0]
        last = max(place for place, (group, _) in enumerate(entries) if group[0].phase == longest)
        folded[longest] = entries.pop(last)[0] + folded.get(longest, [])
    entries += [(group, [_head(group, labels)]) for group in folded.values()]
    return [line for _, lines in sorted(entries, key=lambda entry: LISTED.index(entry[0][0].phase)) for line in lines]


def progress_line(states: Sequence[RunState]) -> str:
    """One line: how many runs are in which state, and how far those that run are."""
    live = [state for state in states if state.phase == "running"]
    running = [f"{state.key} {progress}" for state in live if (progress := _progress(state))]
    return "; ".join([_counts(states), *running[:RUNNING_SHOWN]])


def _counts(states: Sequence[RunState]) -> str:
    found = Counter(state.phase for state in states)
    counts = ", ".join(f"{found[phase]} {phase}" for phase in ORDER if found[phase])
    return f"{count(len(states), 'run')}: {counts}" if states else "no runs"


def short_labels(labels: Iterable[str]) -> dict[str, str]:
    """Label -> its beginning, with as much of the hash as no other label begins with: `hpcddp logs` takes that for a point."""
    ordered, found = sorted(set(labels)), {}
    for before, label, after in zip(["", *ordered], ordered, [*ordered[1:], ""], strict=False):
        length = len(re.sub(r"-[0-9a-f]{12}$", "", label))
        while length < len(label) and (before.startswith(label[:length]) or after.startswith(label[:length])):
            length += 1
        found[label] = label[:length]
    return found


def _groups(states: Sequence[RunState]) -> list[list[RunState]]:
    """Runs in one state with one text, in the order of LISTED; of those that run, first the ones that need something."""
    groups: dict[tuple[str | None, ...], list[RunState]] = {}
    for state in states:
        groups.setdefault((state.phase, _words(state), state.next_step, state.line), []).append(state)
    return sorted(groups.values(), key=lambda group: (LISTED.index(group[0].phase), group[0].next_step is None))


def _entry(group: Sequence[RunState], labels: Mapping[str, str]) -> Iterator[str]:
    """Which runs, and what is said of them: what does not fit beside goes below."""
    first, head = group[0], _head(group, labels)
    text = _words(first) + _expected(group)
    if len(head) + 2 + len(text) <= WIDTH:
        yield f"{head}  {text}".rstrip()
    else:
        yield head
        yield from _below(text)
    if first.line:
        yield from _below(f"log: {textwrap.shorten(first.line, LINE_SHOWN, placeholder=' ...')}")
    if first.next_step:
        yield from _below(f"next: {first.next_step}")


def _head(group: Sequence[RunState], labels: Mapping[str, str]) -> str:
    """`failed   n04-g4-b32  r2  48213`, `done     62 runs of 11 points: n01-g1-b64, n01-g2-b64 and 9 more`"""
    names = list(dict.fromkeys(labels[state.label] for state in group))
    if len(names) == 1:
        job = f"  {group[0].job}" if len(group) == 1 and group[0].job else ""
        return f"{group[0].phase:<7}  {names[0]}  {run_numbers(state.run for state in group)}{job}"
    runs = f"{group[0].phase:<7}  {count(len(group), 'run')} of {count(len(names), 'point')}: "
    lists = (first_few(names, shown) for shown in range(min(NAMES_SHOWN, len(names)), 1, -1))
    return runs + next((text for text in lists if len(runs) + len(text) <= WIDTH), first_few(names, 1))


def _below(text: str) -> list[str]:
    return wrapped(text, "    ")


def wrapped(text: str, indent: str = "") -> list[str]:
    """Its lines; what is to be copied is cut at blanks only."""
    return textwrap.wrap(
        text, WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False
    )


def _words(state: RunState) -> str:
    gone = None if state.in_sweep else "no longer in the sweep"
    return ", ".join(text for text in (_progress(state), state.detail, gone) if text)


def _expected(same: Sequence[RunState]) -> str:
    """When Slurm expects the first of these runs to start."""
    first = min((state.start for state in same if state.start), default=None)
    return f"; Slurm expects {datetime.fromisoformat(first):%d %b %H:%M}" if first else ""


def _progress(state: RunState) -> str | None:
    if state.steps_done is None:
        return None
    of = "" if state.steps_total is None else f" of {thousands(state.steps_total)}"
    rate = "" if state.samples_per_s is None else f", {thousands(state.samples_per_s)} samples/s"
    left = "" if state.left_s is None else f", {duration(state.left_s)} left"
    slow = state.start_up_s is not None and state.start_up_s > LONG_START_S
    start = f", first step {duration(state.start_up_s or 0)} after srun" if slow else ""
    copied = "" if state.staging_s is None else f", data copied to the nodes in {duration(state.staging_s)}"
    return f"step {thousands(state.steps_done)}{of}{rate}{left}{start}{copied}"
