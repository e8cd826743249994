"""How parameters are updated: `workload.optimizer` of a sweep. Standard library only, Python 3.10: jobs read it too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hpcddp.core.schema import NonNegative, Positive, added_later

LIBRARY, LIBRARY_MODULE = "pytorch-optimizer", "pytorch_optimizer"
"""Has what torch has not."""

FROM_LIBRARY = ("lars", "lamb")


@dataclass(frozen=True, kw_only=True)
class Optimizer:
    """The optimizer, its learning rate, and what else belongs to a recipe. Nothing is scaled, warmed up or left out unasked."""

    lr: NonNegative = 0.01
    """Learning rate."""
    momentum: NonNegative = 0.9
    """Of SGD and LARS; 0: none."""
    weight_decay: NonNegative = 0.0
    """L2 penalty on the parameters; of AdamW and LAMB behind the moments."""
    name: Literal["sgd", "adamw", "lars", "lamb"] = added_later("sgd")
    """lars and lamb are those of pytorch-optimizer, which the compute environment must have. Its LARS neither adapts nor decays
    parameters of one dimension."""
    nesterov: bool = added_later(False)
    """Nesterov's momentum instead of the usual one; SGD and LARS."""
    betas: tuple[NonNegative, ...] = added_later((0.9, 0.999))
    """Of AdamW and LAMB: decay rates of the two moments."""
    eps: NonNegative | None = added_later(None)
    """Of AdamW (None: 1e-8) and LAMB (None: 1e-6): what keeps the denominator from 0."""
    weight_decay_on: Literal["all", "weights"] = added_later("all")
    """weights: biases and what normalization layers have, all parameters of one dimension, are not decayed."""
    scaling: Literal["none", "linear", "sqrt"] = added_later("none")
    """How `lr` becomes the rate of a larger global batch: as it is, times batch / base_batch, or times the root of that."""
    base_batch: Positive | None = added_later(None)
    """`scaling` only, which needs it: the global batch that `lr` is for."""
    warmup_epochs: NonNegative = added_later(0.0)
    """`work: train` only: epochs over which the rate grows linearly from 0, step by step. Not the steps that are not timed."""
    schedule: Literal["constant", "step", "cosine", "polynomial"] = added_later("constant")
    """`work: train` only: how the rate falls after warmup_epochs. step: times decay_factor at each of decay_at_epochs. cosine and
    polynomial: step by step, to 0 at the end of `measure.epochs`."""
    decay_at_epochs: tuple[Positive, ...] = added_later(())
    """`schedule: step` only: after so many epochs, such as [30, 60, 80]."""
    decay_factor: NonNegative = added_later(0.1)
    """`schedule: step` only."""
    power: NonNegative = added_later(2.0)
    """`schedule: polynomial` only: the rate is (share of the steps that is left) to this power."""
    batch_at_epochs: tuple[Positive, ...] = added_later(())
    """`work: train` only: after so many epochs, such as [30, 60, 80], the batch per GPU is batch_factor times as large, instead
    of a rate that falls (Smith et al. 2018, arXiv 1711.00489); with `scaling` the rate grows with it."""
    batch_factor: Positive = added_later(2)
    """`batch_at_epochs` only."""
    label_smoothing: NonNegative = added_later(0.0)
    """Share of the target that all classes get alike while training; evaluation is without."""
    ema_decay: NonNegative = added_later(0.0)
    """`work: train` only: an exponential moving average of the parameters is evaluated, which a step moves by 1 - ema_decay of
    the way, or by 9 / (10 + n) after n steps where that is more. 0: the parameters are evaluated."""

    @property
    def numbers_per_parameter(self) -> int:
        """What is held beside a parameter and its gradient from step to step."""
        moments = 2 if self.name in ("adamw", "lamb") else int(self.momentum > 0)
        return moments + (self.ema_decay > 0)
