"""`hpcddp render --explain`: where each line of a script comes from.

Marks carry its place in the templates through Jinja (template_marks.py); the values that it depends on are found by changing
each of them (dependencies.py). Neither is written down anywhere, and so neither can be out of date.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hpcddp.cluster.profile import ClusterProfile
from hpcddp.cluster.settings import Settings, place_of
from hpcddp.cluster.yamlfile import key_lines
from hpcddp.core.catalog import DATASETS, MODELS
from hpcddp.core.errors import HpcddpError
from hpcddp.core.point import Point
from hpcddp.core.schema import Path, dotted, encode
from hpcddp.script.dependencies import Input, InputValue, dependencies
from hpcddp.script.job_request import JobRequest
from hpcddp.script.render import ScriptLaunch, render, render_marked
from hpcddp.script.resources import job_request
from hpcddp.script.template_marks import TemplatePlace
from hpcddp.submit.choose import ChosenPoints, slurm_user
from hpcddp.submit.scripts_by_hand import by_hand
from hpcddp.sweep.expand import PlannedPoint, resolve
from hpcddp.sweep.file import Sweep, SweepFile

FACTORY = "package.module:factory"
"""A model or data set that goes with every other."""

ScriptParts = tuple[ClusterProfile, Point, JobRequest, ScriptLaunch]
"""What `render` takes."""

Places = Callable[[str], str | None]
"""Key of a record -> where its value was given; None: it follows from another value."""


@dataclass(frozen=True, kw_only=True)
class Origin:
    """A value that a line depends on."""

    input: str
    """profile, sweep or settings."""
    key: str
    value: object
    place: str | None = None
    """Where a value of a sweep or of the settings was given."""
    grade: str | None = None
    """Of a fact of the profile."""
    source: str | None = None
    """A key of the profile's `sources`."""
    reference: str | None = None
    """What the profile says of that source."""


@dataclass(frozen=True, kw_only=True)
class ExplainedLine:
    """A line of a script and all that it comes from."""

    text: str
    templates: tuple[TemplatePlace, ...]
    origins: tuple[Origin, ...]


@dataclass(frozen=True, kw_only=True)
class GivenLayout:
    """A point that no sweep file has."""

    sweep_on: Callable[[ClusterProfile], Sweep]
    """Its sweep on a profile, which says what the command line leaves open."""
    keys: frozenset[str]
    """What the command line gives."""


def explain_by_hand(points: ChosenPoints, settings: Settings, layout: GivenLayout | None) -> list[ExplainedLine]:
    """The lines of the script that `hpcddp render` prints of the only point. `layout`: where no sweep file is given."""
    profile, (planned,), near = points.profile, points.points, points.source.file.absolute().parent
    assert planned.sweep is not None, "points of a sweep know theirs"

    def parts(records: Mapping[str, Any]) -> ScriptParts:
        used, sweep = replace(records["profile"], template=profile.template), records["sweep"]
        if layout is not None and sweep == inputs["sweep"].record:
            sweep = layout.sweep_on(used)
        user = slurm_user(replace(points.source, sweep=sweep), records["settings"])
        point = resolve(sweep, used)
        return used, point, job_request(used, point, sweep.slurm, user), by_hand(used, point, records["settings"], near)

    inputs = {
        "profile": profile_input(profile),
        "sweep": sweep_input(planned.sweep, profile),
        "settings": Input(cls=Settings, plain=encode(settings)),
    }
    places = sweep_places(points.source, planned) if layout is None else layout_places(layout.keys)
    return explain(parts, inputs, profile, {"sweep": places, "settings": place_of})


def explain(
    parts: Callable[[Mapping[str, Any]], ScriptParts],
    inputs: Mapping[str, Input],
    profile: ClusterProfile,
    places: Mapping[str, Places],
) -> list[ExplainedLine]:
    """The lines of the script that `parts` of the inputs make, with the facts of `profile`."""
    lines, found = dependencies(lambda records: render(*parts(records)).split("\n")[:-1], inputs)
    marked = render_marked(*parts({name: each.record for name, each in inputs.items()}))
    if [line.text for line in marked] != list(lines):
        raise HpcddpError(f"{profile.template}: its text changes with marks in it, so its lines cannot be found again")
    return [
        ExplainedLine(text=line.text, templates=line.places, origins=tuple(_origins(values, inputs, profile, places)))
        for line, values in zip(marked, found, strict=True)
    ]


def profile_input(profile: ClusterProfile) -> Input:
    """The keys of the profile's file that say what a script is made of."""
    plain = {key: value for key, value in encode(profile).items() if key not in ("facts", "template", "file")}
    return Input(cls=ClusterProfile, plain=plain, names=_names(profile))


def sweep_input(sweep: Sweep, profile: ClusterProfile) -> Input:
    """The sweep of one point on that cluster, defaults in full."""
    plain = {key: value for key, value in encode(sweep, keep_later=True).items() if key not in ("cluster", "points")}
    return Input(cls=Sweep, plain=plain, names=_names(profile))


def _names(profile: ClusterProfile) -> Mapping[str, Sequence[str]]:
    workload = {"model": (*MODELS, FACTORY), "data.name": (*DATASETS, FACTORY)}
    return {
        "layout.node_type": tuple(profile.node_types),
        "default_node_type": tuple(profile.node_types),
        **{f"slurm.qos.{at}.partition": tuple(profile.slurm.partitions) for at in range(len(profile.slurm.qos))},
        **{f"node_types.{name}.partition": tuple(profile.slurm.partitions) for name in profile.node_types},
        "slurm.partition": tuple(profile.slurm.partitions),
        **{f"env_rules.{at}.when.nodes": ("1", ">1", ">99999") for at in range(len(profile.env_rules))},
        **{f"env_rules.{at}.when.nccl": ("<9", ">=9") for at in range(len(profile.env_rules))},
        **{f"{prefix}workload.{key}": names for prefix in ("", "default_") for key, names in workload.items()},
    }


def _origins(
    values: Sequence[InputValue], inputs: Mapping[str, Input], profile: ClusterProfile, places: Mapping[str, Places]
) -> Iterator[Origin]:
    """Each key once: the entries of a list are one value."""
    found: dict[tuple[str, str], Path] = {}
    for each in values:
        of_list = isinstance(each.path[-1], int) or isinstance(each.value, list)
        path = each.path[:-1] if isinstance(each.path[-1], int) else each.path
        if not (of_list and any(other.path[: len(path)] == path and len(other.path) > len(path) + 1 for other in values)):
            found[each.input, dotted(path)] = path
    for (name, key), path in found.items():
        value: Any = inputs[name].plain
        for part in path:
            value = value[part]
        value = path[-1] if isinstance(value, dict) else value  # an entry by name: its name is what the line has
        if name == "profile":
            fact = next((profile.facts[known] for known in _prefixes(path) if known in profile.facts), None)
            source = fact.source if fact else profile.env_rules[path[1]].source if path[0] == "env_rules" and path[1:] else None
            reference, grade = profile.sources.get(source or ""), fact.grade if fact else None
            yield Origin(input=name, key=key, value=value, grade=grade, source=source, reference=reference)
        elif (place := places[name](key)) is not None:
            yield Origin(input=name, key=key, value=value, place=place)


def _prefixes(path: Path) -> Iterator[str]:
    """The path, and those above it, the longest first."""
    return (dotted(path[:end]) for end in range(len(path), 0, -1))


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
