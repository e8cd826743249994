"""Lines of a script with their lines of the template, as Jinja reads it: `hpcddp render --explain` and lint of a template."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcddp.cluster.profile import ClusterProfile
from hpcddp.cluster.settings import Settings
from hpcddp.core.catalog import DATASETS, MODELS
from hpcddp.core.errors import HpcddpError, UsageError
from hpcddp.core.jobspec import JobSpec
from hpcddp.core.point import Point
from hpcddp.script.job_request import JobRequest, User
from hpcddp.script.lint import LintFinding, lint_script
from hpcddp.script.render import ScriptLaunch, launch_by_hand, render, render_marked
from hpcddp.script.resources import job_request
from hpcddp.script.template_marks import MarkedLine, TemplatePlace
from hpcddp.script.templating import FOLDER
from hpcddp.submit.choose import ChosenPoints, job_requests, layout_sweep
from hpcddp.submit.options import LayoutOptions, PointOptions
from hpcddp.submit.scripts_by_hand import by_hand
from hpcddp.sweep.expand import resolve

if TYPE_CHECKING:
    from jinja2.nodes import Node

HEAD = "Each line has its line number in the template. Below it are the fields that it prints."


@dataclass(frozen=True, kw_only=True)
class ExplainedLine:
    """A line of a script and what it comes from."""

    text: str
    templates: tuple[TemplatePlace, ...]
    fields: tuple[str, ...]


def explain_by_hand(points: ChosenPoints, settings: Settings) -> list[ExplainedLine]:
    """The lines of the script that `hpcddp render` prints of the only point."""
    profile, (planned,) = points.profile, points.points
    if profile.backend == "sagemaker":
        raise UsageError(f"For {profile.name} `hpcddp render` prints a request, no script. Omit --explain.")
    (request,) = job_requests(points, settings).values()
    launch = by_hand(profile, planned.point, settings, points.source.file.absolute().parent)
    return explain(profile, planned.point, request, launch)


def explain(profile: ClusterProfile, point: Point, request: JobRequest, launch: ScriptLaunch) -> list[ExplainedLine]:
    """The lines of the script that `render` makes of the same."""
    lines = render_marked(profile, point, request, launch)
    if "".join(f"{line.text}\n" for line in lines) != render(profile, point, request, launch):
        raise HpcddpError(f"{profile.template}: its text changes when its lines are marked, so their origin is unknown")
    printed = {file: printed_fields(Path(file)) for file in {place.file for line in lines for place in line.places}}
    records = {"cluster": profile, "point": point, "request": request, "launch": launch}
    found = []
    for line in lines:
        fields = [name for place in line.places for name in printed[place.file].get(place.line, ())]
        matching = [name for name in fields if (value := _value(records, name)) is not None and str(value) in line.text]
        found.append(ExplainedLine(text=line.text, templates=line.places, fields=tuple(dict.fromkeys(matching or fields))))
    return found


def printed_fields(template: Path) -> dict[int, list[str]]:
    """Line of a template -> the fields that it prints; in the place of a loop's variable what the loop is over."""
    from jinja2 import Environment, nodes

    found: dict[int, list[str]] = {}
    bound: dict[str, list[str]] = {}

    def visit(node: Node) -> None:
        if isinstance(node, nodes.For | nodes.Assign):
            target, source = node.target, node.iter if isinstance(node, nodes.For) else node.node
            names = [target] if isinstance(target, nodes.Name) else target.find_all(nodes.Name)
            bound.update(dict.fromkeys([name.name for name in names], fields(source)))
        if isinstance(node, nodes.Output):
            for part in node.nodes:
                found.setdefault(part.lineno, []).extend(fields(part))
        for child in node.iter_child_nodes():
            visit(child)

    def fields(node: Node) -> list[str]:
        if isinstance(node, nodes.Name):
            return bound.get(node.name, [node.name])
        if isinstance(node, nodes.Getattr):
            return [f"{name}.{node.attr}" for name in fields(node.node)]
        is_function = isinstance(node, nodes.Call) and isinstance(node.node, nodes.Name)
        return [name for child in node.iter_child_nodes(exclude=("node",) if is_function else None) for name in fields(child)]

    visit(Environment(trim_blocks=True, lstrip_blocks=True, autoescape=False).parse(template.read_text(encoding="utf-8")))
    return found


def _value(records: Mapping[str, Any], name: str) -> object:
    first, *parts = name.split(".")
    value = records.get(first)
    for part in parts:
        value = getattr(value, part, None)
    return value


def explanation_plain(lines: Sequence[ExplainedLine]) -> list[dict[str, Any]]:
    """The lines as JSON-able values."""
    return [{"line": number, **asdict(line)} for number, line in enumerate(lines, start=1)]


def explanation(lines: Sequence[ExplainedLine], width: int) -> str:
    """The script within `width` columns; what is longer is cut, and JSON has it in full."""
    text = [HEAD]
    for heading, of_block in groupby((line for line in lines if line.text.strip()), key=lambda line: _heading(line.templates[0])):
        text += ["", heading]
        for line in of_block:
            text.append(f"{line.templates[0].line:4}  {line.text}")
            text += [f"{'':6}<- {', '.join(line.fields)}"] if line.fields else []
    return "\n".join(line if len(line) <= width else f"{line[: width - 1]}…" for line in text)


def _heading(place: TemplatePlace) -> str:
    file = Path(place.file)
    name = f"{FOLDER.name}/{file.name}" if file.parent == FOLDER else str(file)
    return f"{name}, block {place.block}" if place.block else name


SUBMITTED = ScriptLaunch(command="python3 -u bootstrap.py job", output="/runs/%j_%t_log.out", error="/runs/%j_%t_log.err")
"""As `hpcddp submit` starts a run."""

FORMS = ("measure.resume=false", "measure.resume=true", "layout.launcher=torchrun")
"""--set of points whose scripts differ in more than numbers."""


@dataclass(frozen=True, kw_only=True)
class TemplateFinding:
    """A finding, at the line of a template that made the script's."""

    file: str
    finding: LintFinding


def lint_template(template: Path, profile: ClusterProfile) -> list[TemplateFinding]:
    """All findings in its scripts of two nodes on that cluster, each once, by file and line."""
    if profile.backend != "slurm":
        raise UsageError(f"{profile.name} has no Slurm, so no sbatch script: choose another --cluster")
    found: dict[tuple[str, int, str], TemplateFinding] = {}
    for lines in _scripts(replace(profile, template=str(template.resolve()))):
        for finding in lint_script("".join(f"{line.text}\n" for line in lines)):
            place = lines[finding.line - 1].places[0]
            at = TemplateFinding(file=place.file, finding=finding._replace(line=place.line))
            found.setdefault((at.file, at.finding.line, at.finding.rule), at)
    return [found[key] for key in sorted(found)]


def _scripts(profile: ClusterProfile) -> Iterator[list[MarkedLine]]:
    workload = {"model": MODELS[0], "data": {"name": f"synthetic-{next(iter(DATASETS))}"}}
    for setting in FORMS:
        options = PointOptions(settings=(setting,))
        sweep = layout_sweep(profile, LayoutOptions(nodes=2), options, lambda _: workload, "lint").sweep
        point = resolve(sweep, profile)
        request = job_request(profile, point, sweep.slurm, User())
        for launch in (launch_by_hand(profile, JobSpec(point=point, study="$HPCDDP_RUNS/adhoc"), None), SUBMITTED):
            yield render_marked(profile, point, request, launch)
