"""Ranks that are killed, and that hang, under a real srun: how soon the job is over, and who is named."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.twin.twin import Twin
from tests.twin.userland import SMALL, User

pytestmark = pytest.mark.soak

MODEL = """
import os, signal, time
import torch
from torch import nn

class Faulty(nn.Module):
    def __init__(self, happens):
        super().__init__()
        self.layer = nn.Linear(784, 10)
        self.step, self.happens = -1, happens

    def forward(self, images):
        self.step += 1
        if self.step == 30 and os.environ["SLURM_PROCID"] == "1":
            with open(f"began.{self.happens.__name__}", "w") as out:
                out.write(repr(time.time()))
            self.happens(self)
        return self.layer(images.flatten(1))

def dies(model):
    model.layer.weight.register_hook(lambda _: os.kill(os.getpid(), signal.SIGKILL))

def hangs(model):
    time.sleep(1000)

def killed(classes):
    return Faulty(dies)

def hung(classes):
    return Faulty(hangs)
"""

SWEEP = (
    SMALL
    + """
layout: {nodes: 2, gpus_per_node: 1, physical_cores_per_rank: 1}
points:
  faults: {workload.model: ["faulty:killed", "faulty:hung"]}
measure: {warmup_steps: 2, steps: 1000}
slurm: {walltime_min: 10}
"""
)


@dataclass(frozen=True)
class Fault:
    """What became of a run: its end.json, the host of rank 1, and seconds from the fault to the end of the job."""

    end: dict[str, Any]
    host: str
    took_s: float


@pytest.fixture(scope="module")
def faults(rcc_twin: Twin, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Fault]:
    """By the name of the model, once both jobs are over."""
    user = User(rcc_twin, tmp_path_factory.mktemp("user"))
    (user.home / "faults.yaml").write_text(SWEEP)
    (user.home / "faulty.py").write_text(MODEL)
    user.hpcddp("submit", "faults.yaml", "-y")
    rcc_twin.wait_jobs(240)
    ended = {row["JobID"]: time.mktime(time.strptime(row["End"], "%Y-%m-%dT%H:%M:%S")) for row in rcc_twin.sacct()}
    return dict(_fault(file.parent, ended) for file in (user.home / "faults").glob("*/r1/*/end.json"))


def _fault(attempt: Path, ended: dict[str, float]) -> tuple[str, Fault]:
    run = attempt.parent.parent
    model = json.loads((run / "point.json").read_text())["point"]["workload"]["model"]
    began = next((run.parent / ".jobs").rglob(f"began.{'dies' if model == 'faulty:killed' else 'hangs'}"))
    host = json.loads((attempt / "launch.json").read_text())["hosts"][1]
    took_s = ended[attempt.name.rpartition(".")[0]] - float(began.read_text())
    return model, Fault(json.loads((attempt / "end.json").read_text()), host, took_s)


@pytest.mark.parametrize(("model", "kind", "within_s"), [("faulty:killed", "died", 10), ("faulty:hung", "hung", 30)])
def test_the_job_ends_soon_and_names_rank_and_host(faults: dict[str, Fault], model: str, kind: str, within_s: float) -> None:
    """One killed in the middle of an all-reduce ends the job in 10 s, one that hangs in 30 s."""
    found = faults[model]
    assert (found.end["state"], found.end["fault"]["kind"], found.end["fault"]["rank"]) == ("failed", kind, 1)
    assert found.end["reason"].startswith(f"rank 1 on {found.host} ")
    assert found.took_s < within_s, found.end
