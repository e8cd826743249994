"""Barriers at the end of steps, evaluation and attempt: a rank that leaves early is named, not waited for in an all-reduce."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from datetime import timedelta

from hpcddp.core.errors import HpcddpError
from hpcddp.worker.rendezvous import ProcessGroup

STRAGGLER_WAIT = timedelta(minutes=2)
"""How long a rank may take from the last all-reduce to the end of its steps: an optimizer step and the writing of its rows."""

EVALUATION_WAIT = timedelta(seconds=30)
"""How long a rank that has evaluated too few samples, or too many, waits for the others."""

Steps = tuple[int, int]
"""Of the run: made, and planned."""


def agree_on_steps(group: ProcessGroup, planned: int) -> None:
    """HpcddpError in a rank that would make another number of steps than rank 0."""
    if group.rank.rank == 0:
        group.store.set("hpcddp/planned", str(planned))
    elif (theirs := int(group.store.get("hpcddp/planned"))) != planned:
        raise HpcddpError(f"plans {planned} timed steps, but rank 0 {theirs}. Check that both read the same data.")


def steps_barrier(group: ProcessGroup, steps: Steps, limit: timedelta = STRAGGLER_WAIT) -> None:
    """Returns when all ranks have made their steps; HpcddpError if this one made fewer than planned, or another does not come. A
    rank that fails ends its process, and with it the others' collectives (gloo) or all ranks (srun, the local runner)."""
    made, planned = steps
    _announce(group, "ended", f"{made} {planned}")
    if made != planned:
        raise HpcddpError(f"ended after {made} of {planned} steps; the other ranks wait for it in step {made}")
    missing = missing_after(group, "ended", limit)
    if missing:
        raise HpcddpError(
            f"ended after {made} of {planned} steps, but rank {missing[0]} did not within {limit.total_seconds():g} s. "
            f"One of the two made an all-reduce fewer or more; with measure.input io, one loads slower."
        )


def evaluation_barrier(group: ProcessGroup, key: str, samples: int, due: int, limit: timedelta = EVALUATION_WAIT) -> None:
    """Returns when this rank may go on from its evaluation; HpcddpError where others wait for it in theirs. `key` serves once.

    Only a rank that did not evaluate the samples that were due waits here for the others: where rank 0 evaluates all by itself,
    through DDP and with BatchNorm, rank 0 waits for a broadcast in which nobody else takes part.
    """
    stage = f"end of {key}"
    _announce(group, stage, str(samples))
    missing = [] if samples == due else missing_after(group, stage, limit)
    if missing:
        raise HpcddpError(
            f"evaluated {samples} of its {due} samples, but rank {missing[0]} has not finished its own. "
            f"Every rank must evaluate its share with the model itself: a forward through DDP waits for all ranks."
        )


def final_barrier(group: ProcessGroup, took: timedelta, straggle: timedelta = STRAGGLER_WAIT) -> None:
    """Leaves the group when all ranks have come to their ends. `took`: this rank's time since the barrier after the steps.
    HpcddpError where a rank needs ten times as long, and more: it waits for the others in a collective that they do not make."""
    _announce(group, "leaving", "")
    limit = 10 * took + straggle
    missing = missing_after(group, "leaving", limit)
    if missing:
        raise HpcddpError(
            f"finished, but rank {missing[0]} did not within {limit.total_seconds():.0f} s. It may wait in an operation of all "
            f"ranks, such as a forward through DDP, which broadcasts the model's buffers."
        )
    group.leave()


def missing_after(group: ProcessGroup, stage: str, limit: timedelta) -> list[int]:
    """The ranks that have not announced `stage` when all have, or time is up."""
    peers = range(group.rank.world)
    try:
        group.store.wait([_key(stage, peer) for peer in peers], limit)
    except RuntimeError:
        return [peer for peer in peers if not group.store.check([_key(stage, peer)])]
    return []


@contextlib.contextmanager
def naming_departed(group: ProcessGroup, steps_made: Callable[[], int]) -> Iterator[None]:
    """Around the steps: a collective that fails because another rank has ended its steps says so; other errors pass."""
    try:
        yield
    except RuntimeError as error:
        departed = _departed(group)
        if not departed:
            raise
        peer, (made, planned) = departed
        raise HpcddpError(
            f"waited in step {steps_made()} for rank {peer}, which ended after {made} of {planned} steps"
        ) from error


def _departed(group: ProcessGroup) -> tuple[int, Steps] | None:
    """The first other rank that has ended its steps; None also where the store is gone with rank 0."""
    with contextlib.suppress(RuntimeError):
        for peer in range(group.rank.world):
            if peer != group.rank.rank and group.store.check([_key("ended", peer)]):
                made, planned = map(int, group.store.get(_key("ended", peer)).split())
                return peer, (made, planned)
    return None


def _announce(group: ProcessGroup, stage: str, value: str) -> None:
    group.store.set(_key(stage, group.rank.rank), value)


def _key(stage: str, rank: int) -> str:
    return f"hpcddp/{stage}/{rank}"
