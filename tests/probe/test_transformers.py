"""transformers' Trainer, measured by its callback: gradients that add up, evaluation between steps, DDP around the model."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

from hpcddp.probe.transformers import ScalingCallback
from tests.probe.loops import STEPS, WARMUP, SlowEverySecondTime
from tests.probe.records import measured, only, timed_parts_s

LENGTH, BATCH, SLEEP_S = 16, 2, 0.05


class Tokens(torch.utils.data.Dataset[Any]):
    """Eight sequences; the first of a batch takes its time."""

    def __init__(self, sleep_s: float = 0.0) -> None:
        self._slow = SlowEverySecondTime(sleep_s)

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        self._slow()
        tokens = torch.randint(100, (LENGTH,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": tokens, "labels": tokens}


def train(data: Tokens, evaluated: Tokens | None = None, **options: Any) -> None:
    """A model of one small layer, until enough is measured."""
    shape = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=100, num_attention_heads=2, num_key_value_heads=2, **shape))  # type: ignore[arg-type]
    arguments = TrainingArguments(
        output_dir="nothing",
        per_device_train_batch_size=BATCH,
        max_steps=1000,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        **options,
    )
    callback = ScalingCallback(warmup_steps=WARMUP, steps=STEPS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's on pinned memory where there is no GPU
        Trainer(model=model, args=arguments, train_dataset=data, eval_dataset=evaluated, callbacks=[callback]).train()


@pytest.mark.timed
def test_fetching_is_waiting_for_data(tmp_path: Path) -> None:
    """Of all batches of a step, two samples each of which one is slow; and no part but it."""
    found = measured(tmp_path, 1, lambda: train(Tokens(SLEEP_S), gradient_accumulation_steps=2))
    run = only(found)
    assert (run.state, run.steady_steps, run.losses) == ("counts", STEPS, None)
    assert run.point is not None
    assert run.point.workload.batch_per_gpu == 2 * BATCH
    parts_s = timed_parts_s(tmp_path)
    assert parts_s.pop("data_wait") == pytest.approx(2 * SLEEP_S, rel=0.1)
    assert max(parts_s.values()) < SLEEP_S / 2


@pytest.mark.timed
def test_evaluation_is_of_no_step(tmp_path: Path) -> None:
    """The step behind it counts, without it; an evaluation takes eight sleeps."""
    found = measured(tmp_path, 1, lambda: train(Tokens(), Tokens(SLEEP_S), eval_strategy="steps", eval_steps=5))
    run = only(found)
    assert (run.state, run.steady_steps) == ("counts", STEPS)
    assert max(timed_parts_s(tmp_path, longest=True).values()) < 4 * SLEEP_S


@pytest.mark.dear
def test_autocast_is_recorded(tmp_path: Path) -> None:
    """Accelerate turns it on inside the model's forward."""
    point = only(measured(tmp_path, 1, lambda: train(Tokens(), bf16=True))).point
    assert point is not None
    assert point.workload.precision == "bf16"
