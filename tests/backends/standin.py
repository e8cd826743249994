"""Stand-ins for the worker: what a rank may do. Each notes its process and environment in the study first."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

NAMES = (
    *("HPCDDP_JOB", "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES"),
    *("SLURM_JOB_ID", "SBATCH_PARTITION"),
)


def note(spec: dict[str, Any]) -> int:
    """Leaves JOB.RANK.json and waits for the other ranks' of the same job; the rank."""
    rank = int(os.environ.get("SUBMITIT_LOCAL_GLOBALID") or os.environ["SLURM_PROCID"])
    ranks = int(next(os.environ[name] for name in ("WORLD_SIZE", "SUBMITIT_LOCAL_NTASKS", "SLURM_NTASKS") if name in os.environ))
    env = {name: os.environ.get(name) for name in NAMES}
    noted = {"pid": os.getpid(), "start_s": time.monotonic(), "env": env, "cwd": os.getcwd(), "code": __file__}
    job = os.environ.get("HPCDDP_JOB") or os.environ["SLURM_JOB_ID"]
    file = Path(spec["study"]) / "seen" / f"{job}.{rank}.json"
    file.parent.mkdir(exist_ok=True)
    file.with_suffix(".part").write_text(json.dumps(noted))
    file.with_suffix(".part").rename(file)
    while len(list(file.parent.glob(f"{job}.*.json"))) < ranks:
        time.sleep(0.02)
    return rank


def succeed(spec: dict[str, Any]) -> None:
    note(spec)
    time.sleep(0.2)


def last_rank_is_killed(spec: dict[str, Any]) -> None:
    if note(spec) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(1000)


def first_rank_raises(spec: dict[str, Any]) -> None:
    if note(spec) == 0:
        raise ValueError("no such data")
    time.sleep(1000)


def hang_with_children(spec: dict[str, Any]) -> None:
    """Deaf to SIGTERM, with a child of its own (as a data loader has)."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with subprocess.Popen([sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(1000)"]):
        note(spec)
        time.sleep(1000)
