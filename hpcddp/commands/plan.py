"""`hpcddp plan`: what a sweep comes to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hpcddp.commands.options import (
    choose_and_remark,
    choosing,
    format_option,
    measuring,
    points_option,
    print_json,
    read_settings,
    remark,
)

if TYPE_CHECKING:
    from hpcddp.core.run_root import Study
    from hpcddp.study.status import RunState
    from hpcddp.submit.options import PointOptions


@click.command()
@click.argument("sweep", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@choosing
@measuring
@points_option
@click.option("--measured", metavar="RATE@NxG", help="Predict from RATE samples/s on N nodes of G GPUs, as in 665@1x4.")
@format_option
def plan(sweep: Path, points: PointOptions, each_point: bool, measured: str | None, format_: str) -> None:
    """Show what a sweep costs: its groups with points, runs and node hours.

    A group's line covers all of its points, including those shared with an earlier group. --points lists each point with its
    files and bytes. Nothing is submitted, and Slurm is not queried. Earlier runs that the sweep no longer contains are named.
    Where a node was measured, or --measured gives its rate, the samples/s of more nodes are predicted.

    \b
    hpcddp plan jobs/marconi100-resnet50.yaml
    hpcddp plan jobs/rcc-bigmnist.yaml --where 'layout.nodes <= 2' --format json
    hpcddp plan jobs/rcc-bigmnist.yaml --group nodes --comm off --comm on
    hpcddp plan jobs/marconi100-resnet50.yaml --group nodes --measured 665@1x4
    """
    from textwrap import fill

    from hpcddp.core.point import scaling_kind
    from hpcddp.core.run_root import Study
    from hpcddp.core.text import count
    from hpcddp.predict.expected import Predictions
    from hpcddp.predict.text import expected_plain, expected_text, too_long, with_given
    from hpcddp.study.scope import not_in_sweep_words
    from hpcddp.study.study_folder import usual_folder
    from hpcddp.submit.choose import job_requests
    from hpcddp.submit.plan import beyond_budget, cost_words, plan_plain, plan_row, plan_text, totals_words
    from hpcddp.submit.plan_groups import WIDTH, Sums, groups_text
    from hpcddp.submit.remarks import baseline_words, missing_data, remarks, without_folder

    chosen = choose_and_remark(sweep, points)
    name, wanted, profile = chosen.source.name, chosen.source.sweep, chosen.profile
    settings = read_settings()
    requests = job_requests(chosen, settings)
    rows = [plan_row(each, requests.get(each.point.label), wanted.repeat, wanted.slurm.walltime_min) for each in chosen.points]
    beyond = beyond_budget(rows, wanted.budget or settings.budget)
    study = Study(usual_folder(sweep))
    gone = _gone(study, sweep)
    predictions = Predictions(study, chosen.source, profile, chosen.points)
    predictions = predictions if measured is None else with_given(predictions, measured)
    expected = list(predictions.all())
    for text in (
        *remarks(profile, chosen.points),
        *without_folder(chosen.points, settings.data_roots),
        *missing_data(chosen.points, settings.data_roots, runs_here=profile.backend == "local", prepares=False),
        *beyond,
        *too_long(expected, wanted.slurm.walltime_min),
        *filter(None, [not_in_sweep_words(gone, sweep)]),
    ):
        remark(text)
    if format_ == "json":
        runs_gone = [{"label": state.label, "run": state.run} for state in gone]
        more = {"not_in_sweep": runs_gone, "expected": expected_plain(expected, wanted.repeat)}
        print_json({"schema": 1, "sweep": name, "cluster": profile.name, **plan_plain(rows), **more})
        return
    runs, baseline = count(wanted.repeat, "run"), baseline_words(chosen.points)
    compared = f", relative to {baseline}" if baseline else ""
    head = f"{name} on {profile.name}, {scaling_kind(wanted.hold, wanted.work)}, {runs} of each point{compared}"
    sums: Sums = {"points": lambda _: 1, "runs": lambda row: row.runs, "node h": lambda row: row.node_hours}
    total, on_disk = totals_words(rows)
    total += cost_words(profile, rows)
    once = "; a shared point is counted once" if any(len(row.groups) > 1 for row in rows) else ""
    screen = f"{fill(head, WIDTH)}\n{groups_text(chosen.source.groups, rows, sums)}\n\n{total}\n{on_disk}{once}"
    click.echo(f"{head}\n{plan_text(rows)}{cost_words(profile, rows)}" if each_point else screen)
    given = (("--group", name) for name in points.groups), (("--where", text) for text in points.conditions)
    if text := expected_text(predictions, expected, [word for pairs in given for pair in pairs for word in pair]):
        click.echo(f"\n{text}")


def _gone(study: Study, sweep: Path) -> list[RunState]:
    """Runs submitted earlier that are not in the sweep any more; none where that cannot be read, which other commands say."""
    import contextlib

    from hpcddp.core.errors import HpcddpError
    from hpcddp.study.scope import recorded_runs_gone

    with contextlib.suppress(HpcddpError):
        return recorded_runs_gone(study, sweep)
    return []
