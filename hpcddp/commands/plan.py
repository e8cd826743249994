"""`hpcddp plan`: what a sweep comes to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hpcddp.commands.options import choosing, format_option, print_json, read_settings, read_study, remark, requests_for, user_of

if TYPE_CHECKING:
    from hpcddp.plan import PlanRow


@click.command()
@click.argument("sweep", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@choosing
@format_option
def plan(
    sweep: Path,
    cluster: str | None,
    settings: tuple[str, ...],
    groups: tuple[str, ...],
    conditions: tuple[str, ...],
    format_: str,
) -> None:
    """List the points with node hours, files and bytes.

    Nothing is submitted.

    \b
    hpcddp plan jobs/marconi100-resnet50.yaml
    hpcddp plan jobs/rcc-bigmnist.yaml --where 'layout.nodes <= 2' --format json
    """
    from dataclasses import asdict

    from hpcddp.plan import plan_row, remarks, totals, without_folder
    from hpcddp.point import scaling_kind
    from hpcddp.textout import count

    source, profile, points = read_study(sweep, cluster, settings, groups, conditions)
    slurm = profile.backend == "slurm"
    user_settings = read_settings()
    requests = requests_for(source, profile, points, user_of(source, user_settings)) if slurm else {}
    rows = [plan_row(planned, requests.get(planned.point.label), source.sweep.repeat) for planned in points]
    for text in (*remarks(profile, points), *without_folder(points, user_settings.data_roots)):
        remark(text)
    if format_ == "json":
        print_json(
            {
                "schema": 1,
                "sweep": source.name,
                "cluster": profile.name,
                "totals": totals(rows),
                "points": [asdict(r) for r in rows],
            }
        )
        return
    asked = source.sweep
    runs = count(asked.repeat, "run")
    click.echo(f"{source.name} on {profile.name}, {scaling_kind(asked.hold, asked.work)}, {runs} of each point")
    click.echo(_text(rows))


def _text(rows: list[PlanRow]) -> str:
    from hpcddp.plan import node_types, totals
    from hpcddp.textout import count, size, table

    types = node_types(rows)
    header = ("point", *types, "nodes", "ranks", "batch/rank", "batch", "workers", "runs", "node-h", "files", "size", "groups")
    lines = [
        (
            row.label,
            *([row.node_type] if types else []),
            row.nodes,
            row.ranks,
            row.batch_per_gpu,
            row.global_batch,
            row.loader_workers_per_rank,
            row.runs,
            None if row.node_hours is None else f"{row.node_hours:.1f}",
            row.files,
            size(row.bytes),
            " ".join(row.groups),
        )
        for row in rows
    ]
    total = totals(rows)
    hours = "" if total["node_hours"] is None else f", at most {total['node_hours']:.1f} node hours"
    return "\n".join(
        (
            table(header, lines, left=("point", *types, "groups")),
            f"{count(total['points'], 'point')}, {count(total['runs'], 'run')}{hours}, "
            f"{count(total['files'], 'file')}, {size(total['bytes'])}",
        )
    )
