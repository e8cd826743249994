"""Options that several commands share, folded into the records that the commands get."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hpcddp.commands import completion

if TYPE_CHECKING:
    from hpcddp.cluster.settings import Settings
    from hpcddp.submit.choose import ChosenPoints
    from hpcddp.submit.options import LayoutOptions, PointOptions

Command = Callable[..., Any]

cluster_option = click.option(
    "--cluster",
    metavar="NAME|FILE",
    shell_complete=completion.cluster_names,
    help="Use this profile, by name or YAML file. Default: the sweep's, HPCDDP_CLUSTER, or this host's.",
)
hosts_option = click.option("--hosts", metavar="A,B|FILE", help="Run on these hosts by ssh, in place of the cluster's nodes.")
set_option = click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change a value that no group varies.")
where_option = click.option(
    "--where", "conditions", multiple=True, metavar="COND", help="Choose points that meet COND, such as 'layout.nodes <= 4'."
)
group_option = click.option(
    "--group", "groups", multiple=True, metavar="NAME", shell_complete=completion.group_names, help="Choose points of this group."
)
format_option = click.option(
    "--format",
    "format_",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="Output format; json for scripts.",
)
co2_option = click.option(
    "--co2-g-per-kwh",
    "co2_g_per_kwh",
    type=click.FloatRange(min=0),
    metavar="G",
    help="Also report CO2, at G grams per kWh of energy.",
)


class TakesCommand(click.Command):
    """What follows `--` is a command of the user's own, with options of its own; `command_of` gives it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            place = args.index("--")
            ctx.meta[COMMAND_KEY] = args[place + 1 :]
            if not args[place + 1 :]:
                raise click.UsageError("`--` needs a command after it, such as `-- python train.py`", ctx)
            args = args[:place]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND...]"]


COMMAND_KEY = "hpcddp.command"


def command_of(ctx: click.Context) -> Sequence[str]:
    """The words of the user's own command; none where there is no `--`."""
    found: Sequence[str] = ctx.meta.get(COMMAND_KEY, ())
    return found


style_option = click.option(
    "--style",
    type=click.Choice(["default", "paper", "slides"]),
    default="default",
    show_default=True,
    help="Style of figures: paper fits a journal's column, without titles; slides is 16:9, with large type.",
)
points_option = click.option("--points", "each_point", is_flag=True, help="List each point instead of the groups.")
yes_option = click.option("-y", "--yes", is_flag=True, help="Skip the confirmation.")


job_option = click.option(
    "-J",
    "--job-option",
    "job_options",
    multiple=True,
    metavar="OPTION",
    help="Pass an option to sbatch, such as -J --constraint=hdr.",
)


def choosing(command: Command) -> Command:
    """--set, --where, --group, --cluster and --hosts, which choose points. The command gets `points`, PointOptions."""
    return _with_options(
        _folded(command, "points", "PointOptions"), hosts_option, cluster_option, group_option, where_option, set_option
    )


def measuring(command: Command) -> Command:
    """--input, --comm and --profile-steps: how the chosen points are measured. Below `choosing`, to whose `points` it adds."""

    @functools.wraps(command)
    def folded(
        *arguments: Any,
        points: PointOptions,
        profile_steps: int | None,
        inputs: tuple[str, ...],
        comms: tuple[str, ...],
        **options: Any,
    ) -> Any:
        from dataclasses import replace

        also = {key: values for key, values in (("measure.input", inputs), ("measure.comm", comms)) if values}
        steps = () if profile_steps is None else (f"measure.profile_steps={profile_steps}",)
        refuse_twice([*also, *(["measure.profile_steps"] if steps else [])], points.settings)
        points = replace(points, settings=(*points.settings, *steps), also=also)
        return command(*arguments, points=points, **options)

    return _with_options(
        folded,
        click.option(
            "--profile-steps",
            type=click.IntRange(min=0),
            metavar="N",
            help="Profile N steps with torch.profiler after the timed ones.",
        ),
        _each_point(
            "--comm",
            ["off", "on", "check"],
            "with this hook setting; repeatable. off measures throughput without the hook, on the breakdown with it.",
        ),
        _each_point(
            "--input",
            ["full", "synthetic", "io"],
            "with this input; repeatable. synthetic measures training without loading, io loading without training.",
        ),
    )


def _with_options(command: Command, *options: Callable[[Command], Command]) -> Command:
    """The command with these options of click, which --help shows last to first."""
    for option in options:
        command = option(command)
    return command


def _folded(command: Command, parameter: str, record: str) -> Command:
    """The command with one parameter, a record of submit.options, in place of all its options that are fields of the record."""

    @functools.wraps(command)
    def folded(*arguments: Any, **options: Any) -> Any:
        from dataclasses import fields

        import hpcddp.submit.options

        kind = getattr(hpcddp.submit.options, record)
        names = [field.name for field in fields(kind) if field.name in options]
        return command(*arguments, **{parameter: kind(**{name: options.pop(name) for name in names})}, **options)

    return folded


def _each_point(flag: str, values: Sequence[str], how: str) -> Callable[[Command], Command]:
    """A flag to be given once for each value that the chosen points are measured with; `inputs` of `--input`."""
    return click.option(flag, f"{flag[2:]}s", multiple=True, type=click.Choice(values), help=f"Measure each point {how}")


def refuse_twice(keys: Sequence[str], settings: Sequence[str]) -> None:
    """UsageError where a `--set` gives a key that a flag of its own gives, too: one would win without a word."""
    for text in settings:
        key = text.partition("=")[0]
        if key in keys:
            flag = f"--{key.rpartition('.')[2].replace('_', '-')}"
            raise click.UsageError(f"{flag} and --set {text} set the same key. Give one of them.")


def laying_out(command: Command) -> Command:
    """--nodes, --gpus-per-node and --node-type: a layout without a sweep file. The command gets `layout`, LayoutOptions."""
    return _with_options(
        _folded(command, "layout", "LayoutOptions"),
        click.option("--node-type", shell_complete=completion.node_type_names, help="Node type. Default: the profile's."),
        click.option(
            "--gpus-per-node", type=click.IntRange(min=1), metavar="N", help="GPUs per node, one rank each. Default: all."
        ),
        click.option("--nodes", type=click.IntRange(min=1), metavar="N", help="Number of nodes, without a sweep file."),
    )


def _job_ids(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    jobs = tuple(job for text in given for job in re.split("[:,]", text))
    for job in jobs:
        if re.fullmatch(r"[0-9]+(_[0-9]+)?", job) is None:
            raise click.BadParameter(
                f"{job!r} is not a job number, such as 4711 or 4711_3. List yours with `squeue --me`.", ctx, param
            )
    return jobs


after_option = click.option(
    "--after",
    multiple=True,
    metavar="JOB",
    callback=_job_ids,
    help="Start only after this Slurm job completes successfully. Several: 4711:4712.",
)
runs_option = click.option(
    "--runs",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="HPCDDP_RUNS",
    help="Folder for runs. Default: the sweep's folder.",
)


def submitting(command: Command) -> Command:
    """Where runs go, raw job options, and how far to go. The command gets `options`, SubmitOptions, with those it has itself."""
    return _with_options(
        _folded(command, "options", "SubmitOptions"),
        yes_option,
        click.option("--wait", is_flag=True, help="Show progress until all runs have finished."),
        after_option,
        click.option("--failed", is_flag=True, help="Submit failed runs only, and show why each failed."),
        click.option("--max-jobs", type=click.IntRange(min=1), metavar="N", help="Submit at most N runs now."),
        click.option("--max-running", type=click.IntRange(min=1), metavar="N", help="Run at most N runs at a time."),
        click.option("--serial", "max_running", type=int, flag_value=1, help="Run one at a time, none sharing the network."),
        click.option("--one-allocation", is_flag=True, help="Run all in one job, one after another on the same nodes."),
        click.option("--smoke", is_flag=True, help="First check imports, data and GPUs with a short job on each node type."),
        click.option("--preflight", is_flag=True, help="First find slow nodes with a short job; --one-allocation always does."),
        click.option("--dry-run", is_flag=True, help="Show what would be submitted, without submitting."),
        job_option,
        runs_option,
    )


def remark(text: str) -> None:
    """Something worth knowing that is not the result: on stderr."""
    from hpcddp.core.text import escape_controls

    click.echo(escape_controls(f"! {text}"), err=True)


def print_json(plain: object) -> None:
    """For `--format json`: the whole document on stdout."""
    import json

    click.echo(json.dumps(plain, indent=1, allow_nan=False))


def read_settings() -> Settings:
    """The user's settings; what the environment changed in them is said."""
    from hpcddp.cluster.settings import load_settings

    settings, remarks = load_settings()
    for text in remarks:
        remark(text)
    return settings


def choose_and_remark(sweep: Path, options: PointOptions) -> ChosenPoints:
    """The points of the sweep that the options choose; what the user should know of the choice is said."""
    from hpcddp.submit.choose import choose_points

    return remark_on(choose_points(sweep, options))


def remark_on(points: ChosenPoints) -> ChosenPoints:
    """The same; what the user should know of them is said."""
    for text in points.remarks:
        remark(text)
    return points


def check_sources(sweep: Path | None, points: PointOptions, layout: LayoutOptions, **others: object) -> None:
    """UsageError where flags of a layout (or `others`) come with a sweep, its choices without one, or a key is given twice."""
    from dataclasses import asdict

    keys = [name for name, value in asdict(layout).items() if value]
    flags = [f"--{name.replace('_', '-')}" for name in (*keys, *(name for name, value in others.items() if value))]
    if sweep is not None and flags:
        raise click.UsageError(f"{flags[0]} cannot be used with a sweep file. Use --set or --where.")
    if sweep is None and (points.groups or points.conditions):
        raise click.UsageError("--group and --where choose points of a sweep file. Give a sweep file.")
    refuse_twice([f"layout.{name}" for name in keys], points.settings)


_SWEEP = "hpcddp.sweep.file"
"""In click's own place for what a parameter leaves for its command."""


def named_sweep(ctx: click.Context) -> Path | None:
    """The sweep file that stood for a folder; None where the folder itself was named."""
    found: Path | None = ctx.meta.get(_SWEEP)
    return found


class RunsPath(click.Path):
    """An existing path. A sweep file stands for the folder its runs land in, unless they were sent elsewhere with --runs."""

    def __init__(self, *, file_okay: bool = True) -> None:
        super().__init__(exists=True, file_okay=file_okay, path_type=Path)

    def convert(self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None) -> Any:
        sweep = Path(value)
        if sweep.suffix not in (".yaml", ".yml") or not sweep.is_file():
            return super().convert(value, param, ctx)
        from hpcddp.study.study_folder import usual_folder

        folder = usual_folder(sweep)
        if not folder.is_dir():
            self.fail(f"{sweep}: its folder {folder} does not exist. Submit the sweep, or give its runs' folder.", param, ctx)
        if ctx is not None:
            ctx.meta[_SWEEP] = sweep
        return folder
