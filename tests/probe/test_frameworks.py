"""Lightning's and transformers' loops, measured by their callbacks, and gone on with in another job."""

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
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

from hpcddp.analysis.study.load import load_study
from hpcddp.core.run_root import Study
from hpcddp.probe.lightning import ScalingCallback
from hpcddp.probe.transformers import ScalingCallback as ScalingOfTransformers
from tests.probe.loops import BATCH, STEPS, WARMUP, SlowEverySecondTime, loader, measured, network, only, point_of, timed_parts_s
from tests.worker.test_script_run import attempt_of, outcomes, point, why

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
    """Samples of a step are those of its batches, the loss is that of the batch and no share of it, autocast is the trainer's."""
    options = {"accumulate_grad_batches": 2, "tokens_per_step": 160, "precision": "bf16-mixed"}
    run = only(measured(tmp_path, 1, lambda: fit(Model(), **options)))
    assert (run.state, run.steady_steps, run.used.tokens_per_sample) == ("counts", STEPS, 10)
    work, script = point_of(run).workload, point_of(run).script
    assert script is not None
    assert (work.batch_per_gpu, script.iterations_per_step, work.precision) == (2 * BATCH, 2, "bf16")
    assert work.model.endswith(":Model")
    assert run.losses is not None
    assert run.losses.start == pytest.approx(1.4, abs=0.5)  # of four classes, ln 4 without training


@pytest.mark.timed
@pytest.mark.parametrize("where", ["forward", "h2d_exposed"])
def test_a_sleep_is_in_its_part(tmp_path: Path, where: str) -> None:
    measured(tmp_path, 1, lambda: fit(Model(where)))
    parts_s = timed_parts_s(tmp_path)
    assert parts_s.pop(where) == pytest.approx(SLEEP_S, rel=0.1)
    assert max(parts_s.values()) < SLEEP_S / 4


@pytest.mark.timed
def test_beginning_a_loader_is_waiting_for_data(tmp_path: Path) -> None:
    measured(tmp_path, 1, lambda: fit(Model(), batches=SlowToBegin(loader().dataset, batch_size=BATCH)))
    parts_s = timed_parts_s(tmp_path, longest=True)
    assert parts_s.pop("data_wait") == pytest.approx(SLEEP_S, rel=0.1)
    assert max(parts_s.values()) < SLEEP_S / 4


@pytest.mark.timed
@pytest.mark.parametrize("options", [{}, {"accumulate_grad_batches": 2, "val_check_interval": 3}])
def test_validation_is_of_no_step(tmp_path: Path, options: dict[str, int]) -> None:
    found = measured(tmp_path, 1, lambda: fit(Model(), validation=loader(), **options))
    assert only(found).state == "counts"
    assert max(timed_parts_s(tmp_path, longest=True).values()) < SLEEP_S


def test_an_exception_inside(tmp_path: Path) -> None:
    """It goes on, and stands in the records."""

    def failing() -> None:
        with pytest.raises(ValueError, match="no more of this"):
            fit(Model(raise_in_step=10))

    run = only(measured(tmp_path, 1, failing))
    assert run.state == "missing"
    assert "ValueError: no more of this" in str(run.reason)


def test_a_training_that_ends_before(tmp_path: Path) -> None:
    run = only(measured(tmp_path, 1, lambda: fit(Model(), max_steps=10)))
    assert (run.state, run.steady_steps) == ("counts", 10 - 1 - WARMUP)
    (end,) = (tmp_path / "runs").glob("adhoc/*/r1/*/end.json")
    assert json.loads(end.read_text())["protocol"]["stopped_by"] == "the loop"


LENGTH, SEQUENCES, FETCH_S = 16, 2, 0.05


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


def train_tokens(data: Tokens, evaluated: Tokens | None = None, **options: Any) -> None:
    shape = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=100, num_attention_heads=2, num_key_value_heads=2, **shape))  # type: ignore[arg-type]
    arguments = TrainingArguments(
        output_dir="nothing",
        per_device_train_batch_size=SEQUENCES,
        max_steps=1000,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        **options,
    )
    callback = ScalingOfTransformers(warmup_steps=WARMUP, steps=STEPS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's on pinned memory where there is no GPU
        Trainer(model=model, args=arguments, train_dataset=data, eval_dataset=evaluated, callbacks=[callback]).train()


@pytest.mark.timed
def test_fetching_is_waiting_for_data(tmp_path: Path) -> None:
    """Of all batches of a step, two samples each of which one is slow; and no part but it."""
    run = only(measured(tmp_path, 1, lambda: train_tokens(Tokens(FETCH_S), gradient_accumulation_steps=2)))
    assert (run.state, run.steady_steps, run.losses) == ("counts", STEPS, None)
    assert point_of(run).workload.batch_per_gpu == 2 * SEQUENCES
    parts_s = timed_parts_s(tmp_path)
    assert parts_s.pop("data_wait") == pytest.approx(2 * FETCH_S, rel=0.1)
    assert max(parts_s.values()) < FETCH_S / 2


@pytest.mark.timed
def test_evaluation_is_of_no_step(tmp_path: Path) -> None:
    """The step behind it counts, without it; an evaluation takes eight sleeps."""
    run = only(measured(tmp_path, 1, lambda: train_tokens(Tokens(), Tokens(FETCH_S), eval_strategy="steps", eval_steps=5)))
    assert (run.state, run.steady_steps) == ("counts", STEPS)
    assert max(timed_parts_s(tmp_path, longest=True).values()) < 4 * FETCH_S


@pytest.mark.dear
def test_accelerates_autocast_is_recorded(tmp_path: Path) -> None:
    """It is inside the model's forward."""
    assert point_of(only(measured(tmp_path, 1, lambda: train_tokens(Tokens(), bf16=True)))).workload.precision == "bf16"


SIGNAL = """\
import signal
import time
import warnings

warnings.simplefilter("ignore")
asked = "--no-checkpoint" not in sys.argv


def slowly(step):
    if os.environ["HPCDDP_JOB"] == "7":
        time.sleep(0.55)
        if step == 5:
            os.kill(os.getpid(), signal.SIGUSR2)

"""
"""Ranks ask what to do after each step that takes more than half a second."""

LIGHTNING = """\
import lightning
from torch.utils.data import DataLoader, TensorDataset

from hpcddp.probe.lightning import ScalingCallback


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = torch.nn.Linear(8, 4)

    def training_step(self, batch, batch_idx):
        slowly(self.global_step)
        return self.model(batch[0]).square().mean()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())


callback = ScalingCallback()
quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
trainer = lightning.Trainer(accelerator="cpu", devices=1, max_epochs=100, callbacks=[callback], **quiet)
trainer.fit(Model(), DataLoader(TensorDataset(torch.ones(64, 8)), batch_size=4), ckpt_path=callback.checkpoint if asked else None)
print(f"made {trainer.global_step} steps")
"""

TRANSFORMERS = """\
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

from hpcddp.probe.transformers import ScalingCallback


class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        slowly(trainer.state.global_step)
        return {"input_ids": torch.arange(8), "labels": torch.arange(8)}


shape = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2}
arguments = TrainingArguments(
    "out", per_device_train_batch_size=1, max_steps=1000, save_strategy="no", report_to=[], disable_tqdm=True, use_cpu=True
)
callback = ScalingCallback()
trainer = Trainer(LlamaForCausalLM(LlamaConfig(vocab_size=100, **shape)), arguments, train_dataset=Tokens(), callbacks=[callback])
trainer.train(resume_from_checkpoint=callback.checkpoint if asked else None)
print(f"made {trainer.state.global_step} steps")
"""

LLAMA = "LlamaForCausalLM(LlamaConfig(vocab_size=100, **shape))"

OWN_MODULE = """\
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(100, 4)

    def forward(self, input_ids, labels):
        return {"loss": self.embedding(input_ids).square().mean()}


"""
"""The Trainer takes what is no model of the library's, too."""

FRAMEWORKS = {"lightning": LIGHTNING, "transformers": TRANSFORMERS}

MODELS = {**FRAMEWORKS, "transformers, own module": OWN_MODULE + TRANSFORMERS.replace(LLAMA, "Model()")}


@pytest.mark.dear
@pytest.mark.parametrize(
    "framework", ["lightning", "transformers, own module", pytest.param("transformers", marks=pytest.mark.soak)]
)
def test_a_training_that_is_told_to_stop_goes_on(tmp_path: Path, framework: str) -> None:
    what, text = point(measure={"resume": True, "steps": 12}), SIGNAL + MODELS[framework]
    (first,) = outcomes(tmp_path, what, text)
    assert first.code == 0, first.output
    end = json.loads((attempt_of(tmp_path, what) / "end.json").read_text())
    assert end["state"] == "interrupted"
    (second,) = outcomes(tmp_path, what, text, job="8")
    assert second.code == 0, second.output
    (found,) = load_study(Study(tmp_path / "study")).runs
    assert (found.state, found.reason, found.restarts, found.lost_steps) == ("counts", None, 1, 0)
    assert json.loads((attempt_of(tmp_path, what, "8") / "launch.json").read_text())["resumed"]["step"] == end["steps"]
    assert f"made {4 + 12 + 2} steps" in second.output, "those that count, and one before them in each attempt"


@pytest.mark.dear
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_training_that_would_begin_again(tmp_path: Path, framework: str) -> None:
    what = point(measure={"resume": True, "steps": 12}, args={"no-checkpoint": True})
    outcomes(tmp_path, what, SIGNAL + FRAMEWORKS[framework])
    assert "measure.resume is true, but nothing loads a checkpoint: give trainer." in why(tmp_path, what)
