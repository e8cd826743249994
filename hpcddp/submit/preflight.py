"""`hpcddp submit --preflight`: a short job that measures nodes before anything else is submitted, and what follows from it."""

from __future__ import annotations

import dataclasses

from hpcddp.backends.base import Backend
from hpcddp.core.errors import HpcddpError
from hpcddp.core.preflight_judgement import preflight_words, slow_hosts
from hpcddp.core.preflight_record import PreflightRecord
from hpcddp.core.run_root import Study
from hpcddp.study.study_records import read_record
from hpcddp.submit.preflight_job import preflight_submission
from hpcddp.submit.short_jobs import run_short_jobs
from hpcddp.submit.submission_plan import SubmissionPlan, make_submissions

WALLTIME_MIN = 10
"""Torch may take minutes to import; measuring takes seconds."""


def run_preflight(study: Study, plan: SubmissionPlan, backend: Backend) -> PreflightRecord:
    """Submits the job, on the largest layout with the spare nodes, and waits for it; HpcddpError where it left no record."""
    study = Study(study.folder.absolute())
    largest = max((planned.point for planned in plan.points), key=lambda point: (point.layout.nodes, point.ranks))
    spare = plan.source.sweep.slurm.spare_nodes
    wide = {
        label: dataclasses.replace(
            request, nodes=request.nodes + spare, launcher="direct", walltime_min=min(WALLTIME_MIN, request.walltime_min)
        )
        for label, request in plan.requests.items()
    }
    (run,) = make_submissions(study, dataclasses.replace(plan, requests=wide), backend.name, [(largest, 1)])
    submission = dataclasses.replace(preflight_submission(run), walltime_min=WALLTIME_MIN)
    ((job, state),) = run_short_jobs([submission], backend)
    record = read_record(PreflightRecord, study.preflight_file(job, 0))
    if record is None:
        why = state.detail or "it left no result"
        raise HpcddpError(f"preflight: job {job} {state.phase}: {why}; see {study.job_dir(job)}")
    return record


def preflight_text(record: PreflightRecord, plan: SubmissionPlan) -> str:
    """What it found, and what to do about slow nodes where the user has not said that they may be left out."""
    line = f"preflight    job {record.job}   {preflight_words(record)}"
    hosts = ",".join(slow_hosts(record.slow))
    if not hosts:
        return line
    if plan.source.sweep.slurm.spare_nodes:
        return f"{line}\n             no job is given {hosts}: slurm.spare_nodes is {plan.source.sweep.slurm.spare_nodes}"
    return f"{line}\n             leave them out: --set slurm.exclude={hosts}, or always: --set slurm.spare_nodes=1"


def without_slow_nodes(plan: SubmissionPlan, record: PreflightRecord) -> SubmissionPlan:
    """The plan whose jobs are not given the slow nodes, where the sweep has spare ones; else as it is."""
    hosts = slow_hosts(record.slow)
    if not hosts or not plan.source.sweep.slurm.spare_nodes:
        return plan
    excluding = {
        label: dataclasses.replace(request, exclude=",".join([*([request.exclude] if request.exclude else []), *hosts]))
        for label, request in plan.requests.items()
    }
    return dataclasses.replace(plan, requests=excluding)
