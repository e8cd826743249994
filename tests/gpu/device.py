"""Which GPUs the tests run on: the machine's, or a stand-in for two. What it is (`python -m tests.gpu.device` prints it), where
results go, and what a test says of itself.

This process itself must not start CUDA: the ranks are forked from it, and a forked process cannot use CUDA that its parent has
begun. So `python -m tests.gpu` counts the GPUs in a process of its own and says their number here.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

COUNT_VARIABLE = "HPCDDP_TEST_GPUS"
"""How many GPUs of the machine the tests run on; not set: on the stand-in."""

FACTS_VARIABLE = "HPCDDP_TEST_GPU_FACTS"
"""facts() of the machine, as JSON."""

STAND_IN_GPUS = 2

STAND_IN = {"stand_in": True, "gpus": [{"name": "stand-in"}] * STAND_IN_GPUS}


def is_real() -> bool:
    return COUNT_VARIABLE in os.environ


def gpu_count() -> int:
    return int(os.environ.get(COUNT_VARIABLE, STAND_IN_GPUS))


def machine_facts() -> dict[str, Any]:
    return dict(json.loads(os.environ[FACTS_VARIABLE])) if FACTS_VARIABLE in os.environ else STAND_IN


def on_device(function: Callable[..., Any], *arguments: Any) -> Any:
    """Calls it in a rank, which has the machine's GPUs or the stand-in's from here on."""
    if not is_real():
        from tests.gpu import standin

        standin.install(gpu_count())
    return function(*arguments)


FILE_VARIABLE = "HPCDDP_GPU_RESULTS"
"""The file that lines are appended to; not set: none are."""


@dataclass
class Figures:
    """Of one test. A figure outside its bounds fails the test on a GPU; what a stand-in gives need only be a number."""

    values: dict[str, dict[str, float]] = field(default_factory=dict)

    def add(self, name: str, value: float, *, least: float = -math.inf, most: float = math.inf) -> None:
        limits = {word: limit for word, limit in (("least", least), ("most", most)) if math.isfinite(limit)}
        assert math.isfinite(value), f"{name} is {value}"
        self.values[name] = {"value": value, **limits}
        assert not is_real() or least <= value <= most, f"{name} is {value:.6g}, and should be {_words(limits)}"


def _words(limits: dict[str, float]) -> str:
    return " and ".join(f"at {word} {limit:g}" for word, limit in limits.items())


def append_result(line: dict[str, Any]) -> None:
    """At once, so that a machine that is taken away leaves what it has found."""
    if FILE_VARIABLE in os.environ:
        date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")
        with Path(os.environ[FILE_VARIABLE]).open("a", encoding="utf-8") as file:
            file.write(json.dumps({**line, "date": date, **machine_facts()}, sort_keys=True) + "\n")


def read_results(file: Path) -> list[dict[str, Any]]:
    """The lines of real GPUs; none of a file that is not there."""
    if not file.exists():
        return []
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line]
    return [line for line in lines if not line.get("stand_in")]


def touches(*files: str, stand_in: str) -> pytest.MarkDecorator:
    """Marks a test of how these files of hpcddp/ use CUDA; `stand_in`: what the test cannot find out without a GPU."""
    return pytest.mark.gpu(files=[f"hpcddp/{file}" for file in files], stand_in=stand_in)


def need_gpus(count: int) -> None:
    if gpu_count() < count:
        pytest.skip(f"needs {count} GPUs, and there is {gpu_count()}")


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
    done = subprocess.run([sys.executable, "-m", "tests.gpu.device"], stdout=subprocess.PIPE, check=True)
    facts = json.loads(done.stdout.splitlines()[-1])
    if facts["gpus"]:
        os.environ[COUNT_VARIABLE], os.environ[FACTS_VARIABLE] = str(len(facts["gpus"])), json.dumps(facts)
        os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # to count GPUs by CUDA would spoil it for forked processes
    return bool(facts["gpus"])


def facts() -> dict[str, Any]:
    import torch

    from hpcddp.core.schema import encode
    from hpcddp.worker.launch_record import node_facts, versions

    node = node_facts("")
    return {
        "machine": f"{node.cpu}, {os.cpu_count()} CPUs, {platform.system()} {platform.release()}",
        "gpus": encode(node.gpus) if torch.cuda.is_available() else [],
        "driver": _first_line("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader") or node.gpu_driver,
        "versions": versions(),
        "commit": _first_line("git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"),
    }


def _first_line(*command: str) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.splitlines()[0].strip() if done.stdout else None


if __name__ == "__main__":
    print(json.dumps(facts()))
