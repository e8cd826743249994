"""The job side of a function of the user's own, and the names of submitit's that are relied upon."""

from __future__ import annotations

import inspect
import signal
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from submitit.core import core, job_environment, submission, utils
from submitit.core.utils import DelayedSubmission, JobPaths
from submitit.local import local
from submitit.slurm import slurm

from hpcddp.backends.function_task import FunctionEnvironment, other_python
from hpcddp.backends.local_ranks import Ranks
from hpcddp.backends.local_runner import _Executor
from hpcddp.submit.executor import ClusterExecutor, FunctionJob


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> FunctionEnvironment:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    return FunctionEnvironment()


class Checkpointed:
    def __init__(self) -> None:
        self.checkpoints = 0

    def __call__(self) -> None: ...

    def checkpoint(self) -> DelayedSubmission:
        self.checkpoints += 1
        return DelayedSubmission(self)


@pytest.fixture(autouse=True)
def own_signals() -> Iterator[None]:
    """Handlers are put back, and SIGTERM is not ignored by who comes later, in this process or one that it starts."""
    handlers = {name: signal.getsignal(name) for name in (signal.SIGUSR2, signal.SIGTERM, signal.SIGCONT)}
    yield
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR2})
    for name, handler in handlers.items():
        signal.signal(name, handler)


@pytest.fixture
def delayed() -> DelayedSubmission:
    """May time out three times."""
    delayed = DelayedSubmission(Checkpointed())
    delayed.set_timeout(5, max_num_timeout=3)
    return delayed


def test_a_signal_before_the_handler_is_not_lost(
    environment: FunctionEnvironment, delayed: DelayedSubmission, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits until submitit can write a checkpoint; without that it would end the rank."""
    requeued: list[int] = []
    monkeypatch.setattr(environment, "_requeue", requeued.append)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
    signal.raise_signal(signal.SIGUSR2)
    with pytest.raises(SystemExit):
        environment._handle_signals(JobPaths(tmp_path, "7"), delayed)
    assert (delayed.function.checkpoints, requeued) == (1, [2])  # type: ignore[attr-defined]
    assert (tmp_path / "7_submitted.pkl").is_file()


@pytest.mark.parametrize(("rank", "checkpoints"), [("0", 1), ("1", 0)])
def test_a_preempted_function_writes_its_checkpoint(  # noqa: PLR0913, PLR0917 - three fixtures and a table
    environment: FunctionEnvironment,
    delayed: DelayedSubmission,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rank: str,
    checkpoints: int,
) -> None:
    monkeypatch.setenv("SLURM_PROCID", rank)
    monkeypatch.setattr(environment, "_requeue", lambda countdown: pytest.fail("the job requeues itself"))
    environment._handle_signals(JobPaths(tmp_path, "7"), delayed)
    for _ in range(2):
        signal.raise_signal(signal.SIGTERM)
    assert delayed.function.checkpoints == checkpoints  # type: ignore[attr-defined]
    assert (tmp_path / "7_submitted.pkl").is_file() == bool(checkpoints)


def test_where_no_scontrol_is_the_batch_script_requeues(
    environment: FunctionEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HPCDDP_REQUEUE", str(tmp_path / "requeue"))
    environment._requeue(1)
    assert (tmp_path / "requeue").exists()
    monkeypatch.delenv("HPCDDP_REQUEUE")
    with pytest.raises(FileNotFoundError):
        environment._requeue(1)
    scontrol = tmp_path / "scontrol"
    scontrol.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/called\n')
    scontrol.chmod(0o755)
    environment._requeue(1)
    assert (tmp_path / "called").read_text() == "requeue 7\n"


def test_another_python_is_said() -> None:
    assert "The function was pickled by Python 3.12 and runs on 3.10" in other_python("3.12", "3.10")


SIGNATURES = {
    core.PicklingExecutor._submit_command: "(self, command: str) -> submitit.core.core.Job[typing.Any]",
    core.PicklingExecutor._internal_process_submissions: (
        "(self, delayed_submissions: List[submitit.core.utils.DelayedSubmission]) -> List[submitit.core.core.Job[typing.Any]]"
    ),
    utils.DelayedSubmission.__init__: "(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> None",
    utils.DelayedSubmission.set_timeout: "(self, timeout_min: int, max_num_timeout: int) -> None",
    slurm.SlurmExecutor._internal_update_parameters: "(self, **kwargs: Any) -> None",
    slurm.SlurmExecutor._convert_parameters: "(self, params: Dict[str, Any]) -> Dict[str, Any]",
    slurm.SlurmExecutor._make_submission_file_text: "(self, command: str, uid: str) -> str",
    slurm.SlurmExecutor._num_tasks: "(self) -> int",
    slurm.SlurmJobEnvironment._handle_signals: (
        "(self, paths: submitit.core.utils.JobPaths, submission: submitit.core.utils.DelayedSubmission) -> None"
    ),
    slurm.SlurmJobEnvironment._requeue: "(self, countdown: int) -> None",
    core.Job._get_outcome_and_result: "(self) -> Tuple[str, Any]",
    submission.process_job: "(folder: Union[pathlib.Path, str]) -> None",
    local.LocalExecutor._submit_command: "(self, command: str) -> submitit.local.local.LocalJob[+R]",
    local.Controller.start_tasks: "(self) -> None",
    local.Controller.kill_tasks: "(self) -> None",
    local.Controller._forward_signal: "(self, signum: signal.Signals, *args: Any) -> None",
}


def test_version_is_the_one_that_was_read() -> None:
    """A new version is read before it is allowed."""
    assert version("submitit").startswith("1.5.")


@pytest.mark.parametrize("method", SIGNATURES, ids=lambda method: method.__qualname__)
def test_signatures_are_those_relied_upon(method: object) -> None:
    """Every method overridden or called is there, with the arguments it is given."""
    found = str(inspect.signature(method)).replace("typing.List", "List").replace("typing.Any", "Any")  # type: ignore[arg-type]
    found = found.replace("typing.Tuple", "Tuple").replace("typing.Dict", "Dict").replace("pathlib._local", "pathlib")
    assert found == SIGNATURES[method].replace("typing.Any", "Any")  # type: ignore[index]


@pytest.mark.parametrize(
    ("ours", "theirs", "meant"),
    [
        (_Executor, local.LocalExecutor, {"_submitit_command_str", "_submit_command"}),
        (Ranks, local.Controller, set()),
        (
            ClusterExecutor,
            slurm.SlurmExecutor,
            {
                *("job_class", "name", "affinity", "_equivalence_dict", "_valid_parameters", "_convert_parameters", "_num_tasks"),
                *("_internal_update_parameters", "_internal_process_submissions", "_make_submission_file_text"),
            },
        ),
        (FunctionJob, slurm.SlurmJob, {"submission", "results", "exception", "_get_outcome_and_result"}),
        (FunctionEnvironment, slurm.SlurmJobEnvironment, {"name", "_handle_signals", "_requeue"}),
    ],
)
def test_nothing_else_is_overridden(ours: type, theirs: type, meant: set[str]) -> None:
    made_by_python = {"_abc_impl", "__abstractmethods__", "__parameters__", "__orig_bases__"}
    assert {name for name in vars(ours) if hasattr(theirs, name) and not hasattr(object, name)} - made_by_python <= meant


def test_variables_of_the_local_controller_are_those_we_set() -> None:
    source = inspect.getsource(local)
    for name in ("NTASKS", "COMMAND", "TIMEOUT_S", "SIGNAL_DELAY_S", "WITH_SHELL"):
        assert f'os.environ["SUBMITIT_LOCAL_{name}"]' in source
    assert source.count("os.environ[") == 6
    assert set(local.LocalJobEnvironment._env) == {"job_id", "num_tasks", "num_nodes", "node", "global_rank", "local_rank"}
    assert isinstance(inspect.getattr_static(local.LocalExecutor, "_submitit_command_str"), property)


def test_ranks_look_for_the_pickle_by_the_id_that_slurm_lists() -> None:
    assert "delayed = utils.DelayedSubmission.load(paths.submitted_pickle)" in inspect.getsource(submission.process_job)
    assert JobPaths("/f", "7").submitted_pickle.name == "7_submitted.pkl"
    assert JobPaths("/f", "7_5").submitted_pickle.name == "7_5_submitted.pkl"
    assert JobPaths("/f", "7", 3).stderr.name == "7_3_log.err"
    assert 'f"{self.array_job_id}_{self.array_task_id}"' in inspect.getsource(job_environment.JobEnvironment)
    env = slurm.SlurmJobEnvironment._env
    assert (env["array_job_id"], env["array_task_id"]) == ("SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID")
