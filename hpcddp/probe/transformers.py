"""Measures a training by transformers' Trainer: `callbacks=[ScalingCallback()]`; docs/probe.md has it. Imports transformers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer import OPTIMIZER_NAME, SCHEDULER_NAME, TRAINER_STATE_NAME
from transformers.utils import WEIGHTS_NAME

from hpcddp.core.errors import HpcddpError
from hpcddp.probe.loop_recorder import FrameworkCallback, LoopRecorder


class ScalingCallback(FrameworkCallback, TrainerCallback):
    """Measures steps of `Trainer.train`, and ends it when enough are; its arguments are those of `measure`.

    samples_per_step: unless it is given, the batch per device times the batches whose gradients add up.
    """

    usage = "give trainer.train(resume_from_checkpoint=callback.checkpoint)"

    @property
    def checkpoint(self) -> str | None:
        """Of an earlier attempt, for `train(resume_from_checkpoint=...)`; None where there is none, or no `measure.resume`."""
        folder = self._checkpoints.folder
        return str(folder) if folder else None

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **of_trainer: Any) -> None:
        batches = args.gradient_accumulation_steps
        samples = self._samples_per_step or batches * args.train_batch_size
        wanted = self._wanted(samples_per_step=samples, iterations_per_step=batches)
        checkpoints = self._checkpoints.ready(partial(_save, args, state, of_trainer))
        if checkpoints and (args.fsdp or args.deepspeed):
            raise HpcddpError(
                "measure.resume is true, but each rank has only a part of the model. Set it to false, or train with DDP."
            )
        self._recorder = LoopRecorder(of_trainer["model"], [of_trainer["optimizer"]], wanted, checkpoints=checkpoints)
        self._recorder.loader = of_trainer["train_dataloader"]
        self._counting = of_trainer["model"].register_forward_pre_hook(self._count, with_kwargs=True)
        self._recorder.start()

    def on_step_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Its batches are there, all that add up to one step."""
        if self._recorder:
            self._recorder.begin_batch()

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **of_trainer: Any) -> None:
        if self._recorder and "loss" in of_trainer["logs"]:  # of the training
            self._recorder.mark("other")

    def on_epoch_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """An evaluation and a checkpoint follow; what came before is the training's."""
        if self._recorder:
            self._recorder.mark("other")

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self._pause()

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self._pause()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if self._recorder:
            self._recorder.end_batch()
            if self._recorder.end_step():
                control.should_training_stop = True
                self._finish()

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self._finish()

    def _count(self, _: Any, arguments: Any, keywords: Any) -> None:
        """Samples of a batch are those that the model is called with."""
        if self._recorder and torch.is_grad_enabled():
            self._recorder.count(keywords or arguments)

    def _pause(self) -> None:
        if self._recorder:
            self._recorder.pause()

    def _finish(self) -> None:
        recorder, self._recorder = self._recorder, None
        if recorder:
            self._counting.remove()
            recorder.finish()


def _save(args: TrainingArguments, state: TrainerState, of_trainer: Mapping[str, Any], folder: Path) -> None:
    """What the Trainer reads of a checkpoint of its own, but random numbers and a loss scaler; every rank has it alike."""
    if args.process_index:
        return
    model = of_trainer["model"]
    if hasattr(model, "save_pretrained"):
        model.save_pretrained(folder)
    else:
        torch.save(model.state_dict(), folder / WEIGHTS_NAME)  # a module of the user's own
    torch.save(of_trainer["optimizer"].state_dict(), folder / OPTIMIZER_NAME)
    torch.save(of_trainer["lr_scheduler"].state_dict(), folder / SCHEDULER_NAME)
    state.save_to_json(str(folder / TRAINER_STATE_NAME))
