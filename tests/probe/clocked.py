"""Loops over epochs with a short last batch, each beside a clock of its own: by hand, by Lightning and by transformers.

The clock goes from the last step of the warm-up's epoch to that of the last timed one, and stops for evaluations and checkpoints;
by hand for all that lies between two epochs. Fetching and forward sleep, so that ranks may share a processor.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning
import torch
import torch.distributed as dist
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from transformers import Trainer, TrainerCallback, TrainingArguments

from hpcddp.probe import measure
from hpcddp.probe.lightning import ScalingCallback as ScalingOfLightning
from hpcddp.probe.transformers import ScalingCallback as ScalingOfTransformers
from tests.probe.loops import ddp, group, measured, only

BATCH, LAST, BATCHES = 8, 3, 8
"""Samples of a batch and of an epoch's last one, and batches of an epoch, for each rank."""

EPOCHS = 5
"""That are timed, behind one of warm-up, whose first step counts nowhere."""

COUNTS: Any = {"warmup_steps": BATCHES - 1, "steps": EPOCHS * BATCHES}

FETCH_S, FORWARD_S, BETWEEN_S, EVALUATION_S = 0.01, 0.015, 0.02, 0.05
"""Of a batch, of what a script does at an epoch's end or begin, and of a batch that is evaluated."""


@dataclass
class Clock:
    steps: int = 0
    samples: int = 0
    passed_s: float = 0.0
    since_s: float = 0.0

    @property
    def counts(self) -> bool:
        return BATCHES <= self.steps < (1 + EPOCHS) * BATCHES

    def go(self) -> None:
        self.since_s = time.perf_counter()

    def stop(self) -> None:
        if self.counts:
            self.passed_s += time.perf_counter() - self.since_s

    def step(self) -> None:
        self.stop()
        self.steps += 1
        self.go()

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        self.stop()
        yield
        self.go()


class Samples(Dataset[Any]):
    def __init__(self, ranks: int) -> None:
        self._samples = ranks * ((BATCHES - 1) * BATCH + LAST)

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"inputs": torch.full((4,), index / self._samples), "labels": torch.zeros(())}

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, torch.Tensor]]:
        time.sleep(FETCH_S)
        return [self[index] for index in indices]


class Model(nn.Module):
    """One layer and its loss; the clock counts the samples that it is trained on."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.layer, self.clock = nn.Linear(4, 1), clock

    def forward(self, inputs: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        time.sleep(FORWARD_S if self.training else EVALUATION_S)
        if self.training and self.clock.counts:
            self.clock.samples += len(inputs)
        return {"loss": (self.layer(inputs)[:, 0] - labels).square().mean()}


def by_hand(folder: Path, ranks: int, evaluates: bool, clock: Clock) -> None:
    module, data = Model(clock), Samples(ranks)
    with group() as rank:
        model = ddp(module) if ranks > 1 else module
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        loader = DataLoader(data, batch_size=BATCH, sampler=DistributedSampler(data))
        with measure(model, optimizer, samples_per_step=BATCH, **COUNTS) as steps:
            while not steps.done:
                for batch in steps(loader):
                    loss = model(**batch)["loss"]
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                    clock.step()
                with clock.stopped():
                    time.sleep(BETWEEN_S)
                    if evaluates:
                        evaluate(module.eval(), folder / f"{rank}.pt")
                        module.train()


def evaluate(module: nn.Module, checkpoint: Path) -> None:
    with torch.no_grad():
        module(torch.zeros(1, 4), torch.zeros(1))
    torch.save(module.state_dict(), checkpoint)


class Module(lightning.LightningModule):
    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.model = Model(clock)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss: torch.Tensor = self.model(**batch)["loss"]
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.model(**batch)

    def on_train_epoch_end(self) -> None:
        time.sleep(BETWEEN_S)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


class ClockOfLightning(lightning.Callback):
    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def on_train_batch_end(self, *_: Any) -> None:
        self.clock.step()

    def on_validation_start(self, *_: Any) -> None:
        self.clock.stop()

    def on_validation_end(self, *_: Any) -> None:
        self.clock.go()


class TrainerOfLightning(lightning.Trainer):
    clock: Clock

    def save_checkpoint(self, *arguments: Any, **options: Any) -> None:
        with self.clock.stopped():
            super().save_checkpoint(*arguments, **options)


def by_lightning(folder: Path, ranks: int, evaluates: bool, clock: Clock) -> None:
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    quiet: Any = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary"), False)
    trainer = TrainerOfLightning(
        accelerator="cpu",
        devices=ranks,
        plugins=[LightningEnvironment()],
        max_epochs=100,
        callbacks=[ClockOfLightning(clock), ScalingOfLightning(**COUNTS)],
        default_root_dir=folder,
        enable_checkpointing=evaluates,
        num_sanity_val_steps=0,
        **quiet,
    )
    trainer.clock = clock
    loader = DataLoader(Samples(ranks), batch_size=BATCH)
    trainer.fit(Module(clock), loader, loader if evaluates else None)


class ClockOfTransformers(TrainerCallback):
    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.clock.step()

    def on_epoch_begin(self, *_: Any, **__: Any) -> None:
        time.sleep(BETWEEN_S)


class TrainerOfTransformers(Trainer):
    clock: Clock

    def evaluate(self, *arguments: Any, **options: Any) -> Any:
        with self.clock.stopped():
            return super().evaluate(*arguments, **options)

    def _save_checkpoint(self, *arguments: Any, **options: Any) -> None:
        with self.clock.stopped():
            super()._save_checkpoint(*arguments, **options)


def by_transformers(folder: Path, ranks: int, evaluates: bool, clock: Clock) -> None:
    behind_an_epoch = "epoch" if evaluates else "no"
    arguments = TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=BATCH,
        num_train_epochs=100,
        eval_strategy=behind_an_epoch,
        save_strategy=behind_an_epoch,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        dataloader_pin_memory=False,
    )
    data, callbacks = Samples(ranks), [ClockOfTransformers(clock), ScalingOfTransformers(**COUNTS)]
    trainer = TrainerOfTransformers(
        model=Model(clock), args=arguments, train_dataset=data, eval_dataset=data, callbacks=callbacks
    )
    trainer.clock = clock
    trainer.train()
    if ranks > 1:
        dist.barrier()
        dist.destroy_process_group()


WAYS: dict[str, Callable[[Path, int, bool, Clock], None]] = {
    "by hand": by_hand,
    "Lightning": by_lightning,
    "transformers": by_transformers,
}
"""By name: called in each rank, with a folder for checkpoints, how many ranks there are, and whether it evaluates."""


def in_rank(folder: Path, ranks: int, evaluates: bool, way: str) -> None:
    rank, clock = os.environ["SUBMITIT_LOCAL_GLOBALID"], Clock()
    os.environ |= {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "NODE_RANK": "0"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning's advice on loaders, and on checkpoints
        WAYS[way](folder, ranks, evaluates, clock)
    (folder / f"{rank}.clock").write_text(json.dumps([clock.samples, clock.passed_s]))


def rate_by_clock(way: str, ranks: int, evaluates: bool) -> float:
    """The rate that analysis shows / samples by the mean time of the ranks' clocks."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = only(measured(folder, ranks, in_rank, folder, ranks, evaluates, way))
        clocks = [json.loads(file.read_text()) for file in folder.glob("*.clock")]
    samples, passed_s = map(sum, zip(*clocks, strict=True))
    assert (run.state, run.steady_samples, len(clocks)) == ("counts", samples, ranks)
    assert run.rate_per_s
    return float(run.rate_per_s) / (samples / (passed_s / ranks))
