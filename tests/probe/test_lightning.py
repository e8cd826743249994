"""Lightning's loop, measured by its callback: parts of a step, gradients that add up, what is between steps, failures."""

from __future__ import annotations

import json
import logging
import time
import warnings
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from hpcddp.probe.lightning import ScalingCallback
from tests.probe.loops import BATCH, STEPS, WARMUP, loader, network
from tests.probe.records import measured, only, timed_parts_s

SLEEP_S = 0.1


class Model(lightning.LightningModule):
    """With a sleep where `slow` says."""

    def __init__(self, slow: str = "", raise_in_step: int | None = None) -> None:
        super().__init__()
        self.model = network()
        self._slow, self._raise_in_step = slow, raise_in_step

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        self._sleep("forward")
        if self.global_step == self._raise_in_step:
            raise ValueError("no more of this")
        return nn.functional.cross_entropy(self.model(batch[0]), batch[1])

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        time.sleep(SLEEP_S / 4)

    def optimizer_step(self, *arguments: Any, **named: Any) -> None:
        super().optimizer_step(*arguments, **named)
        self._sleep("optimizer")

    def transfer_batch_to_device(self, batch: Any, device: Any, dataloader_idx: int) -> Any:
        self._sleep("h2d_exposed")
        return batch

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)

    def _sleep(self, where: str) -> None:
        if where == self._slow:
            time.sleep(SLEEP_S)


class SlowToBegin(DataLoader[Any]):
    """As with processes of its own."""

    def __iter__(self) -> Any:
        time.sleep(SLEEP_S)
        return super().__iter__()


def fit(model: Model, validation: Any = None, batches: Any = None, **options: Any) -> None:
    """On this process alone, until enough is measured."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    callback = ScalingCallback(warmup_steps=WARMUP, steps=STEPS, tokens_per_step=options.pop("tokens_per_step", None))
    quiet: Any = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning's advice on loaders, and on srun
        trainer = lightning.Trainer(accelerator="cpu", devices=1, max_epochs=100, callbacks=[callback], **quiet, **options)
        try:
            trainer.fit(model, batches or loader(), validation)
        finally:
            assert type(trainer.profiler).__name__ == "PassThroughProfiler"  # type: ignore[attr-defined]  # given back


def test_gradients_that_add_up(tmp_path: Path) -> None:
    """Samples of a step are those of its batches, and the loss is that of the batch, not a share of it."""
    run = only(measured(tmp_path, 1, lambda: fit(Model(), accumulate_grad_batches=2, tokens_per_step=160)))
    assert (run.state, run.steady_steps) == ("counts", STEPS)
    assert run.point is not None
    assert run.point.script is not None
    assert (run.point.workload.batch_per_gpu, run.point.script.iterations_per_step) == (2 * BATCH, 2)
    assert run.point.workload.model.endswith(":Model")
    assert run.used.tokens_per_sample == 10
    assert run.losses is not None
    assert run.losses.start == pytest.approx(1.4, abs=0.5)  # of four classes, ln 4 without training


@pytest.mark.timed
@pytest.mark.parametrize("where", ["forward", "h2d_exposed"])
def test_a_sleep_is_in_its_part(tmp_path: Path, where: str) -> None:
    """And in no other."""
    measured(tmp_path, 1, lambda: fit(Model(where)))
    parts_s = timed_parts_s(tmp_path)
    assert parts_s.pop(where) == pytest.approx(SLEEP_S, rel=0.1)
    assert max(parts_s.values()) < SLEEP_S / 4


@pytest.mark.timed
def test_beginning_a_loader_is_waiting_for_data(tmp_path: Path) -> None:
    """Of an epoch's first step."""
    measured(tmp_path, 1, lambda: fit(Model(), batches=SlowToBegin(loader().dataset, batch_size=BATCH)))
    parts_s = timed_parts_s(tmp_path, longest=True)
    assert parts_s.pop("data_wait") == pytest.approx(SLEEP_S, rel=0.1)
    assert max(parts_s.values()) < SLEEP_S / 4


@pytest.mark.timed
@pytest.mark.parametrize("options", [{}, {"accumulate_grad_batches": 2, "val_check_interval": 3}])
def test_validation_is_of_no_step(tmp_path: Path, options: dict[str, int]) -> None:
    """The longest of what is timed is no validation, behind an epoch or between two batches whose gradients add up."""
    found = measured(tmp_path, 1, lambda: fit(Model(), validation=loader(), **options))
    assert only(found).state == "counts"
    assert max(timed_parts_s(tmp_path, longest=True).values()) < SLEEP_S


def test_autocast_is_recorded(tmp_path: Path) -> None:
    """Lightning turns it on around the training step."""
    point = only(measured(tmp_path, 1, lambda: fit(Model(), precision="bf16-mixed"))).point
    assert point is not None
    assert point.workload.precision == "bf16"


def failing() -> None:
    """In its tenth step."""
    with pytest.raises(ValueError, match="no more of this"):
        fit(Model(raise_in_step=10))


def test_an_exception_inside(tmp_path: Path) -> None:
    """It goes on, and stands in the records."""
    run = only(measured(tmp_path, 1, failing))
    assert run.state == "missing"
    assert "ValueError: no more of this" in str(run.reason)


def too_short() -> None:
    """A training of fewer steps than were to be measured."""
    fit(Model(), max_steps=10)


def test_a_training_that_ends_before(tmp_path: Path) -> None:
    """What was timed counts."""
    run = only(measured(tmp_path, 1, too_short))
    assert (run.state, run.steady_steps) == ("counts", 10 - 1 - WARMUP)
    (end,) = (tmp_path / "runs").glob("adhoc/*/r1/*/end.json")
    assert json.loads(end.read_text())["protocol"]["stopped_by"] == "the loop"
