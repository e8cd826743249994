"""`hpcddp submit` killed, raced, and in front of a controller that stops, freezes or forgets: after it every run has one job.

The nodes are drained: jobs wait, cost nothing, and are in sacct all the same. A seed chooses the moment.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from hpcddp.cluster.profile_file import load_profile
from hpcddp.core.launcher import TASKS
from hpcddp.core.point import point_from_dict
from hpcddp.core.run_root import Study
from hpcddp.core.written_lists import expand_node_list
from tests.fake_slurm import wait_for
from tests.twin.shape import Site
from tests.twin.twin import Twin, Twins
from tests.twin.userland import SMALL, User

pytestmark = pytest.mark.soak

SWEEP = (
    SMALL
    + """
layout: {exclusive: false, gpus_per_node: 1}
points:
  arrays: {layout.nodes: [1, 2], layout.physical_cores_per_rank: [1, 2, 3, 4], workload.batch_per_gpu: [8, 16]}
  alone: {layout.nodes: [1, 2], layout.physical_cores_per_rank: [5, 6]}
measure: {warmup_steps: 1, steps: 2}
repeat: 1
slurm: {walltime_min: 2, mem_mb: 500}
"""
)

POINTS = 20

LINES = 2 * POINTS
"""Of submissions.jsonl when all is well: an intent and an answer for each run."""

MOMENT_S = 0.01
"""From one line to the next: sbatch takes about 5 ms."""


@pytest.fixture(scope="module")
def frail(twins: Twins, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twin]:
    """A twin of this module's own, since its controller is ill-treated; commands give up on it after 5 s."""
    twins.close()
    with Twin(load_profile("rcc"), tmp_path_factory.mktemp("frail"), nodes=2, site=Site(message_timeout_s=5)) as twin:
        drain(twin)
        yield twin


def drain(twin: Twin) -> None:
    names = ",".join(node.name for node in twin.shape.nodes)
    twin.run(["scontrol", "update", f"NodeName={names}", "State=DRAIN", "Reason=test"])


@dataclass(frozen=True)
class Sweep:
    """A study of 20 points on a user's login node."""

    user: User

    @property
    def study(self) -> Study:
        return Study(self.user.home / "sweep")

    def begin(self, *options: str) -> subprocess.Popen[str]:
        """`hpcddp submit`, under way."""
        command = [sys.executable, "-m", "hpcddp", "submit", "sweep.yaml", "-y", *options]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, cwd=self.user.home, env=self.user.env, stdout=pipe, stderr=pipe, text=True)

    def lines(self) -> int:
        with suppress(FileNotFoundError):
            return self.study.submissions_file.read_bytes().count(b"\n")
        return 0

    def at_a_moment(self, seed: int) -> subprocess.Popen[str]:
        """`hpcddp submit` that has written some line of submissions.jsonl, and the next one perhaps."""
        submitter, chance = self.begin(), random.Random(seed)
        lines, more_s = chance.randrange(LINES), chance.uniform(0, MOMENT_S)
        wait_for(lambda: self.lines() >= lines or submitter.poll() is not None)
        time.sleep(more_s)
        return submitter

    def at_a_frozen_controller(self, submitter: Callable[[], subprocess.Popen[str]]) -> subprocess.Popen[str]:
        """`submitter()`, called while the controller is frozen; that thaws when sbatch has given up and its job is looked for, or
        when the size of arrays is asked for, as before any job is sent.
        """
        twin = self.user.twin
        twin.signal_controller(signal.SIGSTOP)
        try:
            waits = submitter()
            wait_for(lambda: waits.poll() is not None or commands(twin) & {"squeue", "scontrol"})
        finally:
            twin.signal_controller(signal.SIGCONT)
        return waits

    def check_queue(self) -> None:
        """Every run has one job that waits, and no more; hpcddp knows them by these ids."""
        assert set(self.runs_in_queue().values()) == {1}
        assert len(self.runs_in_queue()) == POINTS
        (study,) = self.user.json("status", "sweep", exit_code=3)["studies"]
        assert Counter(run["phase"] for run in study["runs"]) == {"queued": POINTS}
        assert {run["job"] for run in study["runs"]} == set(self.queue())

    def check(self) -> None:
        """The same, and sacct has each of these jobs once, and none that squeue has not."""
        self.check_queue()
        wait_for(lambda: self.runs_in_sacct().total() >= POINTS)
        assert self.runs_in_sacct() == self.runs_in_queue()

    def is_mine(self, folder: str) -> bool:
        return Path(folder).parent == self.study.jobs

    def queue(self) -> dict[str, str]:
        """Working directory of each job of this study that waits, tasks of arrays one by one."""
        lines = self.user.twin.run(["squeue", "-h", "-r", "-o", "%i %Z"]).stdout.splitlines()
        return {job: folder for job, folder in (line.split(maxsplit=1) for line in lines) if self.is_mine(folder)}

    def runs_in_queue(self) -> Counter[str]:
        return Counter(run_of(job, Path(folder)) for job, folder in self.queue().items())

    def runs_in_sacct(self) -> Counter[str]:
        """By jobs that could have started if nodes were up; an array that waits is one row."""
        command = ["sacct", "-n", "-P", "-X", "-D", "--starttime=now-1day", "-o", "JobID,WorkDir"]
        rows = [line.split("|", maxsplit=1) for line in self.user.twin.run(command).stdout.splitlines()]
        return Counter(
            run_of(job, Path(folder)) for jobs, folder in rows if self.is_mine(folder) for job in expand_node_list(jobs)
        )


def run_of(job: str, folder: Path) -> str:
    """Which run a job was submitted for, by what lies in its folder: the name of a single job says it."""
    _, _, task = job.partition("_")
    if not task:
        return folder.name.rpartition(".")[0]
    spec = json.loads((folder / TASKS).read_text().splitlines()[int(task)])
    return f"{point_from_dict(spec['point']).label}.r{spec['run']}"


@pytest.fixture
def sweep(frail: Twin, tmp_path: Path) -> Iterator[Sweep]:
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    yield Sweep(User(frail, tmp_path))
    frail.run(["scancel", f"--user={os.getuid()}"])
    wait_for(lambda: not frail.run(["squeue", "-h"]).stdout)


def finish(submitter: subprocess.Popen[str], *expected: int) -> str:
    """What it said, once it has ended with one of these exit codes."""
    out, err = submitter.communicate(timeout=300)
    assert submitter.returncode in expected, f"{submitter.returncode}\n{out}\n{err}"
    return out + err


@pytest.mark.parametrize("seed", range(1, 51))
def test_killed_submit_is_made_whole(sweep: Sweep, seed: int) -> None:
    """SIGKILL at any moment; whatever its sbatch still did, the next submit adds what is missing and nothing else."""
    submitter = sweep.at_a_moment(seed)
    submitter.kill()
    finish(submitter, -signal.SIGKILL, 0)
    finish(sweep.begin(), 0)
    sweep.check()


@pytest.mark.parametrize("seed", range(1, 11))
def test_two_at_once(sweep: Sweep, seed: int) -> None:
    """The second waits for nothing: it is refused with a sentence, or comes when the first has finished."""
    first = sweep.begin() if seed == 1 else sweep.at_a_moment(seed)
    second = sweep.begin()
    for said in (finish(first, 0, 1), finish(second, 0, 1)):
        assert "submitted " in said or "nothing to submit" in said or "another hpcddp is at work here" in said
    finish(sweep.begin(), 0)
    sweep.check()


@pytest.mark.parametrize("seed", range(1, 11))
def test_controller_restarts(sweep: Sweep, seed: int) -> None:
    submitter = sweep.at_a_moment(seed)
    sweep.user.twin.signal_controller(signal.SIGTERM)
    sweep.user.twin.start_controller()
    finish(submitter, 0)
    sweep.check()


@pytest.mark.parametrize("seed", range(10))
def test_killed_submit_while_the_controller_restarts(sweep: Sweep, seed: int) -> None:
    """Killed with its sbatch still trying to reach a controller that is away: that job is not submitted a second time."""
    submitter = sweep.at_a_moment(seed)
    sweep.user.twin.signal_controller(signal.SIGTERM)
    submitter.kill()
    finish(submitter, -signal.SIGKILL, 0)
    again = sweep.begin()
    sweep.user.twin.start_controller()
    finish(again, 0)
    sweep.check()


@pytest.mark.parametrize("seed", range(1, 11))
def test_frozen_controller_queues_what_timed_out(sweep: Sweep, seed: int) -> None:
    """sbatch gives up on a frozen controller, which queues the job all the same when it thaws: it is found, not sent again."""
    submitter = sweep.at_a_moment(seed)
    finish(sweep.at_a_frozen_controller(lambda: submitter), 0)
    sweep.check()


@pytest.mark.parametrize("seed", range(10))
def test_killed_submit_at_a_frozen_controller(sweep: Sweep, seed: int) -> None:
    submitter = sweep.at_a_moment(seed)

    def again() -> subprocess.Popen[str]:
        submitter.kill()
        finish(submitter, -signal.SIGKILL, 0)
        return sweep.begin()

    finish(sweep.at_a_frozen_controller(again), 0)
    sweep.check()


def commands(twin: Twin) -> set[str]:
    """Names of the twin's processes."""
    found = set()
    for pid in twin.processes():
        with suppress(OSError):
            found.add(Path(f"/proc/{pid}/comm").read_text().strip())
    return found


def test_lost_jobs_whose_ids_were_given_out_again(sweep: Sweep, tmp_path: Path) -> None:
    """A controller killed before it saved what it had accepted: submit brings each job back, once."""
    twin, state = sweep.user.twin, sweep.user.twin.folder / "state"
    shutil.copytree(state, tmp_path / "state")
    finish(sweep.begin("-J", "--hold"), 0)
    before = set(sweep.queue())
    twin.signal_controller(signal.SIGKILL)
    shutil.rmtree(state)
    shutil.copytree(tmp_path / "state", state)
    twin.start_controller()
    drain(twin)
    assert sweep.queue() == {}
    other = Sweep(User(twin, tmp_path / "other"))
    other.user.home.mkdir()
    shutil.copy(tmp_path / "sweep.yaml", other.user.home)
    finish(other.begin("-J", "--hold"), 0)
    assert set(other.queue()) & before
    (study,) = sweep.user.json("status", "sweep", exit_code=3)["studies"]
    assert {(run["phase"], run["detail"]) for run in study["runs"]} == {("failed", "Slurm no longer lists this job")}
    finish(sweep.begin("-J", "--hold"), 0)
    sweep.check_queue()
    other.check_queue()


def test_a_frozen_controller_is_given_up(sweep: Sweep) -> None:
    """Words after 5 s and an end within 60: of a command that asks only, and of one that sends; nothing is sent twice."""
    begun_s = time.monotonic()
    sweep.user.twin.signal_controller(signal.SIGSTOP)
    try:
        sends = sweep.begin("-J", "--hold")
        status = sweep.user.hpcddp("clusters", "check", "rcc", exit_code=5)
        said = finish(sends, 1)
    finally:
        sweep.user.twin.signal_controller(signal.SIGCONT)
    assert time.monotonic() - begun_s < 60
    for words in (status.stderr, said):
        assert words.count("! waiting for Slurm: ") == 1
    finish(sweep.begin("-J", "--hold"), 0)
    sweep.check_queue()


def test_accounting_answers_for_a_controller_that_is_stopped(sweep: Sweep) -> None:
    """With slurmctld down and slurmdbd up: what was cancelled before is missing, the rest is unknown, and submit ends with 3."""
    twin, user = sweep.user.twin, sweep.user
    finish(sweep.begin("-J", "--hold"), 0)
    gone = sorted(job for job in sweep.queue() if "_" not in job)[:3]
    twin.run(["scancel", *gone])
    command = ["sacct", "-nPX", "-o", "JobName,WorkDir,State", "-j", ",".join(gone)]
    wait_for(lambda: len(re.findall(r"^n0.*sweep/.*CANCELLED", twin.run(command).stdout, re.MULTILINE)) == 3)
    twin.signal_controller(signal.SIGTERM)
    try:
        (study,) = user.json("status", "sweep", exit_code=3)["studies"]
        dry_run = user.hpcddp("submit", "sweep.yaml", "--dry-run")
        rest = user.hpcddp("submit", "sweep.yaml", "-y", "--where", "layout.physical_cores_per_rank <= 4", exit_code=3)
    finally:
        twin.start_controller()
    found = {run["job"]: (run["phase"], run["detail"]) for run in study["runs"]}
    assert [found[job][0] for job in gone] == ["failed"] * 3, found
    assert Counter(phase for phase, _ in found.values()) == {"unknown": POINTS - 3, "failed": 3}
    assert "3 runs to submit of 20 runs" in dry_run.stdout
    assert "! The state of 17 runs is unknown: " in dry_run.stderr
    assert "The state of 16 runs is unknown: " in rest.stderr
    assert "Nothing was submitted: the state of 16 runs is unknown." in rest.stdout
    finish(sweep.begin("-J", "--hold"), 0)
    sweep.check_queue()
