"""How fast runs reach Slurm, beside plain sbatch: `python -m tests.bench.submit_rate`.

On a twin, all jobs held, hpcddp's own limit on calls a second taken off. hpcddp is the whole command, from the shell and back:
it reads the sweep, expands it, asks Slurm what there is, and writes what is needed to find every job again.

one shape     1,000 points that ask for the same: one array. Beside it `sbatch --array` of the same script and tasks.
mixed shapes  1,000 points that all ask for something else, so that no two go together. Beside it a loop over their scripts.
again         the same `submit` of a sweep whose 1,000 points are done.
status        of 1,000 runs, a third each done, cancelled and waiting; Slurm's commands are counted.

Each is measured ROUNDS times in turn with what stands beside it; the median counts.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hpcddp.cluster.profile_file import load_profile
from hpcddp.cluster.profile_names import FOLDER
from hpcddp.core.records import write_json
from hpcddp.core.run_root import Study
from hpcddp.core.schema import encode
from hpcddp.study.submission_log import latest_events
from tests.twin.daemons import missing, wait_until
from tests.twin.twin import Twin
from tests.twin.userland import SMALL, User

ROUNDS = 3

RUNS = 1000

BOUNDS = {"one_shape_more_s": 2.0, "mixed_ratio": 1.5, "again_s": 2.0, "status_s": 2.0, "status_calls": 3}

SWEEP = f"""{SMALL.replace("cluster: rcc", "cluster: ./rcc.yaml")}
layout: {{gpus_per_node: 1, node_type: v100, physical_cores_per_rank: 1, exclusive: false}}
measure: {{warmup_steps: 1, steps: 3}}
account: proj
slurm: {{walltime_min: 5, mem_mb: 100, options: [--hold]}}
points:
"""

ONE_SHAPE = {"all": {"workload.seed": list(range(RUNS))}}

MIXED = {
    "most": {
        "layout.nodes": [1, 2, 3, 4, 5],
        "layout.gpus_per_node": [1, 2, 3, 4],
        "layout.physical_cores_per_rank": list(range(1, 13)),
        "layout.exclusive": [True, False],
        "layout.launcher": ["direct", "torchrun"],
    },
    "rest": {
        "layout.nodes": [6],
        "layout.gpus_per_node": [1, 2],
        "layout.physical_cores_per_rank": list(range(1, 11)),
        "layout.exclusive": [True, False],
    },
}
"""5 x 4 x 12 x 2 x 2 and 2 x 10 x 2 layouts: RUNS points."""

LAUNCH = {
    "schema": 1,
    "backend": "slurm",
    "started_unix_ns": 1_700_000_000_000_000_000,
    "hosts": ["gn01"],
    "environment": {f"SLURM_JOB_VARIABLE_{number}": "as it should be" for number in range(60)},
    "profile": encode(replace(load_profile("rcc"), facts={})),
}
"""What `status` reads of each attempt for its node hours, as long as a job writes it."""

COUNTED = ("sbatch", "squeue", "sacct", "scontrol", "sacctmgr", "sinfo", "scancel")

END = {
    "schema": 1,
    "state": "done",
    "reason": None,
    "ended_unix_ns": 1_700_000_060_000_000_000,
    "gates": [{"name": f"gate {number}", "passed": True, "evidence": "as it should be " * 5} for number in range(9)],
    "ranks": [{"rank": rank, "host": "gn01", "rows": 4, "crc32": 1234567890, "seconds": 1.0} for rank in range(4)],
}


@dataclass(frozen=True)
class Login:
    """A user on a twin whose folder holds the sweeps, and who notes each of Slurm's commands in `calls`."""

    twin: Twin
    folder: Path

    @property
    def calls(self) -> Path:
        return self.folder / "calls"

    def hpcddp(self, *arguments: str) -> float:
        """Seconds; exit code 3 (not all is done) is an answer too."""
        return self.timed([sys.executable, "-m", "hpcddp", *arguments], allowed=(0, 3))

    def timed(self, command: Sequence[str], allowed: Sequence[int] = (0,)) -> float:
        """Seconds that the command takes."""
        env = User(self.twin, self.folder, {"PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"}).env
        start = time.perf_counter()
        done = subprocess.run(command, env=env, cwd=self.folder, capture_output=True, text=True, check=False)
        seconds = time.perf_counter() - start
        if done.returncode not in allowed:
            raise SystemExit(f"{' '.join(command)[:200]} gave {done.returncode}\n{done.stdout}{done.stderr}")
        return seconds

    def empty_queue(self) -> None:
        """Cancels all jobs."""
        self.twin.run(["scancel", "--user=root"])
        wait_until(lambda: not self.twin.run(["squeue", "-h"]).stdout, [], "an empty queue", 120)


def main() -> int:
    """Prints the table and one line of JSON; 1 where a bound does not hold."""
    if reason := missing():
        raise SystemExit(reason)
    with tempfile.TemporaryDirectory() as folder, Twin(load_profile("rcc"), Path(folder) / "twin") as twin:
        login = prepare(Login(twin, Path(folder)))
        rounds = [one_round(login, number) for number in range(ROUNDS)]
    median = {name: statistics.median(measured[name] for measured in rounds) for name in rounds[0]}
    figures = {
        "one_shape_more_s": median["one_shape_s"] - median["plain_array_s"],
        "mixed_ratio": median["mixed_s"] / median["plain_loop_s"],
        **{name: median[name] for name in ("again_s", "status_s", "status_calls")},
    }
    print(table(rounds, median))
    holds = all(figures[name] <= bound for name, bound in BOUNDS.items())
    rounded = {name: round(figure, 3) for name, figure in figures.items()}
    print(json.dumps({"bench": "submit_rate", "figures": rounded, "bounds": BOUNDS, "holds": holds}))
    return 0 if holds else 1


def prepare(login: Login) -> Login:
    """The sweeps, a profile without a limit on the rate, and commands that are counted."""
    text = (FOLDER / "rcc.yaml").read_text(encoding="utf-8").replace("\nslurm:\n", "\nslurm:\n  submissions_per_s: null\n")
    (login.folder / "rcc.yaml").write_text(text, encoding="utf-8")
    for name, points in (("one", ONE_SHAPE), ("mixed", MIXED)):
        (login.folder / f"{name}.yaml").write_text(f"{SWEEP}  {json.dumps(points)}\n", encoding="utf-8")
    (login.folder / "bin").mkdir()
    for name in COUNTED:
        shim = login.folder / "bin" / name
        shim.write_text(f'#!/bin/sh\necho {name} >> "{login.calls}"\nexec {shutil.which(name)} "$@"\n', encoding="utf-8")
        shim.chmod(0o755)
    return login


def one_round(login: Login, number: int) -> dict[str, float]:
    """Everything once, from empty queues."""
    runs = login.folder / f"round{number}"
    submit = ("submit", "-y", "--runs", str(runs))
    found = {"one_shape_s": login.hpcddp(*submit, "one.yaml")}
    study = Study(runs / "one")
    jobs = [event.job or "" for event in latest_events(study).values()]
    array = jobs[0].partition("_")[0]
    if len(jobs) != RUNS or {job.partition("_")[0] for job in jobs} != {array}:
        raise SystemExit(f"{jobs} are not the tasks of one array")
    finish(study, RUNS // 3)
    login.twin.run(["scancel", f"{array}_[{RUNS // 3}-{2 * RUNS // 3}]"])
    login.calls.unlink()
    found["status_s"] = login.hpcddp("status", str(runs))
    found["status_calls"] = len(login.calls.read_text(encoding="utf-8").split())
    finish(study, RUNS)
    found["again_s"] = login.hpcddp(*submit, "one.yaml")
    login.empty_queue()
    found["plain_array_s"] = login.timed(["sbatch", f"--array=0-{RUNS - 1}", str(study.job_dir(array) / "job.sbatch")])
    login.empty_queue()
    found["mixed_s"] = login.hpcddp(*submit, "mixed.yaml")
    login.empty_queue()
    scripts = f"{Study(runs / 'mixed').jobs}/*.r1.*/job.sbatch"
    loop = f"set -e; for script in {scripts}; do sbatch --output=/dev/null $script; done"
    found["plain_loop_s"] = login.timed(["bash", "-c", loop])
    login.empty_queue()
    return found


def finish(study: Study, runs: int) -> None:
    """The first runs have come to their end, as their records say."""
    for event in list(latest_events(study).values())[:runs]:
        attempt = study.attempt_dir(event.label, event.run, event.job or "", 0)
        write_json(attempt / "launch.json", LAUNCH)
        write_json(attempt / "end.json", END)


def table(rounds: list[dict[str, float]], median: Mapping[str, float]) -> str:
    rows: list[Sequence[Any]] = [("median", *(f"round {number + 1}" for number in range(len(rounds))), "")]
    rows += [(f"{median[name]:.2f}", *(f"{measured[name]:.2f}" for measured in rounds), name) for name in median]
    return "\n".join("  ".join(f"{cell:>8}" for cell in row[:-1]) + f"  {row[-1]}" for row in rows)


if __name__ == "__main__":
    sys.exit(main())
