"""submitit's executor on hpcddp's profiles: any function as a job, whose script is the cluster's template."""

from __future__ import annotations

import os
import re
import shlex
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from submitit.core.core import EquivalenceDict, Job, R
from submitit.core.utils import DelayedSubmission, JobPaths, UncompletedJobError
from submitit.slurm.slurm import SlurmExecutor, SlurmJob

from hpcddp.backends.base import unique_name
from hpcddp.backends.slurm import SlurmBackend
from hpcddp.cluster.ownership import check_ownership, trusted_gids
from hpcddp.cluster.settings import load_settings
from hpcddp.core.bootstrap import ownership_problems
from hpcddp.core.errors import HpcddpError, RefusedError
from hpcddp.core.launcher import trust_option
from hpcddp.core.records import not_for_others, write_file
from hpcddp.core.run_root import Study
from hpcddp.script.render import ScriptLaunch, render
from hpcddp.script.resources import usual_warning_s
from hpcddp.submit.choose import pick_cluster
from hpcddp.submit.function_request import NAMES, function_plan, in_parameters, own_modules, search_path
from hpcddp.submit.one_job import send_script
from hpcddp.submit.snapshot import take_snapshot
from hpcddp.submit.submission_plan import SubmissionPlan, check_plan

FOLDER = "functions"
"""Of the run root: where jobs leave logs and results if the user does not say."""


class FunctionJob(SlurmJob[R]):
    """submitit's, which unpickles nothing from a folder that somebody else may write, and finds the task that failed first."""

    def submission(self) -> DelayedSubmission:
        self._check_folder()
        return super().submission()

    def results(self) -> list[R]:
        if error := self._raised():
            raise error
        return super().results()

    def exception(self) -> UncompletedJobError | None:
        return self._raised() or super().exception()

    def _raised(self) -> UncompletedJobError | None:
        """Where tasks left nothing, the error of the first that left one: the others were ended for it."""
        self.wait()
        left = [task for task in self._sub_jobs if task.paths.result_pickle.exists()]
        if len(left) == len(self._sub_jobs):
            return None
        return next((error for task in left if (error := task.exception())), None)

    def _get_outcome_and_result(self) -> tuple[str, Any]:
        self._check_folder()
        return super()._get_outcome_and_result()

    def _check_folder(self) -> None:
        base = JobPaths.get_first_id_independent_folder(self.paths._folder)
        own = [folder for folder in (self.paths.folder,) if folder != base and folder.exists()]
        if found := list(ownership_problems(base, own, trusted_gids())):
            raise HpcddpError(in_parameters("\n".join(found)))


class ClusterExecutor(SlurmExecutor):
    """Runs functions on a cluster that has a profile: submitit's SlurmExecutor with the script, checks and words of hpcddp.

    `submit()`, `map_array()`, `submit_array()`, `batch()`, the jobs they give, checkpoints: submitit's own. A job has a task
    for each GPU, `nodes * gpus_per_node`, so its `results()` are a list of as many values; each task has the variables that
    torch.distributed reads (RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, ...).

    What the job runs is copied at submission into `folder/.code`: submitit, the job side of hpcddp, and every module that is
    loaded and lies in no environment, its whole package; functions of `__main__` and lambdas are in the pickle. Installed
    packages are the compute environment's.

    What is unpickled: in the job, `%j_submitted.pkl` of `folder`, which this process wrote; in `result()`, `results()` and
    `exception()`, `%j_%t_result.pkl` there, which the user's own job wrote. A folder of somebody else, or one that others may
    write, is refused at submission, in the job and before a result is read.
    """

    job_class = FunctionJob

    def __init__(
        self,
        folder: str | Path | None = None,
        max_num_timeout: int = 3,
        max_pickle_size_gb: float = 1.0,
        python: str | None = None,
        cluster: str | None = None,
    ) -> None:
        """`cluster`: by name or file, else this machine's; `python`: in place of the profile's. The others are submitit's."""
        self.cluster = cluster
        self._settings = load_settings()[0]
        if folder is None:
            folder = Path(os.environ.get("HPCDDP_RUNS") or self._settings.run_root_here() or "jobs") / FOLDER
        super(SlurmExecutor, self).__init__(folder, max_num_timeout, max_pickle_size_gb)  # a machine without Slurm may make one
        self._profile = pick_cluster(cluster)
        self._planned: SubmissionPlan | None = None
        self._backend = SlurmBackend(self._profile.slurm)
        self._throttling = 1 / self._profile.slurm.submissions_per_s if self._profile.slurm.submissions_per_s else 0.0
        self.python = self._profile.compute.python if python is None else python

    @classmethod
    def name(cls) -> str:
        return "hpcddp"

    @classmethod
    def affinity(cls) -> int:
        """Below that of submitit's own, which AutoExecutor takes unless it is given a cluster."""
        return min(1, super().affinity())

    @classmethod
    def _equivalence_dict(cls) -> EquivalenceDict:
        return EquivalenceDict(
            name="name",
            timeout_min="walltime_min",
            mem_gb="mem_mb",
            nodes="nodes",
            cpus_per_task="cpus_per_task",
            gpus_per_node="gpus_per_node",
            tasks_per_node="tasks_per_node",
        )

    @classmethod
    def _valid_parameters(cls) -> set[str]:
        return set(NAMES)

    def _convert_parameters(self, params: dict[str, Any]) -> dict[str, Any]:
        converted = super(SlurmExecutor, self)._convert_parameters(params)
        return converted | ({"mem_mb": round(params["mem_gb"] * 1024)} if "mem_gb" in params else {})

    def _internal_update_parameters(self, **kwargs: Any) -> None:
        """UsageError for what is no parameter, or what the cluster would refuse."""
        self._planned = function_plan(self.cluster, {**self.parameters, **kwargs}, self._settings)
        self.parameters.update(kwargs)

    @property
    def _plan(self) -> SubmissionPlan:
        """What a job asks for."""
        if self._planned is None:
            self._planned = function_plan(self.cluster, self.parameters, self._settings)
        return self._planned

    def _num_tasks(self) -> int:
        (planned,) = self._plan.points
        return planned.point.ranks

    def _make_submission_file_text(self, command: str, uid: str) -> str:
        return self._script(command, self.parameters.get("name") or "function", "%j")

    def _internal_process_submissions(self, delayed_submissions: list[DelayedSubmission]) -> list[Job[Any]]:
        """One job for one function, else arrays as long as the cluster takes them."""
        code, jobs = self._prepare(), list[Job[Any]]()
        size = max(1, self._backend.max_array_size) if len(delayed_submissions) > 1 else 1
        for start in range(0, len(delayed_submissions), size):
            try:
                jobs += self._submit_part(delayed_submissions[start : start + size], code)
            except HpcddpError as error:
                done = f"\n{len(jobs)} of {len(delayed_submissions)} are submitted, to {jobs[-1].job_id}" if jobs else ""
                raise error.reworded(f"{in_parameters(str(error))}{done}") from error
        return jobs

    @property
    def _base(self) -> Path:
        """The folder without what differs from job to job."""
        return JobPaths.get_first_id_independent_folder(self.folder)

    def _prepare(self) -> Path:
        """Checks request and folder; the code that the jobs are to run."""
        try:
            check_plan(self._plan)
            self._backend.check_folder(Path(re.sub(r"%[jtAa]", "", str(self.folder))), self._plan.account)
            trusted = trusted_gids(self._settings)
            with not_for_others(trusted):
                self._base.mkdir(parents=True, exist_ok=True)
                check_ownership(Study(self._base), trusted)
                return take_snapshot(Study(self._base), own_modules(), search_path(), trusted)
        except HpcddpError as error:
            raise error.reworded(in_parameters(str(error))) from error

    def _submit_part(self, submissions: Sequence[DelayedSubmission], code: Path) -> list[Job[Any]]:
        """A job, or an array of them. Pickles are there before sbatch is called: a job whose number is lost finds its own."""
        token, tag = uuid.uuid4().hex[:8], "%j" if len(submissions) == 1 else "%A_%a"
        name = unique_name(self._title(submissions), token)
        files = [self._base / f"{token}_{number}.pkl" for number in range(len(submissions))]
        script = self._base / f".submission_file_{token}.sh"
        with not_for_others(trusted_gids(self._settings)):
            try:
                self._dump(submissions, files)
                write_file(script, self._script(self._command(code, token), name, tag))
                number = self._send(name, tag, len(submissions), script)
            except Exception as error:
                if isinstance(error, RefusedError) or not isinstance(error, HpcddpError):  # else it may be queued
                    for file in (*files, script):
                        file.unlink(missing_ok=True)
                raise
            ids = [number] if len(submissions) == 1 else [f"{number}_{task}" for task in range(len(submissions))]
            jobs = [FunctionJob[Any](self.folder, job, tasks=range(self._num_tasks())) for job in ids]
            jobs[0].paths.move_temporary_file(script, "submission_file")
            for job, file in zip(jobs, files, strict=True):
                job.paths.move_temporary_file(file, "submitted_pickle")
        return list(jobs)

    def _title(self, submissions: Sequence[DelayedSubmission]) -> str:
        function = submissions[0].function
        return str(self.parameters.get("name") or getattr(function, "__name__", type(function).__name__))

    def _dump(self, submissions: Sequence[DelayedSubmission], files: Sequence[Path]) -> None:
        (request,) = self._plan.requests.values()
        for delayed, file in zip(submissions, files, strict=True):
            delayed.set_timeout(request.walltime_min, self.max_num_timeout)
            delayed.dump(file)
            size_gb = file.stat().st_size / 1024**3 * len(submissions)
            if size_gb > self.max_pickle_size_gb:
                raise RuntimeError(
                    f"functions and arguments take {size_gb:.2f} GB in pickles, more than {self.max_pickle_size_gb} GB: keep "
                    "large data in files, or raise executor.max_pickle_size_gb"
                )

    def _command(self, code: Path, token: str) -> str:
        """Shell text of a task."""
        trust, here = trust_option(trusted_gids(self._settings)), ".".join(map(str, sys.version_info[:2]))
        own = ["hpcddp.backends.function_task", str(self._base), str(self.folder), token, here, *trust[1:]]
        words = [*trust, "--module", *own]
        return f"{self.python} -u {shlex.join([str(code / 'bootstrap.py'), *words])}"

    def _script(self, command: str, name: str, tag: str) -> str:
        (planned,), (request,) = self._plan.points, self._plan.requests.values()
        paths, run_root = JobPaths(self.folder), self._settings.run_root_here()
        launch = ScriptLaunch(
            command=command,
            title=name,
            output=str(paths.stdout).replace("%j", tag),
            error=str(paths.stderr).replace("%j", tag),
            run_root=None if run_root is None else str(run_root),
            folders=("$HPCDDP_RUNS", "$PWD", str(self._base)),
        )
        request = replace(request, name=name, warning_s=usual_warning_s(request.walltime_min))
        return render(self._profile, planned.point, request, launch)

    def _send(self, name: str, tag: str, tasks: int, script: Path) -> str:
        paths = JobPaths(self.folder)
        logs = [str(path).replace("%j", tag).replace("%t", "0") for path in (paths.stdout, paths.stderr)]
        array = [f"--array=0-{tasks - 1}%{min(tasks, self.parameters.get('array_parallelism') or tasks)}"] if tasks > 1 else []
        self._throttle()
        self._last_job_submitted = time.time()
        return send_script(self._plan, name, script, [f"--output={logs[0]}", f"--error={logs[1]}", *array])


def make_executor(cluster: str | None, folder: str | Path | None, parameters: dict[str, Any]) -> ClusterExecutor:
    """What `hpcddp.executor` gives."""
    of_class = {name: parameters.pop(name) for name in ("max_num_timeout", "max_pickle_size_gb", "python") if name in parameters}
    executor = ClusterExecutor(folder, cluster=cluster, **of_class)
    executor.update_parameters(**parameters)
    return executor
