"""Job arrays: runs whose job scripts are the same become the tasks of one array."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterator, Sequence

from hpcddp.backends.base import Batch, Submission
from hpcddp.core.launcher import command_from_snapshot
from hpcddp.script.render import ScriptLaunch


def in_arrays(requests: Sequence[Submission], max_size: Callable[[], int]) -> list[Batch]:
    """Batches in the order in which they shall start; `max_size`: tasks that an array may have (0: no arrays here).

    Jobs of equal priority start in the order of submission, and tasks in that of their numbers. So a batch holds runs of one
    repetition only, unless all that follow are of its shape: the second run of any point comes after the first of all points, and
    a cluster that slows down slows all points alike.
    """
    shapes = _shapes(requests)
    groups: list[list[Submission]] = []
    for _, of_repetition in itertools.groupby(requests, key=lambda request: request.spec.run):
        by_shape: dict[str, list[Submission]] = {}
        for request in of_repetition:
            by_shape.setdefault(shapes[request.spec.label], []).append(request)
        for shape, same in by_shape.items():
            if groups and shapes[groups[-1][0].spec.label] == shape:
                groups[-1] += same
            else:
                groups.append(same)
    return [Batch(submissions=part) for group in groups for part in _slices(group, max_size)]


def _shapes(requests: Sequence[Submission]) -> dict[str, str]:
    """By label, a text that is the same for points whose runs may be one array: the script without the array's name and folder.

    The script of a point whose shape no other has is not rendered.
    """
    points: dict[Hashable, dict[str, Submission]] = {}
    for request in requests:
        points.setdefault(request.shape, {})[request.spec.label] = request
    return {label: _script(request) if len(alike) > 1 else label for alike in points.values() for label, request in alike.items()}


def _script(request: Submission) -> str:
    if request.render_text is None:
        return request.spec.label
    command = command_from_snapshot(request.python, request.code, "", request.spec.point, request.trusted)
    return f"{request.entry}\n{request.render_text(ScriptLaunch(command=command, array=''))}"


def _slices(group: list[Submission], max_size: Callable[[], int]) -> Iterator[tuple[Submission, ...]]:
    size = max(1, max_size()) if len(group) > 1 else 1
    for start in range(0, len(group), size):
        yield tuple(group[start : start + size])
