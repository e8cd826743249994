"""Measures a training by Lightning: `Trainer(callbacks=[ScalingCallback()])`; docs/probe.md has it. Imports lightning."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.profilers import Profiler

from hpcddp.probe.loop_recorder import FrameworkCallback, LoopRecorder
from hpcddp.probe.script_point import samples_of_batch

CHECKPOINT = "last.ckpt"

BEGINS = {"run_training_epoch", "train_dataloader_next", "training_step", "on_validation_model_zero_grad", "save_checkpoint"}
"""Of what Lightning tells its profiler. What came before was `other`, but waiting for data from an epoch's begin to its batch."""


class ScalingCallback(FrameworkCallback, Callback):
    """Measures steps of `Trainer.fit`, and ends it when enough are; its arguments are those of `measure`.

    samples_per_step: unless it is given, the loader's batch times the trainer's `accumulate_grad_batches`.
    """

    usage = "give trainer.fit(..., ckpt_path=callback.checkpoint)"
    _optimizer_steps = 0

    @property
    def checkpoint(self) -> Path | None:
        """Of an earlier attempt of the run, for `fit(ckpt_path=...)`; None where the run begins, and without `measure.resume`."""
        folder = self._checkpoints.folder
        return folder / CHECKPOINT if folder else None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        loader, batches = trainer.train_dataloader, trainer.accumulate_grad_batches
        samples = self._samples_per_step or batches * samples_of_batch(loader)
        wanted = self._wanted(samples_per_step=samples, iterations_per_step=batches)
        checkpoints = self._checkpoints.ready(partial(self._save, trainer))
        recorder = LoopRecorder(trainer.strategy.model or pl_module, trainer.optimizers, wanted, checkpoints=checkpoints)
        recorder.loader = loader
        recorder.start(watches_calls=False)
        trainer.profiler = _Marks(trainer.profiler, recorder)  # type: ignore[attr-defined]
        self._recorder, self._optimizer_steps = recorder, trainer.global_step

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._recorder:
            self._recorder.pause()

    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, loss: torch.Tensor) -> None:
        if self._recorder:
            self._recorder.hooks.computed(loss)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int, *_: Any
    ) -> None:
        recorder = self._recorder
        if recorder is None:
            return
        recorder.count(batch)
        recorder.end_batch()
        if trainer.global_step == self._optimizer_steps:
            return  # gradients add up
        self._optimizer_steps = trainer.global_step
        loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
        if isinstance(loss, torch.Tensor) and loss.numel() == 1:
            recorder.loss(loss * trainer.accumulate_grad_batches)  # the trainer divided it
        if recorder.end_step():
            trainer.should_stop = True
            self._finish(trainer)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._finish(trainer)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        if recorder := self._released(trainer):
            recorder.fail(exception)

    def _save(self, trainer: Trainer, folder: Path) -> None:
        """Between two steps, in a pause already: nothing is marked."""
        marks = trainer.profiler  # type: ignore[attr-defined]
        trainer.profiler = marks.inner  # type: ignore[attr-defined]
        trainer.save_checkpoint(folder / CHECKPOINT)
        trainer.profiler = marks  # type: ignore[attr-defined]

    def _finish(self, trainer: Trainer) -> None:
        if recorder := self._released(trainer):
            recorder.finish()

    def _released(self, trainer: Trainer) -> LoopRecorder | None:
        """The recorder, once; the trainer has its own profiler again."""
        recorder, self._recorder = self._recorder, None
        if recorder:
            assert isinstance(trainer.profiler, _Marks)  # type: ignore[attr-defined]
            trainer.profiler = trainer.profiler.inner  # type: ignore[attr-defined]
        return recorder


class _Marks(Profiler):
    """Around the trainer's profiler, to which Lightning says what it begins and ends."""

    def __init__(self, inner: Profiler, recorder: LoopRecorder) -> None:
        super().__init__()
        self.inner = inner
        self._recorder = recorder
        self._begins_loader = False
        self._fetched = False
        """A batch to train on, and not moved yet; those of a validation are moved as well."""

    def start(self, action_name: str) -> None:
        if (name := action_name.rpartition(".")[2]) in BEGINS:
            if not self._begins_loader:
                self._recorder.mark("other")
            self._begins_loader = name == "run_training_epoch"
        self.inner.start(action_name)

    def stop(self, action_name: str) -> None:
        self.inner.stop(action_name)
        if action_name.endswith("train_dataloader_next"):
            self._recorder.begin_batch()
            self._fetched = True
        elif self._fetched and action_name.endswith(".batch_to_device"):
            self._recorder.mark("h2d_exposed")
            self._fetched = False
        elif action_name == "save_checkpoint":
            self._recorder.pause()

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["inner"], name)
