"""`work: train` by srun and by torchrun, on a real Slurm: what two nodes learn is what a plain loop learns."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pytest

from tests.twin.twin import Twin
from tests.twin.userland import User
from tests.worker import test_epochs
from tests.worker.test_epochs import BATCH, EVALUATED, RATE, SEED, STEPS, by_hand, epochs

pytestmark = pytest.mark.soak

EPOCHS = 3

SWEEP = f"""
schema: 1
cluster: rcc
device: cpu
work: train
baselines: false
workload: {{model: "stripes:plain", data: {{name: "stripes:Stripes"}}, batch_per_gpu: {BATCH // 4}, precision: fp64, seed: {SEED},
           loader_workers_per_rank: 0, optimizer: {{lr: {RATE}}}}}
layout: {{nodes: 2, gpus_per_node: 2, physical_cores_per_rank: 1}}
points: {{launchers: {{layout.launcher: [direct, torchrun]}}}}
measure: {{warmup_steps: 3, epochs: {EPOCHS}, evaluate_every: 1}}
slurm: {{walltime_min: 10}}
"""

IMPORTS = """
import torch
from torch import nn
from torch.utils.data import TensorDataset

SAMPLES, EVALUATED = {}, {}
"""


@pytest.fixture(scope="module")
def attempts(rcc_twin: Twin, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The attempt of each launcher, with the data and the model of the plain loop."""
    user = User(rcc_twin, tmp_path_factory.mktemp("user"))
    of_loop = [inspect.getsource(each) for each in (test_epochs.striped, test_epochs.Stripes, test_epochs.plain)]
    module = "\n\n".join([IMPORTS.format(test_epochs.SAMPLES, EVALUATED), *of_loop])
    (user.home / "stripes.py").write_text(module, encoding="utf-8")
    (user.home / "study.yaml").write_text(SWEEP, encoding="utf-8")
    user.hpcddp("submit", "study.yaml", "-y")
    user.twin.wait_jobs(300)
    assert "2 runs: 2 done" in user.hpcddp("status", "study").stdout
    found = (user.home / "study").glob("*/r1/*.0")
    return {json.loads((each / "launch.json").read_text(encoding="utf-8"))["launcher"]: each for each in found}


@pytest.mark.parametrize("launcher", ["direct", "torchrun"])
def test_the_curve_is_that_of_a_plain_loop(attempts: dict[str, Path], launcher: str) -> None:
    """Counts to the sample, losses to their last digits, at the end of every epoch; all gates passed."""
    found = epochs(attempts[launcher])
    assert [row["step"] for row in found] == [STEPS * epoch for epoch in range(1, EPOCHS + 1)]
    for row, (train_loss, correct, eval_loss) in zip(found, by_hand(), strict=False):
        assert (row["correct"], row["total"]) == (correct, EVALUATED)
        assert row["train_loss_e9"] == pytest.approx(train_loss * 1e9, abs=2)
        assert row["eval_loss_e9"] == pytest.approx(eval_loss * 1e9, abs=2)
    end = json.loads((attempts[launcher] / "end.json").read_text(encoding="utf-8"))
    assert (end["state"], [gate["name"] for gate in end["gates"] if not gate["passed"]]) == ("done", [])
