"""`hpcddp plan`: what a sweep comes to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hpcddp.commands.not_in_sweep import not_in_sweep_words
from hpcddp.commands.options import (
    choosing,
    format_option,
    measuring,
    print_json,
    read_settings,
    read_study,
    remark,
    requests_for,
    study_folder,
    user_of,
)

if TYPE_CHECKING:
    from hpcddp.cluster.settings import Settings
    from hpcddp.study.status import RunState
    from hpcddp.submit.plan import PlanRow


@click.command()
@click.argument("sweep", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@choosing
@measuring
@format_option
def plan(
    sweep: Path,
    cluster: str | None,
    settings: tuple[str, ...],
    groups: tuple[str, ...],
    conditions: tuple[str, ...],
    also: dict[str, Any],
    format_: str,
) -> None:
    """List the points with node hours, files and bytes.

    Nothing is submitted. Runs submitted earlier that the sweep does not have any more are named; Slurm is not asked about them.

    \b
    hpcddp plan jobs/marconi100-resnet50.yaml
    hpcddp plan jobs/rcc-bigmnist.yaml --where 'layout.nodes <= 2' --format json
    hpcddp plan jobs/rcc-bigmnist.yaml --group nodes --comm off --comm on
    """
    from dataclasses import asdict

    from hpcddp.core.point import scaling_kind
    from hpcddp.core.text import count
    from hpcddp.submit.plan import baseline_words, beyond_budget, plan_row, remarks, totals, without_folder

    source, profile, points = read_study(sweep, cluster, settings, groups, conditions, also=also)
    asked, slurm = source.sweep, profile.backend == "slurm"
    user_settings = read_settings()
    requests = requests_for(source, profile, points, user_of(source, user_settings)) if slurm else {}
    rows = [plan_row(planned, requests.get(planned.point.label), asked.repeat, asked.slurm.walltime_min) for planned in points]
    beyond = beyond_budget(rows, asked.budget or user_settings.budget)
    gone = _gone(sweep, user_settings)
    words = not_in_sweep_words(gone, sweep)
    for text in (
        *remarks(profile, points),
        *without_folder(points, user_settings.data_roots),
        *beyond,
        *([words] if words else []),
    ):
        remark(text)
    if format_ == "json":
        print_json(
            {
                "schema": 1,
                "sweep": source.name,
                "cluster": profile.name,
                "totals": totals(rows),
                "points": [asdict(r) for r in rows],
                "not_in_sweep": [{"label": state.label, "run": state.run} for state in gone],
            }
        )
        return
    runs, baseline = count(asked.repeat, "run"), baseline_words(points)
    compared = f", relative to {baseline}" if baseline else ""
    click.echo(f"{source.name} on {profile.name}, {scaling_kind(asked.hold, asked.work)}, {runs} of each point{compared}")
    click.echo(_text(rows))


def _gone(sweep: Path, settings: Settings) -> list[RunState]:
    """Submitted earlier, and not in the sweep any more; none where that cannot be read, which the other commands say."""
    import contextlib
    import os

    from hpcddp.core.errors import HpcddpError
    from hpcddp.core.run_root import Study
    from hpcddp.submit.scope import recorded_gone

    root = os.environ.get("HPCDDP_RUNS")
    with contextlib.suppress(HpcddpError):
        return recorded_gone(Study(study_folder(sweep, Path(root) if root else None, settings)), sweep)
    return []


def _text(rows: list[PlanRow]) -> str:
    from hpcddp.core.text import count, size, table
    from hpcddp.submit.plan import hours_of, telling_apart, totals

    keys = telling_apart(rows)
    header = (
        "point",
        *keys,
        "nodes",
        "GPUs",
        "ranks",
        "batch/rank",
        "batch",
        "runs",
        "node-h",
        "GPU-h",
        "files",
        "size",
        "groups",
    )
    lines = [
        (
            row.label,
            *(row.point.get(key) for key in keys.values()),
            row.nodes,
            row.gpus,
            row.ranks,
            row.batch_per_gpu,
            row.global_batch,
            row.runs,
            *(None if hours is None else f"{hours:.1f}" for hours in (row.node_hours, row.gpu_hours)),
            row.files,
            size(row.bytes),
            " ".join(row.groups),
        )
        for row in rows
    ]
    total, most = totals(rows), hours_of(rows)
    hours = "" if most is None else f", at most {most}"
    return "\n".join(
        (
            table(header, lines, left=("point", *keys, "groups")),
            f"{count(total['points'], 'point')}, {count(total['runs'], 'run')}{hours}, "
            f"{count(total['files'], 'file')}, {size(total['bytes'])}",
        )
    )
