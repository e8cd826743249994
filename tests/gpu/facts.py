"""What the machine is: `python -m tests.gpu.facts` prints it as JSON, in a process that may start CUDA."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from pathlib import Path
from typing import Any


def main() -> None:
    print(json.dumps(facts()))


def facts() -> dict[str, Any]:
    """`gpus` is empty where torch can use none; the host's name is left out."""
    import torch

    from hpcddp.core.schema import encode
    from hpcddp.worker.launch_record import node_facts, versions

    return {
        "machine": f"{node_facts('').cpu}, {os.cpu_count()} CPUs, {platform.system()} {platform.release()}",
        "gpus": encode(node_facts("").gpus) if torch.cuda.is_available() else [],
        "driver": driver() or node_facts("").gpu_driver,
        "versions": versions(),
        "commit": commit(),
    }


def driver() -> str | None:
    """The NVIDIA driver's version; None without nvidia-smi, as with GPUs of AMD's."""
    return _first_line("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")


def commit() -> str | None:
    """The checkout's; None for a copy without git."""
    return _first_line("git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD")


def _first_line(*command: str) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.splitlines()[0].strip() if done.stdout else None


if __name__ == "__main__":
    main()
