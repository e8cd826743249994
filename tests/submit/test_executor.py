"""hpcddp.executor without a cluster: what it submits, refuses and unpickles. sbatch is a stand-in."""

from __future__ import annotations

import ast
import os
import pickle
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from submitit import AutoExecutor
from submitit.core import plugins
from submitit.core.core import Job
from submitit.core.utils import DelayedSubmission, FailedJobError, cloudpickle_dump
from submitit.slurm.slurm import SlurmExecutor, SlurmJob

import hpcddp
from hpcddp.cluster.settings import Settings
from hpcddp.core.errors import FullError, HpcddpError, RefusedError, UsageError
from hpcddp.submit.executor import ClusterExecutor, FunctionJob
from hpcddp.submit.function_request import function_plan, own_modules, search_path
from tests.fake_slurm import NEWEST_NAME, Say, at_once, calls, stand_ins
from tests.machine import NOBODY, need_root

Make = Callable[..., ClusterExecutor]


@pytest.fixture
def say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Say:
    """sbatch queues jobs 1, 2, ...; arrays have four tasks at most."""
    at_once(monkeypatch)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("HPCDDP_RUNS", "HPCDDP_CLUSTER", "SBATCH_ACCOUNT", "SUBMITIT_EXECUTOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    say = stand_ins(tmp_path, monkeypatch, ("srun", "squeue", "sacct", "sacctmgr"), "exit 0")
    say("sbatch", 'echo "Submitted batch job $(grep -c ^sbatch "$LOG")"')
    say("scontrol", "echo 'MaxArraySize            = 4'")
    return say


@pytest.fixture
def make(say: Say, monkeypatch: pytest.MonkeyPatch) -> Make:
    """An executor on rcc; the tests' own modules stay where they are."""
    monkeypatch.setattr("hpcddp.submit.executor.own_modules", list)
    return lambda **parameters: hpcddp.executor("rcc", **{"gpus_per_node": 1, "account": "proj", "folder": "logs", **parameters})


def double(x: int) -> int:
    return 2 * x


def returned(job: Job[int], outcome: str, value: object, task: int = 0) -> None:
    """Leaves what a task would leave."""
    cloudpickle_dump((outcome, value), job.task(task).paths.result_pickle)


def test_the_script_is_the_profiles(make: Make, tmp_path: Path) -> None:
    job = make(nodes=2, gpus_per_node=4, walltime_min=30, name="mine, all mine").submit(double, 3)
    script = job.paths.submission_file.read_text().replace(" \\\n  ", " ")
    for line in ("--nodes=2", "--ntasks-per-node=4", "--gres=gpu:v100:4", "--time=30", "--account=proj", "--signal=USR2@120"):
        assert f"#SBATCH {line}\n" in script
    assert f"--output={tmp_path}/logs/%j_%t_log.out --error={tmp_path}/logs/%j_%t_log.err" in script
    assert "by hand" not in script
    (code,) = (tmp_path / "logs" / ".code").iterdir()
    assert f"python3 -u {code}/bootstrap.py --module hpcddp.backends.function_task {tmp_path}/logs {tmp_path}/logs " in script
    (call,) = calls(tmp_path, "sbatch")
    assert call.split()[1].startswith("--job-name=mine_all_mine.")
    logs = f"{tmp_path}/logs/%j_0_log"
    assert call.split()[2:5] == [f"--output={logs}.out", f"--error={logs}.err", f"--chdir={tmp_path}"]
    assert (job.job_id, job.num_tasks, isinstance(job, SlurmJob)) == ("1", 8, True)
    assert (job.submission().function, job.submission().args) == (double, (3,))
    assert job.submission()._timeout_min == 30


def test_arrays_are_cut_where_the_cluster_cuts_them(make: Make, tmp_path: Path) -> None:
    jobs = make(array_parallelism=3).map_array(double, range(9))
    assert [job.job_id for job in jobs] == [*(f"1_{task}" for task in range(4)), *(f"2_{task}" for task in range(4)), "3"]
    assert [job.submission().args for job in jobs] == [(x,) for x in range(9)]
    arrays = [[word for word in call.split() if word.startswith("--array")] for call in calls(tmp_path, "sbatch")]
    assert arrays == [["--array=0-3%3"], ["--array=0-3%3"], []]
    assert f"--output={tmp_path}/logs/%A_%a_%t_log.out" in jobs[0].paths.submission_file.read_text()


def test_a_batch_is_an_array(make: Make) -> None:
    executor = make()
    with executor.batch():
        jobs = [executor.submit(double, x) for x in range(2)]
        with pytest.raises(AttributeError, match="forbidden"):
            _ = jobs[0].job_id
        with pytest.raises(RuntimeError, match="not allowed"):
            executor.update_parameters(nodes=2)
    assert [job.job_id for job in jobs] == ["1_0", "1_1"]
    assert all(type(job) is FunctionJob for job in jobs)


def test_what_comes_back(make: Make) -> None:
    job = make().submit(double, 1)
    returned(job, "success", 2)
    assert (job.result(), job.exception(), job.done()) == (2, None, True)
    several = make(gpus_per_node=3).submit(double, 1)
    for task in range(3):
        returned(several, "success", task, task)
    assert several.results() == [0, 1, 2]
    failed = make(gpus_per_node=2).submit(double, 1)
    returned(failed, "error", "Traceback: no luck", 1)
    failed.watcher._info_dict[failed.job_id] = {"State": "FAILED"}
    failed.watcher._finished.add(failed.job_id)
    with pytest.raises(FailedJobError, match="no luck"):
        failed.results()
    assert isinstance(failed.exception(), FailedJobError)


def test_a_lost_answer_is_looked_up(make: Make, say: Say, tmp_path: Path) -> None:
    say("sbatch", 'echo "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation" >&2; exit 1')
    say("squeue", f"printf '8\\037%s\\037PENDING\\037None\\037\\037{tmp_path}\\n' \"$({NEWEST_NAME})\"")
    assert make().submit(double, 1).job_id == "8"
    assert len(calls(tmp_path, "sbatch")) == 1
    say("squeue", 'echo "slurm_load_jobs error: Unable to contact slurm controller" >&2; exit 1')
    with pytest.raises(HpcddpError, match=r"Check with `squeue --me --name=double\.\w+` whether"):
        make().submit(double, 2)
    assert len(list((tmp_path / "logs").glob("*_0.pkl"))) == 1


def test_a_refusal_has_its_next_step(make: Make, say: Say, tmp_path: Path) -> None:
    say("sbatch", 'echo "sbatch: error: Batch job submission failed: Invalid qos specification" >&2; exit 1')
    with pytest.raises(RefusedError, match=r"Slurm refuses a job without a QOS .*, or use qos=NAME\."):
        make().submit(double, 1)
    assert [path.name for path in (tmp_path / "logs").iterdir()] == [".code"]
    full = 'echo "sbatch: error: AssocMaxSubmitJobLimit" >&2; exit 1'
    say("sbatch", f'[ $(grep -c ^sbatch "$LOG") -gt 2 ] && {{ {full}; }}; echo "Submitted batch job 5"')
    with pytest.raises(FullError, match="4 of 6 are submitted, to 5_3"):
        make().map_array(double, range(6))


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"nodes": 99}, r"rcc has 6 nodes of type v100 \(gn\[01-06\]\), and 99 are requested"),
        ({"gpus_per_node": 9}, "gpus_per_node is 9: a node of type v100 of rcc has 4 GPUs"),
        ({"walltime_min": 99999}, "walltime_min is 99999, at most 10080 minutes allowed"),
        ({"partition": "gpux", "qos": "dev"}, "QOS dev|partition is gpux"),
        ({"qos": "x"}, "qos is x, but the profile of rcc defines dev"),
        ({"nods": 2}, "no parameter `nods`; did you mean `nodes`"),
        ({"tasks_per_node": 2, "gpus_per_node": 4}, "tasks_per_node is 2 and gpus_per_node is 4, but there is one task per GPU"),
        ({"cpus_per_task": 0}, "cpus_per_task is 0: set a whole number from 1 up"),
        ({"tasks_per_node": 1, "cpus_per_task": 99}, "physical_cores_per_rank is 99: 1 ranks take 99 physical cores"),
        ({"nodes": "two"}, "a whole number is expected"),
        ({"node_type": "h100"}, "no node type `h100` in rcc"),
        ({"options": ["--nodes=3"]}, "hpcddp sets --nodes itself"),
    ],
)
def test_what_is_not_given_is_refused(make: Make, tmp_path: Path, parameters: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        make(**parameters)
    executor = make(nodes=2)
    with pytest.raises(UsageError, match=words):
        executor.update_parameters(**parameters)
    assert (executor.parameters["nodes"], (tmp_path / "logs").exists()) == (2, False)


def test_slurm_and_an_account_are_needed(make: Make) -> None:
    with pytest.raises(UsageError, match=r"rcc needs an account\. Add `account=NAME`"):
        make(account=None).submit(double, 1)
    with pytest.raises(UsageError, match="local has no Slurm"):
        hpcddp.executor("local", folder="logs")


def test_large_pickles_are_refused(make: Make, tmp_path: Path) -> None:
    executor = make(max_pickle_size_gb=0)
    with pytest.raises(RuntimeError, match="max_pickle_size_gb"):
        executor.submit(double, 1)
    assert [path.name for path in (tmp_path / "logs").iterdir()] == [".code"]


def test_a_folder_of_somebody_else_is_refused(make: Make, tmp_path: Path) -> None:
    """At the submission, and again before a result is read: what lies there would run as this user."""
    need_root()
    job = make().submit(double, 1)
    returned(job, "success", 2)
    os.chown(tmp_path / "logs", NOBODY, NOBODY)
    (tmp_path / "logs").chmod(0o755)
    copied = pickle.loads(pickle.dumps(job))
    for read in (job.result, job.exception, job.submission, copied.result):
        with pytest.raises(HpcddpError, match="belongs to nobody, whose code would run as you: give another folder with folder="):
            read()
    with pytest.raises(HpcddpError, match="belongs to nobody"):
        make().submit(double, 1)
    os.chown(tmp_path / "logs", 0, 0)
    (tmp_path / "logs").chmod(0o777)
    with pytest.raises(HpcddpError, match="may be written by everybody"):
        job.result()


def test_a_folder_for_each_job(make: Make, tmp_path: Path) -> None:
    job = make(folder="logs/%j").submit(double, 1)
    assert job.paths.folder == tmp_path / "logs" / "1"
    assert job.submission().args == (1,)
    assert f"--output={tmp_path}/logs/%j/%j_%t_log.out" in job.paths.submission_file.read_text()
    assert sorted(path.name for path in (tmp_path / "logs").iterdir()) == [".code", "1"]


def test_without_a_folder_it_is_in_the_run_root(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert make(folder=None).folder == tmp_path / "jobs" / "functions"
    monkeypatch.setenv("HPCDDP_RUNS", "/scratch/me")
    assert make(folder=None).folder == Path("/scratch/me/functions")


@pytest.mark.dear
def test_no_faster_than_the_cluster_allows(say: Say, tmp_path: Path) -> None:
    (tmp_path / "slow.yaml").write_text("schema: 1\nname: slow\nextends: rcc\nslurm: {submissions_per_s: 4}\n")
    executor = hpcddp.executor("slow.yaml", gpus_per_node=1, account="proj", folder="logs")
    begun_s = time.monotonic()
    for x in range(3):
        executor.submit(double, x)
    assert time.monotonic() - begun_s >= 2 / 4


def test_through_auto_executor(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"slurm": SlurmExecutor, "hpcddp": ClusterExecutor}
    monkeypatch.setattr(plugins, "get_executors", lambda: found)
    executor = AutoExecutor("logs", cluster="hpcddp", hpcddp_cluster="rcc")
    executor.update_parameters(timeout_min=7, nodes=2, gpus_per_node=1, mem_gb=1.5, name="n", hpcddp_account="proj")
    script = executor.submit(double, 1).paths.submission_file.read_text()
    assert ("#SBATCH --time=7\n" in script, "#SBATCH --mem=1536M\n" in script, "#SBATCH --nodes=2\n" in script) == (True,) * 3
    executor.update_parameters(tasks_per_node=2, gpus_per_node=2, cpus_per_task=3)
    script = executor.submit(double, 1).paths.submission_file.read_text()
    assert ("--ntasks-per-node=2\n" in script, "--cpus-per-task=3\n" in script, "gpu:v100:2" in script) == (True,) * 3
    assert AutoExecutor.which() == "slurm"


@pytest.mark.parametrize(
    ("cluster", "tasks", "cpus", "cores"),
    [("rcc", 2, 4, (2, 4)), ("marconi100", 4, 30, (4, 8)), ("marconi100", 1, None, (1, 8)), ("juwels-booster", 4, 24, (4, 12))],
)
def test_cpus_of_a_task_are_those_that_slurm_counts(cluster: str, tasks: int, cpus: int | None, cores: tuple[int, int]) -> None:
    layout = {"tasks_per_node": tasks, "cpus_per_task": cpus, "exclusive": cluster != "rcc", "account": "proj"}
    (planned,) = function_plan(cluster, layout, Settings()).points
    assert (planned.point.layout.gpus_per_node, planned.point.layout.physical_cores_per_rank) == cores


def test_importing_hpcddp_imports_nothing_more() -> None:
    """Every command of the login side begins so; submitit and what else the executor needs come with the first call."""
    script = "import hpcddp, sys; hpcddp.executor; print([m for m in sys.modules if m.startswith(('hpcddp.', 'submitit'))])"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_in_a_job_submitits_own_class_stands_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rank of each job loads all plugins: there nothing of the login side is imported, which may not be there."""
    from hpcddp.backends import submitit_plugin

    monkeypatch.delenv("SUBMITIT_EXECUTOR", raising=False)
    assert submitit_plugin.ClusterExecutor is ClusterExecutor
    monkeypatch.setenv("SUBMITIT_EXECUTOR", "slurm")
    assert submitit_plugin.ClusterExecutor is SlurmExecutor


RUN_AT_ONCE = r"""script=${@: -1}
joined=$(sed -e ':more' -e '/\\$/{N;s/ *\\\n */ /;b more' -e '}' "$script")
eval "set -- $(sed -n '/bootstrap.py/s/.* python3 -u//p' <<<"$joined")"
export SLURM_JOB_ID=$(grep -c ^sbatch "$LOG") SLURM_NTASKS=1 SLURM_PROCID=0 SUBMITIT_EXECUTOR=slurm
$PYTHON -u "$@" >>job.log 2>&1; echo "Submitted batch job $SLURM_JOB_ID"
"""
"""The job is over before its submission hears of it."""


def test_a_job_without_its_number_finds_its_pickle(make: Make, say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    say("sbatch", RUN_AT_ONCE)
    monkeypatch.setenv("PYTHON", f"{sys.executable} -S")
    job = make().submit(lambda x: 2 * x, 21)
    assert job.result() == 42, (tmp_path / "job.log").read_text()
    assert DelayedSubmission.load(job.paths.submitted_pickle).args == (21,)


SCRIPT = """
import sys

import hpcddp

def script(lr, **options):
    return [sys.modules["__main__"].__file__, *sys.argv]

executor = hpcddp.executor("rcc", gpus_per_node=1, account="proj", folder="logs")
print(executor.submit(script, 0.1, token="a", sizes=[1, 2], data=object()).result())
"""


def test_a_function_is_named_by_its_script_and_arguments(say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    say("sbatch", f"echo >> own_script.py; {RUN_AT_ONCE}")
    monkeypatch.setenv("PYTHON", sys.executable)
    (tmp_path / "own_script.py").write_text(SCRIPT)
    done = subprocess.run([sys.executable, "own_script.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + (tmp_path / "job.log").read_text()
    file, argv0, *arguments = ast.literal_eval(done.stdout)
    assert arguments[:-1] == ["script", "0.1", "--token='a'", "--sizes=[1, 2]"]
    assert re.fullmatch(r"--data=<object [0-9a-f]{12}>", arguments[-1])
    assert file == argv0
    assert Path(file).parts[-4:-2] + Path(file).parts[-1:] == ("logs", ".code", "own_script.py")
    assert Path(file).read_text() == SCRIPT


@pytest.mark.dear
def test_loaded_modules_of_no_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a_net.py").write_text("")
    (tmp_path / "another.py").write_text("")
    (tmp_path / "some_nets" / "deep").mkdir(parents=True)
    (tmp_path / "some_nets" / "__init__.py").write_text("")
    (tmp_path / "some_nets" / "deep" / "res.py").write_text("")
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "site-packages" / "installed_net.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path / "site-packages")
    monkeypatch.syspath_prepend(tmp_path)
    before = set(own_modules())
    for name in ("a_net", "some_nets.deep.res", "installed_net", "some_nets", "some_nets.deep"):
        monkeypatch.delitem(sys.modules, name, raising=False)
        __import__(name)
    assert set(own_modules()) - before == {"a_net", "some_nets"}
    assert not {"json", "submitit", "pytest", "__main__"} & {*before}
    assert search_path()[0] == tmp_path
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry != str(tmp_path)])
    assert "a_net" not in own_modules()  # a job would not find it by that name
