"""Job arrays: runs whose job scripts are the same become the tasks of one array."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterator, Sequence

from hpcddp.backends.base import Batch, Submission
from hpcddp.core.launcher import command_from_snapshot
from hpcddp.script.render import ScriptLaunch, folders_of


def in_arrays(submissions: Sequence[Submission], max_size: Callable[[], int]) -> list[Batch]:
    """Batches in the order in which they shall start; `max_size`: tasks that an array may have (0: no arrays here).

    Jobs of equal priority start in the order of submission, and tasks in that of their numbers. So a batch holds runs of one
    repetition only, unless all that follow are of its shape: the second run of any point comes after the first of all points, and
    a cluster that slows down slows all points alike.
    """
    shapes = _shapes(submissions)
    groups: list[list[Submission]] = []
    for _, of_repetition in itertools.groupby(submissions, key=lambda submission: submission.spec.run):
        by_shape: dict[str, list[Submission]] = {}
        for submission in of_repetition:
            by_shape.setdefault(shapes[submission.spec.label], []).append(submission)
        for shape, same in by_shape.items():
            if groups and shapes[groups[-1][0].spec.label] == shape:
                groups[-1] += same
            else:
                groups.append(same)
    return [Batch(submissions=part) for group in groups for part in _slices(group, max_size)]


def _shapes(submissions: Sequence[Submission]) -> dict[str, str]:
    """By label, a text that is the same for points whose runs may be one array: the script without the array's name and folder.

    The script of a point whose shape no other has is not rendered.
    """
    points: dict[Hashable, dict[str, Submission]] = {}
    for submission in submissions:
        points.setdefault(submission.shape, {})[submission.spec.label] = submission
    return {
        label: _script(submission) if len(alike) > 1 else label
        for alike in points.values()
        for label, submission in alike.items()
    }


def _script(submission: Submission) -> str:
    if submission.render_text is None:
        return submission.spec.label
    command = command_from_snapshot(submission.python, submission.code, "", submission.spec.point, submission.trusted)
    launch = ScriptLaunch(command=command, array="", folders=folders_of(submission.spec))
    return f"{submission.entry}\n{submission.render_text(launch)}"


def _slices(group: list[Submission], max_size: Callable[[], int]) -> Iterator[tuple[Submission, ...]]:
    size = max(1, max_size()) if len(group) > 1 else 1
    for start in range(0, len(group), size):
        yield tuple(group[start : start + size])
