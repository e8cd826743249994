"""The job side on Amazon SageMaker, as the container's command on every instance: `python -m hpcddp.worker.sagemaker /opt/ml`.

Files below /opt/ml/input/config say which instances the job has and what it runs (the spec, in pieces, as hyperparameters). What
ranks leave below /opt/ml/checkpoints goes to S3 as it comes, and is there again when the job restarts. SageMaker ends a container
by SIGTERM and, two minutes later, SIGKILL. Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hpcddp.core.jobspec import JobSpec, spec_from_dict
from hpcddp.core.launcher import first_failure, torchrun_options
from hpcddp.core.run_root import Study
from hpcddp.core.stop_signal import block_stop_signal
from hpcddp.worker.ranks import RESTARTS

PORT = "29500"
"""torchrun's own: the container has its network for itself."""

SOCKET_INTERFACES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
"""Variables that say through which interface ranks meet."""

RESOLVES_WITHIN_S = 300
"""The first container may start before the names of instances are known."""


def main() -> None:
    """Exits as torchrun does; after SIGTERM with its code, so that nobody takes the job for complete."""
    block_stop_signal()
    root = Path(sys.argv[1])
    read = (json.loads((root / f"input/config/{name}.json").read_text()) for name in ("resourceconfig", "hyperparameters"))
    resources, pieces = read
    text = "".join(pieces[name] for name in sorted(pieces))
    spec, notes = spec_from_dict(json.loads(text)), root / "output"
    os.environ.update(job_environment(spec, resources, os.environ), HPCDDP_SPEC=text)
    _await_name(resources["hosts"][0])
    notes.mkdir(exist_ok=True)
    torchrun = [sys.executable, "-u", "-m", "hpcddp.worker.torchrun", str(notes), *torchrun_options(spec.point).split()]
    code = run_torchrun([*torchrun, "-m", "hpcddp.worker"], resumes=spec.point.measure.resume)
    if code:  # SageMaker's FailureReason
        (notes / "failure").write_text(first_failure(notes) or f"torchrun ended with exit code {code}", encoding="utf-8")
    sys.exit(code)


def job_environment(spec: JobSpec, resources: Mapping[str, Any], env: Mapping[str, str]) -> dict[str, str]:
    """What torchrun and its ranks read. A job that restarts finds its earlier attempts."""
    hosts, host, network = resources["hosts"], resources["current_host"], resources.get("network_interface_name")
    job, attempts = env["TRAINING_JOB_NAME"], Study(Path(spec.study)).attempts(spec.label, spec.run)
    usual = {"PET_MASTER_PORT": PORT} | (dict.fromkeys(SOCKET_INTERFACES, network) if network else {})
    return {
        **{name: env.get(name, value) for name, value in usual.items()},
        **{"PET_NODE_RANK": str(hosts.index(host)), "PET_MASTER_ADDR": hosts[0], "HPCDDP_HOST": host, "HPCDDP_JOB": job},
        RESTARTS: str(sum(attempt.name.startswith(f"{job}.") for attempt in attempts)),
    }


def run_torchrun(command: Sequence[str], *, resumes: bool) -> int:
    """The exit code of this torchrun. At SIGTERM ranks are asked for a checkpoint if the run resumes, else they are ended."""
    stopped, torchrun = [], subprocess.Popen(command)

    def stop(*_: object) -> None:
        """Ranks have sessions of their own, so that no signal to a group reaches them."""
        stopped.append(True)
        children = [file.read_text() for file in Path(f"/proc/{torchrun.pid}/task").glob("*/children")] if resumes else []
        ranks = [int(rank) for rank in " ".join(children).split()]
        for rank in ranks:
            with contextlib.suppress(ProcessLookupError):
                os.kill(rank, signal.SIGUSR2)
        if not ranks:
            torchrun.terminate()

    signal.signal(signal.SIGTERM, stop)
    code = torchrun.wait()
    return 128 + signal.SIGTERM if stopped else code


def _await_name(host: str) -> None:
    for _ in range(RESOLVES_WITHIN_S):
        with contextlib.suppress(OSError):
            socket.getaddrinfo(host, None)
            return
        time.sleep(1)


if __name__ == "__main__":
    main()
