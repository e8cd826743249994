"""Where the values of a point's sweep were given: on the command line, in a group, at a line of the file, or nowhere."""

from __future__ import annotations

from collections.abc import Callable, Collection

from hpcddp.cluster.yamlfile import key_lines
from hpcddp.sweep.expand import PlannedPoint
from hpcddp.sweep.file import SweepFile

COMMAND_LINE = "command line"
DEFAULT = "default"

SIZE = ("layout.nodes", "layout.gpus_per_node")
"""What a baseline has of its own."""


def sweep_places(source: SweepFile, planned: PlannedPoint) -> Callable[[str], str]:
    """Key of a sweep -> the place of its value in the point."""
    lines = key_lines(source.file)
    named = {text.partition("=")[0] for text in source.options.settings} | set(source.options.also)
    group = next((source.groups[name] for name in planned.groups if name in source.groups), None)
    of_group = {} if group is None else {key: f"group {group.name}" for key in group.all_keys}

    def place(key: str) -> str:
        if planned.is_added and key in SIZE:
            return "baseline"
        if key in of_group:
            return of_group[key]
        if any(key == each or key.startswith(f"{each}.") for each in named):
            return COMMAND_LINE
        if key in lines:
            return f"{source.file.name}:{lines[key]}"
        return COMMAND_LINE if key == "slurm.options" else DEFAULT

    return place


def layout_places(given: Collection[str]) -> Callable[[str], str | None]:
    """The same where the command line gives these keys and there is no file; None: the value follows from the profile."""

    def place(key: str) -> str | None:
        if any(key == each or key.startswith(f"{each}.") for each in given) or key == "slurm.options":
            return COMMAND_LINE
        of_profile = key == "layout.gpus_per_node" or (key.startswith("workload.") and "workload.model" not in given)
        return None if of_profile else DEFAULT

    return place
