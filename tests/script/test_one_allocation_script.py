"""The script of several runs in one job, beside stand-ins for Slurm's commands: what runs, is passed over, or is requeued."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hpcddp.backends.slurm_job_files import SCRIPT, prepare
from tests.given_plan import allocation_plan, batch_of
from tests.script.test_render import write_commands

COMMANDS = {
    "scontrol": """
if [ "$1" != show ]; then echo "$@" >> "$SAID/scontrol"
elif [ "$3" = "host[1-4]" ]; then printf "host%s\\n" 1 2 3 4
else tr , "\\n" <<< "$3"; fi
""",
    "scancel": 'echo "$@" >> "$SAID/scancel"',
    "srun": """
[ "${@: -1}" = true ] && exec bash "$SAID/probe"
[[ " $* " == *" --job-name=preflight "* ]] && { echo "${@//$'\\n'/;}" >> "$SAID/measured"; exec bash "$SAID/preflight"; }
echo "$MASTER_ADDR" >> "$SAID/masters"
echo "${@//$'\\n'/;}" >> "$SAID/srun"
exec bash "$SAID/$HPCDDP_TASK"
""",
}

WARN = "kill -USR2 $PPID"
"""The job's script is this process's parent."""


class Job:
    """Three runs on 4, 2 and 1 nodes, tasks 0, 1 and 2; each is what a small script says, by default a success."""

    def __init__(self, folder: Path, *settings: str, **changes: str) -> None:
        self.folder, self._said = folder / "job", folder / "said"
        prepare(self.folder, batch_of(allocation_plan(folder, "repeat=1", *settings, **changes), folder))
        self._said.mkdir()
        write_commands(folder, COMMANDS)
        for name in ("0", "1", "2", "probe", "preflight"):
            self.does(name, "exit 0")

    def does(self, who: str, script: str) -> None:
        (self._said / who).write_text(script)

    def start(self, restart: int = 0) -> int:
        env = {"PATH": f"{self._said.parent}:/usr/bin:/bin", "SAID": str(self._said), "SLURM_JOB_NODELIST": "host[1-4]"}
        env |= {"SLURM_JOB_ID": "12", **({"SLURM_RESTART_COUNT": str(restart)} if restart else {})}
        return subprocess.run(["bash", self.folder / SCRIPT], cwd=self.folder, env=env, check=False, timeout=180).returncode

    def events(self) -> list[tuple[Any, ...]]:
        lines = [json.loads(line) for line in (self.folder / "steps.jsonl").read_text().splitlines()]
        return [tuple(line[key] for key in ("event", "task", "code", "word", "limit_min") if key in line) for line in lines]

    def said(self, command: str) -> list[str]:
        file = self._said / command
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def ran(*tasks: int) -> list[tuple[Any, ...]]:
    return [("begun", None), *(line for task in tasks for line in (("started", task), ("ended", task, 0)))]


def test_runs_one_after_the_other_on_the_first_nodes(job: Job) -> None:
    assert job.start() == 0
    assert job.events() == ran(0, 1, 2)
    nodes = [next(word for word in line.split() if word.startswith("--nodelist=")) for line in job.said("srun")]
    assert nodes == ["--nodelist=host1,host2,host3,host4", "--nodelist=host1,host2", "--nodelist=host1"]
    assert job.said("scontrol") == []


def test_a_run_that_fails_stops_no_other(job: Job) -> None:
    job.does("1", "echo no such data >&2; exit 7")
    assert job.start() == 1
    assert job.events() == [*ran(0), ("started", 1), ("ended", 1, 7), *ran(2)[1:]]
    assert (job.folder / "1" / "batch.err").read_text() == "no such data\n"
    assert job.said("scontrol") == []


def test_what_ended_is_not_run_again(job: Job) -> None:
    job.does("1", "exit 7")
    job.start()
    assert job.start(restart=1) == 0
    assert job.events()[7:] == [("begun", None)]
    assert len(job.said("srun")) == 3


def test_a_cancelled_run_is_passed_over(job: Job) -> None:
    (job.folder / "1" / "cancelled").touch()
    assert job.start() == 0
    assert job.events() == ran(0, 2)
    assert job.said("scontrol") == []


def test_at_the_warning_the_job_is_requeued_and_the_run_at_work_begins_anew(job: Job) -> None:
    job.does("1", f"{WARN}; sleep 1")
    assert job.start() == 0
    assert job.events() == [*ran(0), ("started", 1)]
    assert job.said("scontrol") == ["requeue 12"]
    assert job.said("scancel") == []
    job.does("1", "exit 0")
    assert job.start(restart=1) == 0
    assert job.events()[4:] == ran(1, 2)
    assert job.said("scontrol") == ["requeue 12"]


def test_a_run_that_had_all_the_time_there_is_does_not_get_it_again(job: Job) -> None:
    """It would be requeued for ever: it has ended as a job at its time limit, and the others go on."""
    job.does("0", f"{WARN}; sleep 1")
    job.start()
    assert job.events() == [("begun", None), ("started", 0), ("ended", 0, 1, "TIMEOUT", 30)]
    assert job.said("scontrol") == ["requeue 12"]
    job.start(restart=1)
    assert job.events()[3:] == ran(1, 2)


def test_a_run_has_the_time_it_asked_for_and_no_more(job: Job) -> None:
    script = job.folder / SCRIPT
    script.write_text(script.read_text().replace("run_step 1 30 ", "run_step 1 0 "))
    job.does("1", "exit 9")
    assert job.start() == 1
    assert job.events() == [*ran(0), ("started", 1), ("ended", 1, 1, "TIMEOUT", 0), *ran(2)[1:]]
    limits = [word for line in job.said("srun") for word in line.split() if "--time" in word]
    assert limits == ["--time=30", "--time=0", "--time=30"]


def test_a_run_that_writes_checkpoints_is_told_and_goes_on(tmp_path: Path) -> None:
    job = Job(tmp_path, "measure.resume=true")
    job.does("0", f'{WARN}; until [ -e "$SAID/scancel" ]; do sleep 0.05; done; touch "$HPCDDP_REQUEUE"')
    assert job.start() == 0
    assert job.said("scancel") == ["--signal=USR2 12"]
    assert "--time" not in job.said("srun")[0]
    assert job.events() == [("begun", None), ("started", 0)]
    assert job.said("scontrol") == ["requeue 12"]
    job.does("0", "exit 0")
    assert job.start(restart=1) == 0
    assert job.events()[2:] == ran(0, 1, 2)


def test_a_run_that_is_done_before_it_hears_of_the_warning_is_done(tmp_path: Path) -> None:
    job = Job(tmp_path, "measure.resume=true")
    job.does("1", f'{WARN}; until [ -e "$SAID/scancel" ]; do sleep 0.05; done')
    assert job.start() == 0
    assert (job.events(), job.said("scontrol")) == (ran(0, 1), ["requeue 12"])
    job.does("2", f"{WARN}; sleep 0.2")
    assert job.start(restart=1) == 0
    assert (job.events()[5:], job.said("scontrol")) == (ran(2), ["requeue 12"])


def test_a_lost_node_fails_no_run(job: Job) -> None:
    """A job whose node starts no process asks for others; a run that lost its nodes three times has failed."""
    job.does("1", "exit 1")
    job.does("probe", "exit 1")
    for restart in range(2):
        assert job.start(restart) == 0
    assert job.events() == [*ran(0), ("started", 1), ("begun", None), ("started", 1)]
    assert job.said("scontrol") == ["requeue 12"] * 2
    assert job.start(2) == 1
    assert job.events()[6:] == [("begun", None), ("started", 1), ("ended", 1, 1), *ran(2)[1:]]


def nodes_of(job: Job) -> list[str]:
    return [word.partition("=")[2] for line in job.said("srun") for word in line.split() if word.startswith("--nodelist=")]


def test_every_node_is_measured_before_the_first_run(job: Job) -> None:
    job.does("1", f"{WARN}; sleep 1")
    job.start()
    (measured,) = job.said("measured")
    assert measured.startswith("--nodes=4 --kill-on-bad-exit=1 --unbuffered --time=5 --job-name=preflight --ntasks=4 ")
    job.does("1", "exit 0")
    job.start(restart=1)
    assert len(job.said("measured")) == 2
    job.start(restart=2)
    assert len(job.said("measured")) == 2


def test_preflight_that_fails_stops_no_run(tmp_path: Path) -> None:
    job = Job(tmp_path, "slurm.spare_nodes=0")
    job.does("preflight", "echo no torch >&2; exit 1")
    assert job.start() == 0
    assert job.events() == ran(0, 1, 2)
    assert nodes_of(job)[1:] == ["host1,host2", "host1"]
    assert (job.folder / "preflight" / "batch.err").read_text() == "no torch\n"


def test_runs_stay_off_a_slow_node_where_there_is_a_spare_one(tmp_path: Path) -> None:
    job = Job(tmp_path, "slurm.spare_nodes=1", axes="{layout.nodes: [1, 2, 3]}")
    job.does("preflight", '[ "$HPCDDP_SPARE_NODES" = 1 ] && printf "host%s\\n" 2 3 4 > "$HPCDDP_HOSTS"')
    assert job.start() == 0
    assert nodes_of(job) == ["host2,host3,host4", "host2,host3", "host2"]
    assert job.said("masters") == ["host2"] * 3


def test_without_a_word_of_preflight_a_spare_node_is_the_last(tmp_path: Path) -> None:
    job = Job(tmp_path, "slurm.spare_nodes=1", axes="{layout.nodes: [1, 2, 3]}")
    (job.folder / "preflight" / "hosts").write_text("host9\n")
    job.does("preflight", "exit 1")
    assert job.start() == 0
    assert nodes_of(job) == ["host1,host2,host3", "host1,host2", "host1"]
    assert job.said("masters") == ["host1"] * 3
