"""Lightning's loop on a GPU: the callback's marks are events in the stream."""

from __future__ import annotations

import logging
import os
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data.dataloader import DataLoader

from hpcddp.analysis.study.load import load_study
from hpcddp.core.run_root import single_study
from tests.gpu import ranks
from tests.gpu.device import is_real
from tests.gpu.marks import touches
from tests.gpu.results import Figures

BATCH = 32


@touches("hpcddp/probe/lightning.py", stand_in="Lightning trains on a processor, in fp32")
def test_lightnings_loop(tmp_path: Path, figures: Figures) -> None:
    """The run counts, in bf16 as its trainer says, and every part took time."""
    pytest.importorskip("lightning", reason="needs lightning")
    ranks.values(tmp_path, 1, fit, tmp_path / "runs")
    (run,) = load_study(single_study(tmp_path / "runs")).runs
    assert (run.state, run.reason) == ("counts", None)
    assert run.point is not None
    assert (run.point.device, run.point.workload.precision) == (("cuda", "bf16") if is_real() else ("cpu", "fp32"))
    parts = {name: mean or 0.0 for name, mean in (run.part_ns or {}).items()}
    assert min(parts[name] for name in ("forward", "backward", "optimizer")) > 0
    figures.add("forward_share", parts["forward"] / (run.step_ns or 1.0), most=1.0)


def fit(runs: Path) -> None:
    """As a user has it."""
    import lightning

    from hpcddp.probe.lightning import ScalingCallback

    class Model(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 10))

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            return nn.functional.cross_entropy(self.model(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    os.environ["HPCDDP_RUNS"] = str(runs)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    samples = torch.utils.data.TensorDataset(torch.randn(16 * BATCH, 256), torch.randint(10, (16 * BATCH,)))
    callback = ScalingCallback(warmup_steps=ranks.steps(20, 2), steps=ranks.steps(100, 4))
    quiet: Any = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning's advice on loaders
        where, precision = ("gpu", "bf16-mixed") if is_real() else ("cpu", "32-true")
        chosen: Any = {"accelerator": where, "precision": precision, **quiet}
        trainer = lightning.Trainer(devices=1, max_epochs=100, callbacks=[callback], **chosen)
        trainer.fit(Model(), DataLoader(samples, BATCH))
