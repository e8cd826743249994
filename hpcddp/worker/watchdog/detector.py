"""The failure detector: which rank is to blame when ranks stand still, from the last beat of each and when it came."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hpcddp.core.attempt_records import Fault
from hpcddp.worker.watchdog.progress import AFTER, BEFORE, LONGEST_S, Beat

_AFTER = {
    None: "before its batch arrived",
    "data_wait": "after its batch arrived",
    "h2d_exposed": "after its batch was copied to the device",
    "comm_exposed": "after the gradient all-reduce",
    "record": "after its records were written",
}


@dataclass(frozen=True)
class LastBeat:
    """The last beat of a rank, and when it came."""

    host: str
    beat: Beat
    heard_s: float


def fault_by_beats(beats: Mapping[int, LastBeat], world: int, now_s: float) -> Fault | None:
    """The rank that holds up the others, None while there may be none. `beats`: of ranks that are watched and have not left.

    A rank is silent that has not been heard from: it is stopped, or its node is lost. Ranks that are further than another wait
    for it, so only those behind all others are judged, and only in their steps: they hang when they neither get on nor show a
    sign of life for as long as their patience, or, whatever they do, for LONGEST_S. A rank that is not watched may be behind.
    """
    return silent_rank(beats, now_s) or _hanging_rank(beats, world)


def silent_rank(beats: Mapping[int, LastBeat], now_s: float) -> Fault | None:
    """A rank that has not been heard from for too long, None while there is none."""
    for rank, last in sorted(beats.items()):
        silent_s = now_s - last.heard_s
        if silent_s > (last.beat.patience_s if last.beat.stepping else LONGEST_S):
            what = "it is stopped, or its node or the network failed"
            words = f"has not reported for {silent_s:.0f} s, last {place(last.beat)}: {what}"
            return Fault(kind="silent", rank=rank, host=last.host, sentence=f"rank {rank} on {last.host} {words}")
    return None


def late_rank(fault: Fault, beats: Mapping[int, LastBeat]) -> Fault:
    """Of a collective that timed out in the rank of `fault`: the fault of the rank furthest behind that one, if any is."""
    own = beats.get(fault.rank)
    if fault.kind != "time_out" or own is None:
        return fault
    rank, last = min(sorted(beats.items()), key=lambda each: each[1].beat.position)
    if last.beat.position == own.beat.position:
        return fault
    words = f"kept the other ranks waiting until their timeout, {place(last.beat)}"
    sentence = f"rank {rank} on {last.host} {words}; {fault.sentence}"
    return replace(fault, kind="late", rank=rank, host=last.host, sentence=sentence)


def first_cause(faults: Sequence[Fault]) -> Fault | None:
    """The first of those that do not only miss another rank; None where another rank may have died."""
    return next((fault for fault in faults if fault.kind not in ("contact", "time_out")), None)


def died(ranks: Sequence[tuple[int, str, LastBeat | None]]) -> Fault:
    """Of ranks whose connection ended without a word, each with its host and its last beat."""
    (rank, host, last), *more = ranks
    where = f", last {place(last.beat)}" if last else ""
    others = f" (and {', '.join(f'rank {other} on {its_host}' for other, its_host, _ in more)})" if more else ""
    words = f"died without an error message{where}: it was killed or crashed; its log may show more"
    return Fault(kind="died", rank=rank, host=host, sentence=f"rank {rank} on {host}{others} {words}")


def _hanging_rank(beats: Mapping[int, LastBeat], world: int) -> Fault | None:
    if not beats:
        return None
    lowest = min(last.beat.position for last in beats.values())
    behind = {rank: last for rank, last in sorted(beats.items()) if last.beat.position == lowest}
    if not all(last.beat.stepping for last in behind.values()):
        return None
    rank, first = next(iter(behind.items()))
    others_wait = len(behind) < len(beats) == world or world == 1
    too_long = all(last.beat.still_s >= LONGEST_S for last in behind.values())
    if others_wait and (too_long or all(last.beat.idle_s >= last.beat.patience_s for last in behind.values())):
        return Fault(kind="hung", rank=rank, host=first.host, sentence=_hung(behind, too_long=too_long))
    if too_long:
        hosts = ", ".join(dict.fromkeys(last.host for last in beats.values()))
        words = f"no rank made progress for {first.beat.still_s:.0f} s, {place(first.beat)}"
        return Fault(kind="stuck", rank=rank, host=first.host, sentence=f"{words}: check the network between {hosts}")
    return None


def _hung(behind: Mapping[int, LastBeat], *, too_long: bool) -> str:
    rank, first = next(iter(behind.items()))
    others = [str(other) for other in behind if other != rank]
    who = f"rank {rank} on {first.host}" + (f" (and {', '.join(others)})" if others else "")
    what = "made no progress" if too_long else "hung, without progress or activity,"
    return f"{who} {what} for {first.beat.still_s:.0f} s, {place(first.beat)}"


def place(beat: Beat) -> str:
    """Where a rank is, in words."""
    if beat.position == BEFORE:
        return "before its first step"
    if beat.position == AFTER:
        return "after its last step"
    return f"in step {beat.steps}, {_AFTER.get(beat.after, f'after its {beat.after}')}"
