"""`hpcddp lint` of a template: the scripts that it makes are checked, and what is found is said of the template's own lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from hpcddp.cluster.profile import ClusterProfile
from hpcddp.core.catalog import DATASETS, MODELS
from hpcddp.core.errors import UsageError
from hpcddp.core.jobspec import JobSpec
from hpcddp.script.job_request import User
from hpcddp.script.lint import LintFinding, lint_script
from hpcddp.script.render import ScriptLaunch, launch_by_hand, render_marked
from hpcddp.script.resources import job_request
from hpcddp.script.template_marks import MarkedLine
from hpcddp.submit.choose import layout_sweep
from hpcddp.submit.options import LayoutOptions, PointOptions
from hpcddp.sweep.expand import resolve

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
