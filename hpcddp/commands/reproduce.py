"""`hpcddp reproduce`: a study's sweep, to be run on another cluster, and how far both agree."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hpcddp.commands import complete
from hpcddp.commands.options import choose_and_remark, read_settings, remark, set_option, submitting, threshold_option
from hpcddp.commands.runs_path import RunsPath
from hpcddp.commands.submit import submit_chosen
from hpcddp.core.records import write_file

if TYPE_CHECKING:
    from hpcddp.cluster.settings import Settings
    from hpcddp.share.reproduce import TransplantedSweep
    from hpcddp.submit.choose import ChosenPoints
    from hpcddp.submit.options import SubmitOptions


@click.command()
@click.argument("study", type=RunsPath())
@click.option(
    "--cluster",
    required=True,
    metavar="NAME|FILE",
    shell_complete=complete.clusters,
    help="The profile of the cluster to run it on.",
)
@set_option
@click.option(
    "-o", "output", type=click.Path(dir_okay=False, path_type=Path), help="The file; by default STUDY-CLUSTER.yaml here."
)
@click.option("--submit", "submits", is_flag=True, help="Submit it, and compare both studies when all runs are over.")
@threshold_option("With --submit: what still agrees.")
@submitting
@click.pass_context
def reproduce(
    ctx: click.Context,
    /,
    study: Path,
    cluster: str,
    settings: tuple[str, ...],
    output: Path | None,
    submits: bool,
    threshold: float,
    job_options: tuple[str, ...],
    options: SubmitOptions,
) -> None:
    """Write a study's sweep for another cluster, and with --submit run it.

    Says what of it the cluster would refuse, and how to go on. STUDY is a folder or a bundle.

    With --submit, what is missing of it is submitted, as `hpcddp submit` would, which the options from --runs on are for; with
    --wait, or when it is given again once all runs are over, it compares both studies and says how far they agree. Then it ends
    as `hpcddp compare` does: with 4 where a point is slower by more than the threshold.

    \b
    hpcddp reproduce scaling.tar.gz --cluster rcc
    hpcddp reproduce scaling.tar.gz --cluster rcc --set layout.node_type=a40
    hpcddp reproduce scaling.tar.gz --cluster rcc --submit --wait
    """
    from dataclasses import replace

    from hpcddp.cluster.profile_file import load_profile
    from hpcddp.cluster.settings import load_settings
    from hpcddp.share.reproduce import transplant
    from hpcddp.study.study_folder import study_folder
    from hpcddp.submit.options import SubmitOptions

    if not submits and (job_options or replace(options, runs=None) != SubmitOptions()):
        raise click.UsageError("options of submission, such as --wait and -y, go with --submit")
    profile = load_profile(cluster)
    sweep = transplant(study, cluster, settings)
    for each in sweep.dropped:
        remark(f"left out, as it means something on its own cluster only: {each}")
    file = output or Path(f"{sweep.study}-{profile.name}.yaml")
    _write(sweep, file, is_mine=submits and not settings)
    own = load_settings()[0] if submits else read_settings()  # submit says what of them the environment changed
    there = study_folder(file, options.runs, own)
    by_hand = f"{file} is to be looked at first. Then:\nhpcddp submit {file}\nhpcddp compare {study} {there}"
    click.echo(f"{file}, as it will run" if submits else by_hand)
    chosen = _fitting(file, profile.name, job_options, own)
    if len(chosen.points) != sweep.points:
        remark(f"the study has {sweep.points} points, this sweep {len(chosen.points)}: only its last submission's is recorded")
    if submits:
        ctx.exit(_run_and_compare(study, there, chosen, options, threshold / 100))


def _write(sweep: TransplantedSweep, file: Path, *, is_mine: bool) -> None:
    """Writes the sweep's file. `is_mine`: one that is there already is taken as it is, if an earlier `reproduce` wrote it."""
    from hpcddp.core.errors import UsageError

    try:
        write_file(file, sweep.text, "x")
    except FileExistsError as error:
        text = file.read_text(encoding="utf-8", errors="replace")
        if not is_mine or not text.startswith(sweep.head):
            raise UsageError(f"{file} is already there; give -o another name, or remove it first") from error
        if text != sweep.text:
            remark(f"{file} was changed since it was written, and is taken as it is")


def _fitting(file: Path, cluster: str, job_options: tuple[str, ...], own: Settings) -> ChosenPoints:
    """The points of the sweep; UsageError for what the cluster would refuse of them."""
    from hpcddp.core.errors import UsageError
    from hpcddp.submit.choose import job_requests
    from hpcddp.submit.options import PointOptions
    from hpcddp.submit.remarks import without_folder

    try:
        chosen = choose_and_remark(file, PointOptions(job_options=job_options))
        job_requests(chosen, own)
    except UsageError as error:
        raise UsageError(f"{error}\n{file} does not fit {cluster} as it is: edit it") from error
    for sentence in without_folder(chosen.points, own.data_roots):
        remark(sentence)
    return chosen


def _run_and_compare(study: Path, there: Path, chosen: ChosenPoints, options: SubmitOptions, threshold: float) -> int:
    """Submits what is missing; where all runs are over, says how far both agree. The exit code."""
    from hpcddp.core.errors import UsageError
    from hpcddp.core.run_root import Study
    from hpcddp.study.status import run_states

    code = submit_chosen(chosen, options)
    if options.dry_run or not (options.wait or all(state.phase == "done" for state in run_states(Study(there)))):
        return code
    try:
        agreed = _report_agreement(study, there, threshold)
    except UsageError as error:
        if not code:
            raise
        remark(str(error))
        return code
    return code or agreed


def _report_agreement(study: Path, there: Path, threshold: float) -> int:
    from hpcddp.analysis.comparison.agreement import agreement_text
    from hpcddp.analysis.comparison.compare import compare
    from hpcddp.analysis.comparison.text import to_text
    from hpcddp.core.errors import DIFFERS, INCOMPLETE
    from hpcddp.core.run_root import Study, single_study
    from hpcddp.core.text import escape_controls
    from hpcddp.share.unbundle import opened_study

    with opened_study(study) as root:
        found = compare(single_study(root), Study(there), threshold, (str(study), str(there)))
    click.echo(escape_controls(f"\n{to_text(found)}\n\n{agreement_text(found)}"))
    return DIFFERS if found.regressions else INCOMPLETE if found.unfinished else 0
