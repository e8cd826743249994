"""Which values of a point cannot go together: said before a job is queued, and again in the job.

Standard library only, Python 3.10.
"""

from __future__ import annotations

from collections.abc import Iterator

from hpcddp.core.errors import UsageError
from hpcddp.core.point import Ddp, Fsdp, Measure, Point
from hpcddp.core.training_rules import batches, optimizer, rates, training

MAX_TELEMETRY_HZ = 10

CROPPED = ("cifar10", "digits")
"""Data sets of which `data.augment` takes crops."""

IN_MEMORY = ("mnist", *CROPPED)
"""Data sets that a rank holds in memory, so that they may lie on its device."""


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
        yield f"{named}: the bare model trains on one GPU, and this point has {point.gpus}. Use one node and one GPU."
    if parallel == "data_parallel" and layout.nodes > 1:
        yield f"{named}: one process cannot reach the GPUs of {layout.nodes} nodes. Set layout.nodes to 1."
    if parallel == "data_parallel" and point.device == "cpu" and point.gpus > 1:
        yield f"{named}: on CPUs it has one device, and this point asks for {point.gpus}. Set layout.gpus_per_node to 1."
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
            yield f"{named}: {key} is about gradients or statistics that ranks exchange, and here none do. Leave it out."


def _by_hand(point: Point) -> Iterator[str]:
    """What belongs to the buckets of DistributedDataParallel."""
    named = f"workload.parallel is {point.workload.parallel}"
    if point.measure.comm != "off":
        yield (
            f"{named}: measure.comm {point.measure.comm} times DDP's buckets, and here there are none: the exchange is all of "
            f"comm_exposed. Set comm to off."
        )
    if point.workload.ddp != Ddp():
        yield f"{named}: workload.ddp is about DDP's exchange, and here every parameter travels by itself. Leave it out."


def _script(point: Point) -> Iterator[str]:
    """Imported where there is a script, or what goes with one: a plain render has no time for it."""
    workload = point.workload
    if workload.script is not None or workload.args or workload.samples_per_step is not None:
        from hpcddp.core.script_rules import own_script

        yield from own_script(point)


def _sharding(point: Point) -> Iterator[str]:
    """Imported where something is sharded, as the rules of scripts are."""
    if point.sharded or point.workload.fsdp != Fsdp():
        from hpcddp.core.sharding_rules import sharding

        yield from sharding(point)


def _communication(point: Point) -> Iterator[str]:
    ddp, comm = point.workload.ddp, point.measure.comm
    if comm != "off" and ddp.compression != "none":
        yield (
            f"measure.comm is {comm} and workload.ddp.compression is {ddp.compression}: both are communication hooks, and "
            f"DDP takes one. Set comm to off or compression to none."
        )
    if comm != "off" and point.measure.input == "io":
        yield f"measure.comm is {comm} and measure.input is io: nothing is trained, so no gradients travel. Set comm to off."
    if ddp.powersgd_rank != 1 and ddp.compression != "powersgd":
        yield (
            f"workload.ddp.powersgd_rank is {ddp.powersgd_rank}, but workload.ddp.compression is {ddp.compression}. "
            f"Set that to powersgd, or leave the rank out."
        )
    if point.workload.compile and ddp.bucket_cap_mb is not None and ddp.bucket_cap_mb < 1:  # torch 2.15: an assertion fails
        yield (
            f"workload.compile with workload.ddp.bucket_cap_mb {ddp.bucket_cap_mb:g}: torch.compile splits the model at buckets "
            f"of which the first has 1 MiB. Set bucket_cap_mb to 1 or more."
        )
    if ddp.static_graph and point.workload.accumulate > 1:  # torch 2.15: an internal assertion of its reducer fails
        yield (
            f"workload.ddp.static_graph with workload.accumulate {point.workload.accumulate}: DDP cannot skip the exchange of a "
            f"micro-batch in a static graph. Set accumulate to 1 or static_graph to false."
        )


def _device(point: Point) -> Iterator[str]:
    if point.device == "cuda":
        if not point.measure.keep_memory:
            yield "measure.keep_memory is false: it is about ranks on CPUs, and changes nothing on GPUs. Leave it out."
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
        yield "measure.stop is seconds, but measure.seconds does not say how many. Set it, or stop to steps."
    if measure.seconds is not None and measure.stop != "seconds":
        yield f"measure.seconds is {measure.seconds:g}, but measure.stop is {measure.stop}. Set stop to seconds, or leave it out."
    if measure.stop == "interval" and measure.max_steps < measure.steps:
        yield (
            f"measure.max_steps is {measure.max_steps}, fewer than measure.steps {measure.steps}, from which on the interval is "
            f"looked at. Raise max_steps or lower steps."
        )
    if measure.stop == "interval" and not measure.interval_percent:
        yield "measure.interval_percent is 0: no interval is that narrow. Raise it, or set measure.stop to steps."
    if point.work == "epoch" and measure.stop != "steps":
        yield f"work is epoch and measure.stop is {measure.stop}: an epoch ends with its data. Set stop or work to steps."
    if point.work == "epoch" and measure.input == "synthetic":
        yield "work is epoch and measure.input is synthetic: one batch over and over is no epoch. Set work to steps."
    if measure.evaluate and measure.input != "full":
        yield (
            f"measure.evaluate is true and measure.input is {measure.input}: nothing is learned from the data that an accuracy "
            f"could show. Set evaluate to false."
        )


def _restarting(point: Point) -> Iterator[str]:
    measure = point.measure
    if not measure.resume:
        if measure.checkpoint_every_min != Measure.checkpoint_every_min:
            yield (
                f"measure.checkpoint_every_min is {measure.checkpoint_every_min:g}, but measure.resume is false: none is "
                f"written. Set resume to true, or leave the key out."
            )
        return
    if measure.stop != "steps":
        yield (
            f"measure.resume is true and measure.stop is {measure.stop}: a run that its step times end has no end that is the "
            f"same with and without restarts. Set stop to steps or resume to false."
        )
    if point.workload.ddp.compression == "powersgd":
        yield (
            "measure.resume is true and workload.ddp.compression is powersgd: what it keeps of earlier gradients is in no "
            "checkpoint. Choose another compression, or set resume to false."
        )


def _data(point: Point) -> Iterator[str]:
    data = point.workload.data
    if data.decoder != "auto" and data.name != "imagenet":
        yield f"workload.data.decoder is {data.decoder}, and {data.name} has no files to decode: imagenet has. Leave it out."
    if data.augment != "none" and data.name not in CROPPED:
        yield f"workload.data.augment is {data.augment}, which is for {' and '.join(CROPPED)}, not for {data.name}. Leave it out."
    if data.form != "shards" and data.name != "bigmnist":
        yield f"workload.data.form is {data.form}, and {data.name} has no forms: bigmnist has. Leave it out."


def _staging(point: Point) -> Iterator[str]:
    data = point.workload.data
    if data.stage == "none" or point.workload.script:
        return
    if data.name.startswith("synthetic-"):
        yield f"workload.data.stage is {data.stage}, and {data.name} has no files to copy. Leave it out."
    elif point.measure.input == "synthetic":
        yield f"workload.data.stage is {data.stage}, and measure.input synthetic reads no data. Leave one of them out."


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
        yield f"measure.profile_steps is {measure.profile_steps}, but measure.profile_ranks names no rank. Name one, such as [0]."
    beyond = [rank for rank in measure.profile_ranks if not 0 <= rank < point.ranks]
    if measure.profile_steps and beyond:
        yield f"measure.profile_ranks has {beyond[0]}: this point has the ranks 0 to {point.ranks - 1}. Name some of them."
    if measure.telemetry_hz > MAX_TELEMETRY_HZ:
        yield (
            f"measure.telemetry_hz is {measure.telemetry_hz:g}: readings more often than {MAX_TELEMETRY_HZ} times a second would "
            f"disturb what they watch. Lower it."
        )


RULES = (
    _script,
    _parallel,
    _sharding,
    _communication,
    _device,
    _duration,
    training,
    optimizer,
    rates,
    batches,
    _restarting,
    _data,
    _staging,
    _resident,
    _watching,
)
