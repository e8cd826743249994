"""`--cluster` of the commands of `hpcddp data`: what they do here, done by a job."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from hpcddp.commands import complete
from hpcddp.commands.options import after_option, job_option, read_settings, remark_on, runs_option, set_option, yes_option

if TYPE_CHECKING:
    from hpcddp.core.data_task import DataTask

Command = Callable[..., Any]

OWN = ("cluster", "settings", "node_type", "job_options", "runs", "after", "dry_run", "wait", "yes")
"""Options of the job, which are none of the task."""


def as_job(action: str, data: str) -> Callable[[Command], Command]:
    """Adds the options of a job. With --cluster the command is not called, and a job is submitted that does the same."""

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def choose(**options: Any) -> Any:
            of_job = {name: options.pop(name) for name in OWN}
            if of_job["cluster"] is None:
                _refuse_without_cluster(of_job)
                return command(**{name: _filled_in(value) for name, value in options.items()})
            return click.get_current_context().exit(_submit(_task(action, data, options), of_job))

        for option in _OPTIONS:
            choose = option(choose)
        return choose

    return decorate


_OPTIONS = (
    yes_option,
    click.option("--wait", is_flag=True, help="Stay until the job is over."),
    click.option("--dry-run", is_flag=True, help="Show the job; submit nothing."),
    after_option,
    runs_option,
    job_option,
    click.option("--node-type", shell_complete=complete.node_types, help="Of the node; by default the profile's default one."),
    set_option,
    click.option(
        "--cluster",
        metavar="NAME|FILE",
        shell_complete=complete.clusters,
        help="Do it as one job there, of a node's cores; a profile by name or YAML file. Without it, here and now.",
    ),
)
"""Last to first, as --help shows them."""


def _refuse_without_cluster(of_job: dict[str, Any]) -> None:
    given = next((name for name, value in of_job.items() if value and name != "runs"), None)
    if given is not None:
        flag = {"settings": "--set", "job_options": "--job-option"}.get(given, f"--{given.replace('_', '-')}")
        raise click.UsageError(f"{flag} is of a job, and without --cluster the data are made here: give --cluster NAME")


def _filled_in(value: Any) -> Any:
    """A folder with its variables, as a job would have them: in single quotes the shell leaves them."""
    if not isinstance(value, Path):
        return value
    filled = os.path.expandvars(value)
    if "$" in filled:
        raise click.UsageError(f"{value}: {filled[filled.index('$') :].split('/')[0]} is not set; give the folder in full")
    return Path(filled)


def _task(action: str, data: str, options: dict[str, Any]) -> DataTask:
    """With the options that were given; the job has the others by default, too."""
    from hpcddp.core.data_task import DataTask

    context = click.get_current_context()
    given = {name: value for name, value in options.items() if context.get_parameter_source(name) is not ParameterSource.DEFAULT}
    folders = tuple(name for name, value in given.items() if isinstance(value, Path))
    plain = {name: str(value) if name in folders else value for name, value in given.items()}
    return DataTask(action=action, data=data, options=plain, folders=folders)


def _submit(task: DataTask, of_job: dict[str, Any]) -> int:
    from hpcddp.commands.submit import make_console
    from hpcddp.submit.data_job import data_layout, plan_data_job, submit_data_job
    from hpcddp.submit.options import PointOptions, SubmitOptions

    points = PointOptions(cluster=of_job["cluster"], settings=of_job["settings"], job_options=of_job["job_options"])
    options = SubmitOptions(**{name: of_job[name] for name in ("runs", "after", "dry_run", "wait", "yes")})
    job = plan_data_job(task, remark_on(data_layout(task, of_job["node_type"], points)), read_settings(), options)
    return submit_data_job(job, options, make_console())
