"""How the ranks of a job form a process group, hand small values to rank 0, and leave."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from hpcddp.core.errors import HpcddpError
from hpcddp.core.schema import decode_record, encode
from hpcddp.worker.gpus import require_gpu
from hpcddp.worker.master import Store, find_store, naming_store
from hpcddp.worker.ranks import Rank
from hpcddp.worker.watchdog.flight_recorder import keep_collectives
from hpcddp.worker.watchdog.thread import Watchdog

T = TypeVar("T")

TIMEOUT = timedelta(minutes=10)
"""NCCL's own default: long enough for nodes that start late, short against a job that would hang to its time limit."""


@dataclass(frozen=True)
class ProcessGroup:
    """The process group, seen from one rank, and the store beside it."""

    rank: Rank
    device: torch.device
    store: Store
    """Its keys are this attempt's, whoever else may still be connected."""
    watchdog: Watchdog | None = None
    """Where the ranks watch each other."""

    @property
    def backend(self) -> str:
        """`none` of a single process that formed no group."""
        return str(dist.get_backend()) if dist.is_initialized() else "none"

    def gather(self, key: str, value: Any) -> list[Any]:
        """The JSON values of all ranks, by rank, on rank 0; [] elsewhere. A key serves once. Through the store: torch's
        all_gather_object needs numpy, which a site's torch may lack."""
        self.store.set(f"hpcddp/{key}/{self.rank.rank}", json.dumps(value))
        if self.rank.rank:
            return []
        return [json.loads(self.store.get(f"hpcddp/{key}/{peer}")) for peer in range(self.rank.world)]

    def gather_records(self, key: str, record: T) -> list[T]:
        return [decode_record(type(record), plain) for plain in self.gather(key, encode(record))]

    def share(self, key: str, value: Any) -> Any:
        """Rank 0's JSON value, on all ranks; those wait for it. A key serves once."""
        if self.rank.rank == 0:
            self.store.set(f"hpcddp/{key}", json.dumps(value))
        return json.loads(self.store.get(f"hpcddp/{key}"))

    def leave(self) -> None:
        """Waits for all ranks: rank 0 holds the store, and NCCL's watchdog complains on the others when it goes first."""
        if self.watchdog:
            self.watchdog.leave()
        dist.barrier(device_ids=[self.rank.gpu] if self.device.type == "cuda" else None)
        dist.destroy_process_group()


def join(rank: Rank, kind: str, timeout: timedelta = TIMEOUT) -> ProcessGroup:
    """NCCL with one GPU per rank for `cuda`, gloo for `cpu`; returns when every rank has come."""
    device = require_gpu(rank) if kind == "cuda" else torch.device("cpu")
    backend = "nccl" if kind == "cuda" else "gloo"
    if backend == "nccl":
        keep_collectives()
    with _naming_address(rank):
        store = _any_store(rank, timeout)
        dist.init_process_group(backend, store=store, rank=rank.rank, world_size=rank.world, timeout=timeout)
    return ProcessGroup(rank, device, store)


def join_store(rank: Rank, timeout: timedelta = TIMEOUT) -> Store:
    """The store alone, of ranks that form their process group by themselves; returns when every rank has come."""
    keep_collectives()
    with _naming_address(rank):
        store: Store = _any_store(rank, timeout)
    return store


@contextlib.contextmanager
def _naming_address(rank: Rank) -> Iterator[None]:
    """Where ranks meet in vain, HpcddpError says where."""
    try:
        yield
    except (RuntimeError, OSError) as error:  # torch 2.1: `Socket Timeout` on rank 0, the other class elsewhere
        raise HpcddpError(
            f"rank {rank.rank} of {rank.world} on {rank.host} could not meet the others at MASTER_ADDR {rank.master_addr}, "
            f"MASTER_PORT {rank.master_port}: {error}"
        ) from error


def _any_store(rank: Rank, timeout: timedelta) -> Any:
    """torchrun's, which listens at MASTER_PORT already; or rank 0's, at a free port that it names there, when all have come."""
    if rank.store_is_there:
        return _own_keys(rank, dist.TCPStore(rank.master_addr, rank.master_port, rank.world, False, timeout=timeout))  # type: ignore[attr-defined]
    if rank.rank:
        store = _own_keys(rank, _tcp_store(rank, find_store(rank, timeout.total_seconds()), timeout))
        _wait_for_all(rank, store, timeout)
        return store
    listening = _tcp_store(rank, 0, timeout)
    store = _own_keys(rank, listening)
    with naming_store(rank, listening.port) if rank.world > 1 else contextlib.nullcontext():
        _wait_for_all(rank, store, timeout)
    return store


def _tcp_store(rank: Rank, port: int, timeout: timedelta) -> Any:
    store_class = dist.TCPStore  # type: ignore[attr-defined]  # documented, but not in __all__
    return store_class(rank.master_addr, port, rank.world, rank.rank == 0, timeout=timeout, wait_for_workers=False)


def _own_keys(rank: Rank, store: Any) -> Any:
    """A rank of an attempt before, on a node that came back, may be looking for the others at the same port."""
    return dist.PrefixStore(f"{rank.job}.{rank.restart}", store)  # type: ignore[attr-defined]  # as above


def _wait_for_all(rank: Rank, store: Store, timeout: timedelta) -> None:
    if store.add("hpcddp/joined", 1) == rank.world:
        store.set("hpcddp/all joined", "")
    store.wait(["hpcddp/all joined"], timeout)
