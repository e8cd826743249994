"""The sbatch script of a point: one pure function. Same input, same bytes; no time, no uuid, no Slurm, nothing read but
the template.

What removes copies of data on the nodes' own disks after a failure is part of it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hpcddp.cluster.profile import ClusterProfile
from hpcddp.core.errors import UsageError
from hpcddp.core.jobspec import LINE, JobSpec, data_root_as_given, json_lines
from hpcddp.core.launcher import command_by_hand
from hpcddp.core.point import Point
from hpcddp.core.schema import encode
from hpcddp.script.job_request import JobRequest, gpu_option, step_gpu_option
from hpcddp.script.rank_environment import container_lines, rule_lines, shell_word
from hpcddp.script.templating import render_template

if TYPE_CHECKING:
    from hpcddp.script.template_marks import MarkedLine


@dataclass(frozen=True, kw_only=True)
class JobStep:
    """One of several runs that a job starts one after the other."""

    name: str
    request: JobRequest
    """What the run would request in a job of its own."""
    resumes: bool
    command: str
    output: str | None = None
    error: str | None = None

    @property
    def gpu_option(self) -> str | None:
        return gpu_option(self.request)


@dataclass(frozen=True, kw_only=True)
class ScriptLaunch:
    """How a script starts its ranks: this differs between a script submitted and one printed to be submitted by hand."""

    command: str
    """Shell text that every task of the step runs, already quoted: a rank, or the torchrun of a node."""
    title: str | None = None
    """Of a command of the user's own, whose ranks are told their numbers by torch's variables; None: a point's worker."""
    output: str | None = None
    """srun's log patterns; None: the batch log."""
    error: str | None = None
    spec: str | None = None
    """JSON of the job's spec, carried inline where no snapshot holds it."""
    run_root: str | None = None
    """Where a script submitted by hand leaves its records if HPCDDP_RUNS does not say."""
    array: str | None = None
    """The name of the array that the script is for: its tasks are several points, and nothing in it is one point's own."""
    hosts: tuple[tuple[str, str], ...] = ()
    """Of hosts by ssh, where a person starts it there: each with its command."""
    steps: tuple[JobStep, ...] = ()
    """In place of the command: the runs that the script is for, task by task from 0, under the name in `array`."""
    preflight: JobStep | None = None
    """With steps: what measures all nodes of the job before them."""
    spare_nodes: int = 0
    """Of the job: so many of its nodes no step needs."""
    folder: str = ""
    """Of the job, which holds a folder for each of the steps."""
    folders: tuple[str, ...] = ()
    """What the ranks read and write, for a container to show; may hold variables."""


def launch_by_hand(profile: ClusterProfile, spec: JobSpec, run_root: str | None) -> ScriptLaunch:
    """The point inline, run by the hpcddp of the compute environment, records under the run root's `adhoc/`."""
    command = command_by_hand(profile.compute.python, spec.point)
    folders = ("$HPCDDP_RUNS", "$PWD", *_own_folders(spec))
    return ScriptLaunch(command=command, spec=json_lines(encode(spec, keep_defaults=False)), run_root=run_root, folders=folders)


def launch_command(words: Sequence[str], run_root: str | None) -> ScriptLaunch:
    """The user's own command, run by each rank where the job was submitted."""
    text = shlex.join(words)
    return ScriptLaunch(command=text, title=_word(text) and text, run_root=run_root, folders=("$HPCDDP_RUNS", "$PWD"))


def folders_of(spec: JobSpec) -> tuple[str, ...]:
    """What the ranks of a submitted run read and write: the study, which has their code and files too, and the data."""
    return (spec.study, *_own_folders(spec))


def _own_folders(spec: JobSpec) -> tuple[str, ...]:
    """The user's: of the data, and where a script of theirs runs."""
    if spec.data_task is not None:
        from hpcddp.core.data_job import task_of

        return task_of(spec.data_task).places
    root = data_root_as_given(spec)
    return (*([root] if root else []), *([spec.script.folder] if spec.script else []))


def render(profile: ClusterProfile, point: Point, request: JobRequest, launch: ScriptLaunch) -> str:
    """The whole script; UsageError for a value that no header line can carry, or for what is wrong with the template."""
    return re.sub(r"\n{3,}", "\n\n", _template_text(profile, point, request, launch))


def render_marked(profile: ClusterProfile, point: Point, request: JobRequest, launch: ScriptLaunch) -> list[MarkedLine]:
    """The lines of the same script, each with its place in the templates."""
    from hpcddp.script.template_marks import marked_lines

    return list(marked_lines(_template_text(profile, point, request, launch, marks=True)))


def _template_text(
    profile: ClusterProfile, point: Point, request: JobRequest, launch: ScriptLaunch, *, marks: bool = False
) -> str:
    if launch.array is not None:
        request = replace(request, name=launch.array)
    is_staged = point.workload.data.stage != "none"
    disks = disk_folders(profile, point) if is_staged else ()
    steps = (*launch.steps, *([launch.preflight] if launch.preflight else []))
    requests = [step.request for step in steps] or [request]
    values = {
        "cluster": profile,
        "point": point,
        "request": request,
        "launch": launch,
        "gpu_option": gpu_option(request),
        "step_gpu_option": step_gpu_option(request),
        "container": container_lines(profile, (*launch.folders, *disks), (name for each in requests for name, _ in each.env)),
        "removal": removal(profile, point) if is_staged else None,
        "rules": rule_lines(profile, point, {each.nodes for each in requests}),
        "modules": (*profile.node_type(point.layout.node_type).modules, *profile.compute.modules),
    }
    filters = {"word": _word, "options": _option, "quoted": shlex.quote, "wrapped": _wrapped}
    return render_template(profile.template, filters, values, marks=marks)


def _wrapped(command: str) -> str:
    """Shell text, continued in another line where it is long: at spaces that no quotes are around."""
    words = re.findall(r"""(?:[^\s'"\\]|\\.|'[^']*'|"(?:\\.|[^"\\])*")+|\S+""", command)
    lines = [""]
    for word in words:
        if lines[-1] and len(lines[-1] + word) > LINE:
            lines.append("")
        lines[-1] += f"{word} "
    return "\\\n  ".join(lines).rstrip()


def _word(value: object) -> str:
    """One shell word; a line break or NUL is refused, since neither a header line nor an option survives it."""
    text = str(value)
    if value is None or re.search(r"[\n\r\0]", text):
        raise UsageError(f"{text!r} cannot be in a job script: it is empty or contains a line break")
    return shlex.quote(text)


def _option(text: str) -> str:
    """A raw sbatch option as a header line: the part after `=` quoted."""
    name, equals, value = text.partition("=")
    if not re.fullmatch(r"--[a-z][a-z0-9-]*", name):
        raise UsageError(f"job option {text!r}: write --name=value or --name")
    return f"{name}={_word(value)}" if equals else name


BY_JOB = ("$SLURM_TMPDIR", "$TMPDIR")
"""As worker/staging.py has it; after them /tmp."""


def disk_folders(profile: ClusterProfile, point: Point) -> tuple[str, ...]:
    """Where copies may lie, with variables of the node."""
    path = profile.node_type(point.layout.node_type).local_disk_path if profile.node_types else None
    return BY_JOB if path is None else (path,)


def removal(profile: ClusterProfile, point: Point) -> str | None:
    """What bash does on a node for the copies of this job's runs, those of an array's task and of runs in one allocation too.
    None where they go with the job.
    """
    if profile.node_types and profile.node_type(point.layout.node_type).local_disk_per_job:
        return None
    folders = disk_folders(profile, point)
    words = " ".join([*map(shell_word, folders), *(["/tmp"] if folders == BY_JOB else [])])
    return (
        'name="${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}"; '
        f'for disk in {words}; do rm -rf -- "$disk/hpcddp-stage-$(id -u)-${{name:-$SLURM_JOB_ID}}"[-+]*; done'
    )
