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
    """L2 penalty; of AdamW and LAMB behind the moments."""
    name: Literal["sgd", "adamw", "lars", "lamb"] = added_later("sgd")
    """lars and lamb need pytorch-optimizer, whose LARS neither adapts nor decays parameters of one dimension."""
    nesterov: bool = added_later(False)
    """SGD and LARS only."""
    betas: tuple[NonNegative, ...] = added_later((0.9, 0.999))
    """AdamW and LAMB only."""
    eps: NonNegative | None = added_later(None)
    """None: 1e-8 for AdamW, 1e-6 for LAMB."""
    weight_decay_on: Literal["all", "weights"] = added_later("all")
    """weights: parameters of one dimension (biases, normalization) are not decayed."""
    scaling: Literal["none", "linear", "sqrt"] = added_later("none")
    """How `lr` follows the global batch: not, times batch / base_batch, or times the root of that."""
    base_batch: Positive | None = added_later(None)
    """`scaling` only, which needs it: the batch that `lr` is for."""
    warmup_epochs: NonNegative = added_later(0.0)
    """`work: train` only: the rate grows linearly from 0, step by step."""
    schedule: Literal["constant", "step", "cosine", "polynomial"] = added_later("constant")
    """`work: train` only. step: times decay_factor at each of decay_at_epochs. cosine, polynomial: to 0 at the end of
    `measure.epochs`."""
    decay_at_epochs: tuple[Positive, ...] = added_later(())
    """`schedule: step` only, such as [30, 60, 80]."""
    decay_factor: NonNegative = added_later(0.1)
    """`schedule: step` only."""
    power: NonNegative = added_later(2.0)
    """`schedule: polynomial` only: the rate is (share of steps left) to this power."""
    batch_at_epochs: tuple[Positive, ...] = added_later(())
    """`work: train` only: after so many epochs, such as [30, 60, 80], the batch per GPU is batch_factor times as large (arXiv
    1711.00489); with `scaling` the rate too."""
    batch_factor: Positive = added_later(2)
    """`batch_at_epochs` only."""
    label_smoothing: NonNegative = added_later(0.0)
    """Share of the target that all classes get alike while training."""
    ema_decay: NonNegative = added_later(0.0)
    """`work: train` only: a moving average of the parameters is evaluated, which a step moves by 1 - ema_decay of the way, or by
    9 / (10 + n) after n steps if that is more. 0: none."""

    @property
    def numbers_per_parameter(self) -> int:
        """What is held beside a parameter and its gradient from step to step."""
        moments = 2 if self.name in ("adamw", "lamb") else int(self.momentum > 0)
        return moments + (self.ema_decay > 0)
