"""How the tests and the benchmark begin: on which GPUs, and where their results go."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from tests.gpu.device import COUNT_VARIABLE, FACTS_VARIABLE
from tests.gpu.results import FILE_VARIABLE


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--results", type=Path, help="a file that a line of JSON for each result is appended to")
    parser.add_argument("--stand-in", action="store_true", help="without a GPU, to see that the programs themselves work")


def start(chosen: argparse.Namespace) -> bool:
    """Whether there is something to run on; says so where not. What is chosen goes to further processes by their environment."""
    if chosen.results:
        os.environ[FILE_VARIABLE] = str(chosen.results.absolute())
    if chosen.stand_in or COUNT_VARIABLE in os.environ or _use_gpus():
        return True
    print("skipped: no GPU")
    return False


def _use_gpus() -> bool:
    """Whether there are any; their number and the machine's facts go into the environment."""
    done = subprocess.run([sys.executable, "-m", "tests.gpu.facts"], stdout=subprocess.PIPE, check=True)
    facts = json.loads(done.stdout.splitlines()[-1])
    if facts["gpus"]:
        os.environ[COUNT_VARIABLE], os.environ[FACTS_VARIABLE] = str(len(facts["gpus"])), json.dumps(facts)
        os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # to count GPUs by CUDA would spoil it for forked processes
    return bool(facts["gpus"])
