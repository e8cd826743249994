"""`hpcddp logs`: what the ranks of a run and its batch script wrote."""

from __future__ import annotations

import re
from pathlib import Path

import click


@click.command()
@click.argument("point", type=click.Path(path_type=Path))
@click.option("--rank", type=click.IntRange(min=0), help="Default: the rank at fault, else rank 0.")
def logs(point: Path, rank: int | None) -> None:
    """Print the logs of a point's newest job.

    POINT is a point's folder, or the folder of one of its runs. The beginning of a point's name is enough if it is unique. With
    the folder of the jobs of `hpcddp data`, the newest job's logs are printed. Each log follows its path; a long one is
    cut to its end.

    \b
    hpcddp logs jobs/rcc-bigmnist/n04-g4
    hpcddp logs jobs/rcc-bigmnist/n04-g4-b32-3fa9c1d2e07b/r2 --rank 3
    hpcddp logs jobs/data
    """
    from hpcddp.core.run_root import Study, point_folder
    from hpcddp.core.text import escape_controls
    from hpcddp.study.data_jobs import data_jobs
    from hpcddp.study.logs import job_logs, shown

    folder = point_folder(point).resolve()
    of_data = data_jobs(Study(folder))
    for file in job_logs(Study(folder), of_data[-1].job, rank or 0) if of_data else _logs_of_point(folder, rank):
        click.echo(escape_controls(shown(file)))


def _logs_of_point(folder: Path, rank: int | None) -> list[Path]:
    """By default those of the rank at fault."""
    from hpcddp.core.run_root import Study
    from hpcddp.study.logs import job_logs, newest_job, rank_at_fault

    one = re.fullmatch(r"r(\d+)", folder.name)
    label = folder.parent if one else folder
    study = Study(label.parent)
    run, job = newest_job(study, label.name, int(one[1]) if one else None)
    if (study.job_dir(job) / "request.json").is_file():
        from hpcddp.backends.sagemaker import save_log

        save_log(study.job_dir(job))
    which = rank_at_fault(study, label.name, run, job) if rank is None else rank
    return job_logs(study, job, which)
