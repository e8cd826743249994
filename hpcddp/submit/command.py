"""`hpcddp submit -- COMMAND`: a command of the user's own as one job, which each rank runs."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcddp.backends.base import unique_name
from hpcddp.backends.slurm import SlurmBackend
from hpcddp.cluster.ownership import trusted_gids
from hpcddp.cluster.settings import Settings
from hpcddp.core.errors import FAILED, RefusedError
from hpcddp.core.records import not_for_others, write_file
from hpcddp.study.diagnosis import never_started
from hpcddp.study.study_folder import shell_path
from hpcddp.submit.choose import ChosenPoints
from hpcddp.submit.one_job import is_wanted, send_script, wait_for_job
from hpcddp.submit.options import Console, SubmitOptions
from hpcddp.submit.overview import submitted_words
from hpcddp.submit.remarks import remarks
from hpcddp.submit.scripts_by_hand import command_name, script_of_command
from hpcddp.submit.submission_plan import SubmissionPlan, plan_submission

FOLDER = "commands"
"""Of the run root: scripts and logs of commands, a folder for each job."""


@dataclass(frozen=True, kw_only=True)
class CommandJob:
    """A job that is to run a command."""

    plan: SubmissionPlan
    script: str
    """As `hpcddp render` prints it."""
    name: str
    """The job's, unique: what became of it is found by it where Slurm's answer is lost."""
    folder: Path
    """Its script and its log."""

    @property
    def script_file(self) -> Path:
        return self.folder / "job.sbatch"

    @property
    def log(self) -> Path:
        return self.folder / "job.log"


def command_job(points: ChosenPoints, settings: Settings, words: Sequence[str], options: SubmitOptions) -> CommandJob:
    """The job of the command in the only point's layout; UsageError for what the cluster would refuse."""
    name = unique_name(command_name(words), secrets.token_hex(4))
    root = options.runs or settings.run_root_here() or Path("jobs")
    return CommandJob(
        plan=plan_submission(points, settings, options),
        script=script_of_command(points, settings, words),
        name=name,
        folder=root.absolute() / FOLDER / name,
    )


def submit_command(job: CommandJob, options: SubmitOptions, console: Console) -> int:
    """Shows the job, submits it, says where it is to be found, and waits for it as far as the options say; the exit code."""
    backend = SlurmBackend(job.plan.profile.slurm)
    for text in remarks(job.plan.profile, job.plan.points):
        console.remark(text)
    more = "; `hpcddp render` prints the script"
    if not is_wanted(job.plan, options, console, lambda: backend.check_folder(job.folder, job.plan.account), more):
        return 0
    number = _send(job)
    console.echo(submitted_words([number], job.plan.options))
    console.echo(f"script       {shell_path(job.script_file)}\noutput       {shell_path(job.log)}")
    console.progress(f"squeue -j {number}; tail -F {shell_path(job.log)}; scancel {number}")
    return _wait(number, job, backend, console) if options.wait else 0


def _send(job: CommandJob) -> str:
    """The job's id. Name, log and folder are options of sbatch, so that the script is as `render` prints it."""
    with not_for_others(trusted_gids(job.plan.settings)):
        job.folder.mkdir(parents=True)
        write_file(job.script_file, job.script)
    after = job.plan.options.after
    waits = [f"--dependency=afterok:{':'.join(after)}", "--kill-on-invalid-dep=yes"] if after else []
    try:
        return send_script(job.plan, job.name, job.script_file, [f"--output={job.log}", *waits])
    except RefusedError:
        shutil.rmtree(job.folder)
        raise


def _wait(number: str, job: CommandJob, backend: SlurmBackend, console: Console) -> int:
    state = wait_for_job(number, job.name, backend, console, f"squeue -j {number}")
    never = job.plan.options.after and state.word == "CANCELLED" and state.by is None and state.nodes is None
    why = never_started(job.plan.options.after).sentence if never else state.detail
    console.echo(f"{state.phase}{f': {why}' if why else ''}")
    return 0 if state.phase == "done" else FAILED
