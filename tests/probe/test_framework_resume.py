"""Trainings by frameworks whose sweep has `measure.resume`: told to stop, and gone on with in another job."""

from __future__ import annotations

import json
from pathlib import Path

import lightning  # noqa: F401 - once, for all ranks that are forked
import pytest
import transformers  # noqa: F401

from hpcddp.analysis.study.load import load_study
from hpcddp.core.run_root import Study
from tests.worker.test_script_run import attempt_of, outcomes, point, why

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
@pytest.mark.parametrize("framework", MODELS)
def test_a_training_that_is_told_to_stop_goes_on(tmp_path: Path, framework: str) -> None:
    """The framework loads what was written, counts its steps on, and the run has all of its steps once."""
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
    """What to add, before a step is made."""
    what = point(measure={"resume": True, "steps": 12}, args={"no-checkpoint": True})
    outcomes(tmp_path, what, SIGNAL + FRAMEWORKS[framework])
    assert "measure.resume is true, and nothing loads a checkpoint: give trainer." in why(tmp_path, what)
