"""Every command on a sweep whose loop is a script of the user's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.commands.conftest import Run

SWEEP = """\
schema: 1
cluster: {cluster}
account: me
workload: {{script: src/train.py, args: {{width: 8}}}}
layout: {{gpus_per_node: 2, launcher: torchrun}}
points: {{width: {{workload.args.width: [4, 8]}}}}
baselines: false
measure: {{warmup_steps: 4, steps: 30, telemetry_hz: 0}}
device: cpu
"""

SCRIPT = """\
import argparse

import torch
import torch.distributed as dist

from hpcddp.probe import measure

parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int)
width = parser.parse_args().width
torch.set_num_threads(1)
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(width, width))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
with measure(model, optimizer, samples_per_step=4) as steps:
    for batch in steps([torch.randn(4, width)] * 99):
        loss = steps.loss(model(batch).square().mean())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
dist.destroy_process_group()
"""


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """The script, below the folder of the sweeps."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text(SCRIPT)
    for cluster in ("local", "rcc"):
        (tmp_path / f"{cluster}.yaml").write_text(SWEEP.format(cluster=cluster))
    return tmp_path


def test_before_it_runs(run: Run, written: Path) -> None:
    """What only the job knows is unknown; the rendered script has the command's words, and the file's place."""
    plain = json.loads(run("plan", "rcc.yaml", "--format", "json").stdout)["points"]
    assert [point["point"]["workload.args.width"] for point in plain] == [4, 8]
    assert {(point["batch_per_gpu"], point["global_batch"]) for point in plain} == {(None, None)}
    assert "n01-g2-script-" in run("submit", "rcc.yaml", "--dry-run").stdout
    text = run("render", "rcc.yaml", "--where", "workload.args.width == 4").stdout
    assert f'"file":"{written}/src/train.py","folder":"{written}"' in text
    assert "torch.distributed.run" in text


@pytest.mark.dear
def test_from_submission_to_its_numbers(run: Run, written: Path) -> None:
    """By torchrun, on this machine; its samples are the script's, and the content of the script is among the versions."""
    done = run("submit", "local.yaml", "-y", "--wait", "--where", "workload.args.width == 4")
    assert done.exit_code == 0, done.output
    assert "1 run: 1 done" in run("status", "local").stdout
    plain = json.loads(run("analyze", "local", "--format", "json").stdout)
    (row,) = plain["studies"][0]["points"]
    assert (row["ranks"], row["batch_per_gpu"], row["global_batch"]) == (2, 4, 8)
    bundled = run("bundle", "local", "-o", "b.tar.gz")
    assert bundled.exit_code == 0, bundled.output
    same = run("compare", "local", "local")
    assert "B trains 1.000 times as fast as A at 1 x 2" in same.stdout
    launch = next(written.glob("local/*/r1/*/launch.json"))
    assert len(json.loads(launch.read_text())["versions"]["train.py"]) == 12
