"""Which values of a training and of its optimizer cannot go together. Standard library only, Python 3.10."""

from __future__ import annotations

from collections.abc import Iterator

from hpcddp.core.optimizer import Optimizer
from hpcddp.core.point import Measure, Point

OF_MOMENTUM = ("momentum", "nesterov")
OF_MOMENTS = ("betas", "eps")
OF_STEP = ("decay_at_epochs", "decay_factor")
OF_EPOCHS = ("warmup_epochs", "schedule", "batch_at_epochs", "ema_decay")


def training(point: Point) -> Iterator[str]:
    """What a training is, and what only a training has."""
    measure = point.measure
    if point.work != "train":
        for key in _changed(measure, ("epochs", "evaluate_every", "target_accuracy")):
            yield _of_training(point, f"measure.{key}", getattr(measure, key))
        for key in _changed(point.workload.optimizer, OF_EPOCHS):
            yield _of_training(point, f"workload.optimizer.{key}", getattr(point.workload.optimizer, key))
        return
    if measure.epochs is None:
        yield "work is train, but measure.epochs does not say how many. Set it."
    if measure.stop != "steps":
        yield f"work is train and measure.stop is {measure.stop}: a training ends with its epochs. Leave stop out."
    if measure.input != "full":
        yield f"work is train and measure.input is {measure.input}: nothing is learned from that. Leave input out."
    if measure.target_accuracy is None:
        return
    if measure.target_accuracy > 1:
        yield f"measure.target_accuracy is {measure.target_accuracy:g}: it is a share, at most 1. Write 0.93 for 93 %."
    if not measure.evaluate_every:
        yield (
            f"measure.target_accuracy is {measure.target_accuracy:g} and measure.evaluate_every is 0: before the last epoch "
            f"nothing would find that it is reached. Set evaluate_every to 1 or more."
        )


def optimizer(point: Point) -> Iterator[str]:
    """What belongs to another optimizer than the one that is named, and what is out of range."""
    chosen = point.workload.optimizer
    moments = chosen.name in ("adamw", "lamb")
    for key in _changed(chosen, OF_MOMENTUM if moments else OF_MOMENTS):
        others = "sgd and lars" if moments else "adamw and lamb"
        yield (
            f"workload.optimizer.{key} is {_text(getattr(chosen, key))}, but the optimizer is {chosen.name}: that key is of "
            f"{others}. Leave it out."
        )
    if chosen.nesterov and not chosen.momentum and not moments:
        yield "workload.optimizer.nesterov is true and momentum is 0: there is none to look ahead with. Set momentum."
    if len(chosen.betas) != 2 or max(chosen.betas) >= 1:
        yield f"workload.optimizer.betas is {_text(chosen.betas)}: they are two numbers below 1. Write [0.9, 0.999]."
    for key in ("label_smoothing", "ema_decay"):
        if getattr(chosen, key) >= 1:
            yield f"workload.optimizer.{key} is {getattr(chosen, key):g}: it must be below 1. Lower it."


def batches(point: Point) -> Iterator[str]:
    """What a batch that grows needs, and epochs that there are not."""
    chosen, epochs = point.workload.optimizer, point.measure.epochs
    if not chosen.batch_at_epochs:
        for key in _changed(chosen, ("batch_factor",)):
            yield f"workload.optimizer.{key} is {chosen.batch_factor}, but batch_at_epochs names no epoch. Leave it out."
        return
    named = f"workload.optimizer.batch_at_epochs is {_text(chosen.batch_at_epochs)}"
    if chosen.batch_factor == 1:
        yield f"{named} and batch_factor is 1: the batch would stay as it is. Set batch_factor to 2 or more."
    if list(chosen.batch_at_epochs) != sorted(set(chosen.batch_at_epochs)):
        yield f"{named}: each must be later than the one before. Sort it."
    if chosen.batch_at_epochs[0] < chosen.warmup_epochs:
        yield f"{named} and warmup_epochs is {chosen.warmup_epochs:g}: the rate would still rise. Let the batch grow later."
    if epochs is not None and max(chosen.batch_at_epochs) >= epochs:
        yield f"{named}, and measure.epochs is {epochs}: no epoch comes after that. Lower it."


def rates(point: Point) -> Iterator[str]:
    """What belongs to another scaling rule or schedule than the one that is named, and epochs that there are not."""
    chosen, epochs = point.workload.optimizer, point.measure.epochs
    if chosen.scaling != "none" and chosen.base_batch is None:
        yield (
            f"workload.optimizer.scaling is {chosen.scaling}, but base_batch does not say which global batch lr is for. "
            f"Set base_batch."
        )
    if chosen.scaling == "none" and chosen.base_batch is not None:
        yield f"workload.optimizer.base_batch is {chosen.base_batch}, but scaling is none. Set scaling to linear or sqrt."
    unused = () if chosen.schedule == "step" else OF_STEP
    for key in _changed(chosen, (*unused, *(() if chosen.schedule == "polynomial" else ("power",)))):
        yield (
            f"workload.optimizer.{key} is {_text(getattr(chosen, key))}, but schedule is {chosen.schedule}: nothing reads it. "
            f"Set schedule, or leave the key out."
        )
    if chosen.schedule == "step" and not chosen.decay_at_epochs:
        yield "workload.optimizer.schedule is step, but decay_at_epochs names no epoch. Write some, such as [30, 60, 80]."
    if list(chosen.decay_at_epochs) != sorted(set(chosen.decay_at_epochs)):
        found = _text(chosen.decay_at_epochs)
        yield f"workload.optimizer.decay_at_epochs is {found}: each must be later than the one before. Sort it."
    latest = max((chosen.warmup_epochs, *chosen.decay_at_epochs))
    if epochs is not None and latest >= epochs:
        key = "warmup_epochs" if chosen.warmup_epochs >= epochs else "decay_at_epochs"
        yield f"workload.optimizer.{key} has {latest:g}, and measure.epochs is {epochs}: it would never end. Lower it."


def _changed(values: Measure | Optimizer, keys: tuple[str, ...]) -> list[str]:
    """Those of the keys that do not have their default."""
    return [key for key in keys if getattr(values, key) != getattr(type(values), key)]


def _of_training(point: Point, key: str, value: object) -> str:
    return (
        f"{key} is {_text(value)}, but work is {point.work}: only a training has epochs that are evaluated. "
        f"Set work to train, or leave the key out."
    )


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_text, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
