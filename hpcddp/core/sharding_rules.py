"""Which values of a point cannot go with sharded parameters. Standard library only, Python 3.10."""

from __future__ import annotations

from collections.abc import Iterator

from hpcddp.core.optimizer import FROM_LIBRARY
from hpcddp.core.point import Ddp, Fsdp, Point


def sharding(point: Point) -> Iterator[str]:
    """What is DDP's alone, what is not correct on a part of a parameter, and what was never compared with an unsharded run."""
    if not point.sharded:
        if point.workload.fsdp != Fsdp():
            yield (
                f"workload.fsdp is set, but workload.parallel is {point.workload.parallel}: nothing is sharded. Set parallel to "
                f"fsdp or hsdp, or leave workload.fsdp out."
            )
        return
    named = f"workload.parallel is {point.workload.parallel}"
    yield from (f"{named}: {sentence}" for sentence in (*_exchange(point), *_model(point)))


def _exchange(point: Point) -> Iterator[str]:
    workload, layout = point.workload, point.layout
    if workload.parallel == "hsdp" and layout.gpus_per_node == 1 and layout.nodes > 1:
        yield "a node has all parameters, and with one GPU per node nothing is sharded. Set parallel to ddp or fsdp."
    if workload.ddp != Ddp():
        yield "workload.ddp is about DDP's exchange, and here parameters are gathered and gradients scattered. Leave it out."
    if point.measure.comm == "check":
        yield "measure.comm check compares views of DDP's exchange. Set comm to on, which marks every wait for parameters."


def _model(point: Point) -> Iterator[str]:
    workload = point.workload
    if workload.optimizer.name in FROM_LIBRARY:
        yield (
            f"workload.optimizer.name is {workload.optimizer.name}, whose rates follow the norms of whole parameters, and a rank "
            f"has a part of each. Set it to sgd or adamw."
        )
    if workload.compile:
        yield "workload.compile would compile the model around the places where parameters are gathered. Set compile to false."
    if workload.sync_batchnorm:
        yield "workload.sync_batchnorm is for DDP: with shards it was never compared to one process. Set sync_batchnorm to false."
    if workload.channels_last:
        yield "workload.channels_last is lost: gathered parameters lie in the order of their dimensions. Set it to false."
