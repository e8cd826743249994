"""Which values of a point cannot go together: said before a job is queued, and again in the job."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator

from hpcddp.core.errors import UsageError
from hpcddp.core.point import FROM_LIBRARY, Ddp, Fsdp, Measure, Optimizer, Point, Workload

MAX_TELEMETRY_HZ = 10

CROPPED = ("cifar10", "digits")
"""Data sets of which `data.augment` takes crops."""

IN_MEMORY = ("mnist", *CROPPED)
"""Data sets that a rank holds in memory, so that they may lie on its device."""


OF_SCRIPTS = ("script", "args", "samples_per_step")
"""Keys of `workload` that go with a script."""

FILLED_IN = ("batch_per_gpu",)
"""Follows from samples_per_step."""

OF_OWN_LOOP = ("input", "evaluate", "epochs", "evaluate_every", "target_accuracy")
"""Keys of `measure` that say what hpcddp's own loop does."""

NAME = re.compile(r"[A-Za-z][\w-]*")
"""Of an argument, behind its dashes."""

OF_MOMENTUM = ("momentum", "nesterov")
OF_MOMENTS = ("betas", "eps")
OF_STEP = ("decay_at_epochs", "decay_factor")
OF_EPOCHS = ("warmup_epochs", "schedule", "batch_at_epochs", "ema_decay")


def check_point(point: Point) -> None:
    """UsageError with a sentence for each combination that cannot be, or whose result would be taken for another's."""
    found = [sentence for rules in RULES for sentence in rules(point)]
    if found:
        raise UsageError("\n".join(found))


def _parallel(point: Point) -> Iterator[str]:
    """What works with DistributedDataParallel only, and how many devices the others can use."""
    parallel, layout = point.workload.parallel, point.layout
    if parallel == "ddp" or point.sharded:
        return
    if point.by_hand:
        yield from _by_hand(point)
        return
    named = f"workload.parallel is {parallel}"
    if parallel == "none" and point.gpus > 1:
        yield f"{named}: the bare model trains on one GPU, but this point has {point.gpus}. Use one node and one GPU."
    if parallel == "data_parallel" and layout.nodes > 1:
        yield f"{named}: one process cannot reach the GPUs of {layout.nodes} nodes. Set layout.nodes to 1."
    if parallel == "data_parallel" and point.device == "cpu" and point.gpus > 1:
        yield f"{named}: on CPUs it has one device, but this point requests {point.gpus}. Set layout.gpus_per_node to 1."
    if parallel == "data_parallel" and layout.launcher == "torchrun":
        yield f"{named}: there is one process and nothing for torchrun to start. Set layout.launcher to direct."
    if parallel == "data_parallel" and point.workload.compile:  # pytorch/pytorch#94636
        yield f"{named}: torch.compile does not reach the model's replicas. Set workload.compile to false."
    for key, is_set in (
        (f"measure.comm {point.measure.comm}", point.measure.comm != "off"),
        ("workload.ddp", point.workload.ddp != Ddp()),
        ("workload.sync_batchnorm", point.workload.sync_batchnorm),
    ):
        if is_set:
            yield f"{named}: {key} needs ranks that exchange gradients or statistics, and here there are none. Remove it."


def _by_hand(point: Point) -> Iterator[str]:
    """What belongs to the buckets of DistributedDataParallel."""
    named = f"workload.parallel is {point.workload.parallel}"
    if point.measure.comm != "off":
        yield (
            f"{named}: measure.comm {point.measure.comm} times DDP's buckets, and here there are none. All "
            f"communication is in comm_exposed. Set comm to off."
        )
    if point.workload.ddp != Ddp():
        yield f"{named}: workload.ddp configures DDP's buckets, and here each parameter has its own all-reduce. Remove it."


def _communication(point: Point) -> Iterator[str]:
    ddp, comm = point.workload.ddp, point.measure.comm
    if comm != "off" and ddp.compression != "none":
        yield (
            f"measure.comm is {comm} and workload.ddp.compression is {ddp.compression}: both are communication hooks, and "
            f"DDP takes one. Set comm to off or compression to none."
        )
    if comm != "off" and point.measure.input == "io":
        yield f"measure.comm is {comm} and measure.input is io: nothing is trained, so there are no gradients. Set comm to off."
    if ddp.powersgd_rank != 1 and ddp.compression != "powersgd":
        yield (
            f"workload.ddp.powersgd_rank is {ddp.powersgd_rank}, but workload.ddp.compression is {ddp.compression}. "
            f"Set that to powersgd, or remove the rank."
        )
    if point.workload.compile and ddp.bucket_cap_mb is not None and ddp.bucket_cap_mb < 1:  # torch 2.15: an assertion fails
        yield (
            f"workload.compile with workload.ddp.bucket_cap_mb {ddp.bucket_cap_mb:g}: torch.compile splits the model at buckets, "
            f"and the first has 1 MiB. Set bucket_cap_mb to 1 or more."
        )
    if ddp.static_graph and point.workload.accumulate > 1:  # torch 2.15: an internal assertion of its reducer fails
        yield (
            f"workload.ddp.static_graph with workload.accumulate {point.workload.accumulate}: DDP cannot skip the exchange of a "
            f"micro-batch in a static graph. Set accumulate to 1 or static_graph to false."
        )


def _device(point: Point) -> Iterator[str]:
    if point.device == "cuda":
        if not point.measure.keep_memory:
            yield "measure.keep_memory is false: it affects ranks on CPUs only. Remove it."
        return
    if point.workload.sync_batchnorm:
        yield "workload.sync_batchnorm is true: torch's SyncBatchNorm is for GPUs only. Set it to false, or device to cuda."
    if point.workload.ddp.compression == "powersgd":  # torch 2.15: gloo aborts with `op.preamble.length <= op.nbytes`
        yield (
            "workload.ddp.compression is powersgd: on CPUs its all-reduces begin in gloo's threads, on each rank in another "
            "order. Set it to fp16 or none, or device to cuda."
        )
    if point.workload.copy_ahead:
        yield "workload.copy_ahead is true: on CPUs there is no device to copy to. Set it to false, or device to cuda."


def _duration(point: Point) -> Iterator[str]:
    measure = point.measure
    if measure.stop == "seconds" and not measure.seconds:
        yield "measure.stop is seconds, but measure.seconds is not set. Set it, or set stop to steps."
    if measure.seconds is not None and measure.stop != "seconds":
        yield f"measure.seconds is {measure.seconds:g}, but measure.stop is {measure.stop}. Set stop to seconds, or remove it."
    if measure.stop == "interval" and measure.max_steps < measure.steps:
        yield (
            f"measure.max_steps is {measure.max_steps}, below measure.steps {measure.steps}, where the first interval is "
            f"computed. Raise max_steps or lower steps."
        )
    if measure.stop == "interval" and not measure.interval_percent:
        yield "measure.interval_percent is 0: no interval is that narrow. Raise it, or set measure.stop to steps."
    if point.work == "epoch" and measure.stop != "steps":
        yield f"work is epoch and measure.stop is {measure.stop}: an epoch ends with its data. Set stop or work to steps."
    if point.work == "epoch" and measure.input == "synthetic":
        yield "work is epoch and measure.input is synthetic: one repeated batch is not an epoch. Set work to steps."
    if measure.evaluate and measure.input != "full":
        yield (
            f"measure.evaluate is true and measure.input is {measure.input}: nothing is learned that an accuracy could "
            f"measure. Set evaluate to false."
        )


def _restarting(point: Point) -> Iterator[str]:
    measure = point.measure
    if not measure.resume:
        if measure.checkpoint_every_min != Measure.checkpoint_every_min:
            yield (
                f"measure.checkpoint_every_min is {measure.checkpoint_every_min:g}, but measure.resume is false: none is "
                f"written. Set resume to true, or remove the key."
            )
        return
    if measure.stop != "steps":
        yield (
            f"measure.resume is true and measure.stop is {measure.stop}: its end depends on step times, so it would differ "
            f"with and without restarts. Set stop to steps or resume to false."
        )
    if point.workload.ddp.compression == "powersgd":
        yield (
            "measure.resume is true and workload.ddp.compression is powersgd: checkpoints do not contain its state of earlier "
            "gradients. Choose another compression, or set resume to false."
        )


def _data(point: Point) -> Iterator[str]:
    data = point.workload.data
    if data.decoder != "auto" and data.name != "imagenet":
        yield f"workload.data.decoder is {data.decoder}, and {data.name} has no files to decode; only imagenet has. Remove it."
    if data.augment != "none" and data.name not in CROPPED:
        yield f"workload.data.augment is {data.augment}, which is for {' and '.join(CROPPED)}, not for {data.name}. Remove it."
    if data.form != "shards" and data.name != "bigmnist":
        yield f"workload.data.form is {data.form}, and {data.name} has no forms; only bigmnist has. Remove it."


def _staging(point: Point) -> Iterator[str]:
    data = point.workload.data
    if data.stage == "none" or point.workload.script:
        return
    if data.name.startswith("synthetic-"):
        yield f"workload.data.stage is {data.stage}, and {data.name} has no files to copy. Remove it."
    elif point.measure.input == "synthetic":
        yield f"workload.data.stage is {data.stage}, and measure.input synthetic reads no data. Remove one of them."


def _resident(point: Point) -> Iterator[str]:
    workload = point.workload
    if not workload.data.resident:
        return
    if workload.data.name not in IN_MEMORY:
        yield (
            f"workload.data.resident is true, and {workload.data.name} is not held in memory: {', '.join(IN_MEMORY)} are. "
            f"Set it to false."
        )
    if workload.loader_workers:
        yield (
            f"workload.data.resident is true and workload.loader_workers_per_rank is {workload.loader_workers_per_rank}: batches "
            f"are gathered on the device, and no process loads them. Set loader_workers_per_rank to 0."
        )
    if workload.copy_ahead:
        yield "workload.data.resident and workload.copy_ahead are true: no batch is copied to the GPU. Set copy_ahead to false."


def _watching(point: Point) -> Iterator[str]:
    measure = point.measure
    if measure.profile_steps and not measure.profile_ranks:
        yield f"measure.profile_steps is {measure.profile_steps}, but measure.profile_ranks has no rank. Add one, such as [0]."
    beyond = [rank for rank in measure.profile_ranks if not 0 <= rank < point.ranks]
    if measure.profile_steps and beyond:
        yield f"measure.profile_ranks has {beyond[0]}: this point has the ranks 0 to {point.ranks - 1}. Choose from these."
    if measure.telemetry_hz > MAX_TELEMETRY_HZ:
        yield (
            f"measure.telemetry_hz is {measure.telemetry_hz:g}: more than {MAX_TELEMETRY_HZ} readings per second would "
            f"disturb the run. Lower it."
        )


def _own_script(point: Point) -> Iterator[str]:
    """What the script decides itself, and what its arguments may be."""
    workload, measure = point.workload, point.measure
    if workload.script is None:
        for key in _changed(workload, OF_SCRIPTS):
            yield f"workload.{key} goes with workload.script, the path of a training script, which this sweep does not set."
        return
    named = f"workload.script is {workload.script}"
    if point.work != "steps":
        yield f"{named} and work is {point.work}: only the script defines an epoch. Remove work."
    own = (each.name for each in dataclasses.fields(workload) if each.name not in (*OF_SCRIPTS, *FILLED_IN))
    for key in _changed(workload, own):
        if not workload.model:  # else the job found it
            yield f"{named}: workload.{key} is defined by the script. Pass it as an argument: workload.args.NAME."
    if workload.samples_per_step is None and workload.batch_per_gpu != Workload.batch_per_gpu and not workload.model:
        yield f"{named}: workload.batch_per_gpu is defined by the script. Set workload.samples_per_step instead."
    for key in _changed(measure, OF_OWN_LOOP):
        yield f"{named}: measure.{key} applies to hpcddp's own loop only. Remove it."
    for name, value in workload.args.items():
        if not NAME.fullmatch(name):
            yield f"workload.args: `{name}` cannot be the name of an argument: letters, digits, - and _."
        values = value if isinstance(value, list) else [value]
        if not all(each is None or isinstance(each, (str, int, float)) for each in values):
            yield f"workload.args.{name} is {value!r}: write text, a number, true or false, or a list of these."


def _sharding(point: Point) -> Iterator[str]:
    """What is DDP's alone, what is not correct on a part of a parameter, and what was never compared with an unsharded run."""
    workload = point.workload
    if not point.sharded:
        if workload.fsdp != Fsdp():
            yield (
                f"workload.fsdp is set, but workload.parallel is {workload.parallel}: nothing is sharded. Set parallel to "
                f"fsdp or hsdp, or remove workload.fsdp."
            )
        return
    yield from (f"workload.parallel is {workload.parallel}: {sentence}" for sentence in _not_with_shards(point))


def _not_with_shards(point: Point) -> Iterator[str]:
    workload, layout = point.workload, point.layout
    if workload.parallel == "hsdp" and layout.gpus_per_node == 1 and layout.nodes > 1:
        yield "each node has all parameters, so with one GPU per node nothing is sharded. Set parallel to ddp or fsdp."
    if workload.ddp != Ddp():
        yield "workload.ddp configures DDP's all-reduce, which sharding does not use. Remove it."
    if point.measure.comm == "check":
        yield "measure.comm check compares two measurements of DDP's all-reduce. Set comm to on to mark waits for parameters."
    if workload.optimizer.name in FROM_LIBRARY:
        yield (
            f"workload.optimizer.name is {workload.optimizer.name}, which needs the norms of whole parameters, but a rank "
            f"has a part of each. Set it to sgd or adamw."
        )
    if workload.compile:
        yield "workload.compile cannot compile across the gathering of parameters. Set compile to false."
    if workload.sync_batchnorm:
        yield "workload.sync_batchnorm was never compared with one process when sharded. Set sync_batchnorm to false."
    if workload.channels_last:
        yield "workload.channels_last has no effect: gathering restores the order of dimensions. Set it to false."


def _training(point: Point) -> Iterator[str]:
    """What a training is, and what only a training has."""
    measure = point.measure
    if point.work != "train":
        for key in _changed(measure, ("epochs", "evaluate_every", "target_accuracy")):
            yield _of_training(point, f"measure.{key}", getattr(measure, key))
        for key in _changed(point.workload.optimizer, OF_EPOCHS):
            yield _of_training(point, f"workload.optimizer.{key}", getattr(point.workload.optimizer, key))
        return
    if measure.epochs is None:
        yield "work is train, but measure.epochs is not set. Set it."
    if measure.stop != "steps":
        yield f"work is train and measure.stop is {measure.stop}: a training ends with its epochs. Remove stop."
    if measure.input != "full":
        yield f"work is train and measure.input is {measure.input}: nothing is learned from that. Remove input."
    if measure.target_accuracy is None:
        return
    if measure.target_accuracy > 1:
        yield f"measure.target_accuracy is {measure.target_accuracy:g}: it is a share, at most 1. Write 0.93 for 93 %."
    if not measure.evaluate_every:
        yield (
            f"measure.target_accuracy is {measure.target_accuracy:g} and measure.evaluate_every is 0: before the last epoch "
            f"no evaluation could find that it is reached. Set evaluate_every to 1 or more."
        )


def _optimizer(point: Point) -> Iterator[str]:
    """What belongs to another optimizer than the one that is named, and what is out of range."""
    chosen = point.workload.optimizer
    moments = chosen.name in ("adamw", "lamb")
    for key in _changed(chosen, OF_MOMENTUM if moments else OF_MOMENTS):
        others = "sgd and lars" if moments else "adamw and lamb"
        yield (
            f"workload.optimizer.{key} is {_text(getattr(chosen, key))}, but the optimizer is {chosen.name}: that key belongs to "
            f"{others}. Remove it."
        )
    if chosen.nesterov and not chosen.momentum and not moments:
        yield "workload.optimizer.nesterov is true and momentum is 0: nesterov needs momentum. Set momentum."
    if len(chosen.betas) != 2 or max(chosen.betas) >= 1:
        yield f"workload.optimizer.betas is {_text(chosen.betas)}: two numbers below 1 are expected. Write [0.9, 0.999]."
    for key in ("label_smoothing", "ema_decay"):
        if getattr(chosen, key) >= 1:
            yield f"workload.optimizer.{key} is {getattr(chosen, key):g}: it must be below 1. Lower it."


def _batches(point: Point) -> Iterator[str]:
    """What a batch that grows needs, and epochs that there are not."""
    chosen, epochs = point.workload.optimizer, point.measure.epochs
    if not chosen.batch_at_epochs:
        for key in _changed(chosen, ("batch_factor",)):
            yield f"workload.optimizer.{key} is {chosen.batch_factor}, but batch_at_epochs has no epoch. Remove it."
        return
    named = f"workload.optimizer.batch_at_epochs is {_text(chosen.batch_at_epochs)}"
    if chosen.batch_factor == 1:
        yield f"{named} and batch_factor is 1: the batch would not grow. Set batch_factor to 2 or more."
    if list(chosen.batch_at_epochs) != sorted(set(chosen.batch_at_epochs)):
        yield f"{named}: each must be later than the one before. Sort it."
    if chosen.batch_at_epochs[0] < chosen.warmup_epochs:
        yield f"{named} and warmup_epochs is {chosen.warmup_epochs:g}: the rate would still rise. Grow the batch later."
    if epochs is not None and max(chosen.batch_at_epochs) >= epochs:
        yield f"{named}, and measure.epochs is {epochs}: no epoch follows that one. Lower it."


def _rates(point: Point) -> Iterator[str]:
    """What belongs to another scaling rule or schedule than the one that is named, and epochs that there are not."""
    chosen, epochs = point.workload.optimizer, point.measure.epochs
    if chosen.scaling != "none" and chosen.base_batch is None:
        yield (
            f"workload.optimizer.scaling is {chosen.scaling}, but base_batch, the global batch that lr is for, is not set. "
            f"Set base_batch."
        )
    if chosen.scaling == "none" and chosen.base_batch is not None:
        yield f"workload.optimizer.base_batch is {chosen.base_batch}, but scaling is none. Set scaling to linear or sqrt."
    unused = () if chosen.schedule == "step" else OF_STEP
    for key in _changed(chosen, (*unused, *(() if chosen.schedule == "polynomial" else ("power",)))):
        yield (
            f"workload.optimizer.{key} is {_text(getattr(chosen, key))}, but schedule is {chosen.schedule}, which ignores it. "
            f"Set schedule, or remove the key."
        )
    if chosen.schedule == "step" and not chosen.decay_at_epochs:
        yield "workload.optimizer.schedule is step, but decay_at_epochs has no epoch. Add some, such as [30, 60, 80]."
    if list(chosen.decay_at_epochs) != sorted(set(chosen.decay_at_epochs)):
        found = _text(chosen.decay_at_epochs)
        yield f"workload.optimizer.decay_at_epochs is {found}: each must be later than the one before. Sort it."
    latest = max((chosen.warmup_epochs, *chosen.decay_at_epochs))
    if epochs is not None and latest >= epochs:
        key = "warmup_epochs" if chosen.warmup_epochs >= epochs else "decay_at_epochs"
        yield f"workload.optimizer.{key} has {latest:g}, and measure.epochs is {epochs}: the training ends before. Lower it."


def _changed(values: Workload | Measure | Optimizer, keys: Iterable[str]) -> list[str]:
    """Those of the keys that do not have their default."""
    defaults = type(values)()
    return [key for key in keys if getattr(values, key) != getattr(defaults, key)]


def _of_training(point: Point, key: str, value: object) -> str:
    return (
        f"{key} is {_text(value)}, but work is {point.work}: only a training has epochs that are evaluated. "
        f"Set work to train, or remove the key."
    )


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_text, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


RULES = (
    *(_own_script, _parallel, _sharding, _communication, _device, _duration, _training, _optimizer, _rates, _batches),
    *(_restarting, _data, _staging, _resident, _watching),
)
