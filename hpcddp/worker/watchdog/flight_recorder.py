"""torch's flight recorder: which collectives a rank has begun, and which of them have not ended.

torch keeps the last of them in memory, with name, number and sizes; from 2.7 on it does so by itself, before that where
TORCH_NCCL_TRACE_BUFFER_SIZE says so. Nothing is read while steps go on. At a hang each rank writes what it has into the attempt,
as the JSON that torch makes of it: its other form is a pickle, which nobody should load who did not write it.

Rank 0 then asks every rank what it has begun, before the first of them ends: so it knows which collective they hang in, and which
of them have not come to it.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from hpcddp.core.records import collectives_file
from hpcddp.core.run_root import spans
from hpcddp.core.schema import Count, SchemaError, decode_record, encode

Groups = Mapping[str, "GroupState"]


@dataclass(frozen=True, kw_only=True)
class BegunCollective:
    """One that a rank has begun."""

    number: Count
    """Within its process group, from 1 on: the same on all of its ranks."""
    name: str
    """all_reduce"""
    of: str = ""
    """Types and sizes of its tensors: `Float[6553600]`."""

    @property
    def words(self) -> str:
        """`all_reduce of Float[6553600]`"""
        return f"{self.name} of {self.of}" if self.of else self.name


@dataclass(frozen=True, kw_only=True)
class GroupState:
    """Of a process group, in one rank."""

    begun: Count
    """Number of the last collective that it has begun."""
    pending: tuple[BegunCollective, ...] = ()
    """Those that have not ended, in order; of many the first ones."""
    members: tuple[Count, ...] = ()
    """Ranks of the group; empty where torch does not say."""


def stalled_collective(ranks: Mapping[int, Groups], world: int) -> str | None:
    """A sentence: `collective 37 (all_reduce of Float[6553600]) waits for rank 3, which has begun 36`. `ranks`: of those that
    answered. None where no rank is in a collective.

    Of several groups the one in which a rank is missing, or in which ranks do different things, comes before one in which all
    wait: ranks that hang in a group do not come to those after it.
    """
    names = dict.fromkeys(name for groups in ranks.values() for name in groups)
    found = [each for name in names if (each := _of_group(name, ranks, world))]
    return min(found, key=lambda each: each[0])[1] if found else None


def _of_group(name: str, ranks: Mapping[int, Groups], world: int) -> tuple[int, str] | None:
    states = {rank: groups[name] for rank, groups in ranks.items() if name in groups}
    first = min((state.pending[0].number for state in states.values() if state.pending), default=None)
    if first is None:
        return None
    waiting = {rank: each for rank, state in states.items() for each in state.pending if each.number == first}
    members = next((state.members for state in states.values() if state.members), tuple(range(world)))
    behind = {rank: states[rank].begun for rank in members if rank in states and states[rank].begun < first}
    unheard = [rank for rank in members if rank not in states]
    where = "" if len(members) >= world else f" of the group of {_named_ranks(members)}"
    kinds = {each.words for each in waiting.values()}
    if len(kinds) > 1:
        return 0, f"ranks differ in collective {first}{where}: {_kinds(waiting)}"
    what = f"collective {first}{where} ({next(iter(kinds))})"
    if behind or unheard:
        return 0, f"{what} waits for {_missing(behind, unheard)}; in it: {_named_ranks(waiting)}"
    return 1, f"{what} was started by all ranks, but does not finish on {_named_ranks(waiting)}"


def _kinds(waiting: Mapping[int, BegunCollective]) -> str:
    """`all_reduce of Float[7] on ranks 0-2, broadcast of Float[5] on rank 3`"""
    by_words: dict[str, list[int]] = {}
    for rank, each in sorted(waiting.items()):
        by_words.setdefault(each.words, []).append(rank)
    return ", ".join(f"{words} on {_named_ranks(ranks)}" for words, ranks in by_words.items())


def _missing(behind: Mapping[int, int], unheard: Iterable[int]) -> str:
    numbers = sorted(set(behind.values()))
    begun = f"{numbers[0]}" if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}" if numbers else ""
    words = [f"{_named_ranks(behind)}, which {'has' if len(behind) == 1 else 'have'} started {begun}"] if behind else []
    silent = list(unheard)
    return " and ".join([*words, *([f"{_named_ranks(silent)}, whose state is unknown"] if silent else [])])


def _named_ranks(ranks: Iterable[int]) -> str:
    """`rank 3`, `ranks 0-2, 5`"""
    numbers = list(ranks)
    stretches = ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in spans(numbers))
    return f"rank{'' if len(numbers) == 1 else 's'} {stretches}"


WAIT_S = 3.0
"""A rank reads within a second, and torch answers within flight_recorder.DUMP_S; one that is stopped never does."""

Dump = Callable[[], "dict[str, Any] | None"]
"""Writes this rank's collectives, and says in short what they are; None where torch has none."""


class DumpRound:
    """Rank 0's: begun when ranks seem to hang, and over when all that can have answered."""

    def __init__(self, own: Mapping[str, Any], now_s: float) -> None:
        self._groups: dict[int, Groups] = {}
        self._until_s = now_s + WAIT_S
        self.add(0, own)

    def add(self, rank: int, plain: Mapping[str, Any]) -> None:
        """What a rank answered; what is no such record counts as no answer."""
        try:
            self._groups[rank] = {str(name): decode_record(GroupState, state) for name, state in plain.items()}
        except (SchemaError, AttributeError):
            self._groups[rank] = {}

    def is_over(self, now_s: float, ranks: Collection[int]) -> bool:
        """`ranks`: those that are there to answer."""
        return now_s >= self._until_s or all(rank in self._groups for rank in ranks)

    def words(self, world: int) -> str | None:
        """Which collective they hang in; None where it cannot be told."""
        return stalled_collective({rank: groups for rank, groups in self._groups.items() if groups}, world)


SIZE, SIZE_BEFORE_2_9 = "TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"
"""Of torch's variable, whose name changed with 2.9."""

COLLECTIVES = 500
"""That are kept: of many steps with ten buckets each, and some 200 KB where they are written."""

DUMP_S = 2.0
"""torch asks the GPU whether collectives have ended: one that does not answer must not hold up the end."""

MOST_PENDING = 4
"""Of a group that are told of: the first is what others miss, and a step may have begun some more."""

MOST_GROUPS = 8

_DUMPS = {"nccl": "_dump_nccl_trace_json", "gloo": "_dump_fr_trace_json"}
"""Backend -> torch's function; the first is in torch from 2.5 on."""


def keep_collectives(env: MutableMapping[str, str] = os.environ, version: str = torch.__version__) -> None:
    """Before the process group is made; what the user has set stays."""
    if SIZE in env or SIZE_BEFORE_2_9 in env:
        return
    major, minor = map(int, re.findall(r"\d+", version)[:2])
    env[SIZE if (major, minor) >= (2, 9) else SIZE_BEFORE_2_9] = str(COLLECTIVES)


def dump_function() -> Callable[[], bytes] | None:
    """What makes JSON of this process's collectives; None where this torch has nothing of the kind."""
    if not dist.is_initialized():
        return None
    of_device = _DUMPS["nccl" if torch.cuda.is_available() else "gloo"]
    return getattr(torch._C._distributed_c10d, _DUMPS.get(str(dist.get_backend()), of_device), None)


def dump_collectives(attempt: Path, rank: int, dump: Callable[[], bytes] | None = None) -> dict[str, Any] | None:
    """Writes this rank's collectives into the attempt; group -> its state, as a message to rank 0 has it. None where there is
    nothing, or torch does not answer."""
    found: list[dict[str, Any]] = []
    thread = threading.Thread(target=_dump, args=(attempt, rank, dump or dump_function(), found), daemon=True)
    thread.start()
    thread.join(DUMP_S)
    return found[0] if found else None


def _dump(attempt: Path, rank: int, dump: Callable[[], bytes] | None, found: list[dict[str, Any]]) -> None:
    try:
        text = dump() if dump else b""
        plain = json.loads(text) if text else {}
        if plain.get("entries"):
            found.append({name: encode(state) for name, state in group_states(plain, dist.get_world_size()).items()})
            collectives_file(attempt, rank).write_bytes(text)
    except (OSError, RuntimeError, ValueError, TypeError, LookupError, AttributeError) as error:  # a form that torch has changed
        print(f"hpcddp: the collectives of rank {rank} cannot be read: {type(error).__name__}: {error}", flush=True)


def group_states(plain: Mapping[str, Any], world: int) -> dict[str, GroupState]:
    """Process group -> its state, of the JSON that torch makes; of one of all `world` ranks they are not listed."""
    of_group: dict[str, list[Mapping[str, Any]]] = {}
    for entry in plain["entries"]:
        if not entry.get("is_p2p"):
            of_group.setdefault(str(entry["process_group"][0]), []).append(entry)
    lists = {str(name): re.findall(r"\d+", str(each.get("ranks"))) for name, each in plain.get("pg_config", {}).items()}
    members = {name: tuple(map(int, ranks)) for name, ranks in lists.items()}  # which torch writes `[0, 1]`
    some = {name: ranks for name, ranks in members.items() if len(ranks) < world}
    return {name: _state(of_group[name], some.get(name, ())) for name in list(of_group)[-MOST_GROUPS:]}


def _state(entries: Sequence[Mapping[str, Any]], members: tuple[int, ...]) -> GroupState:
    pending = [entry for entry in entries if not entry.get("retired") and entry.get("state") != "completed"]
    return GroupState(
        begun=max(int(entry["collective_seq_id"]) for entry in entries),
        pending=tuple(map(_collective, pending[:MOST_PENDING])),
        members=members,
    )


def _collective(entry: Mapping[str, Any]) -> BegunCollective:
    """`nccl:all_reduce` of `[[6553600]]` and `["Float"]`"""
    kinds, sizes = entry.get("input_dtypes") or [], entry.get("input_sizes") or []
    of = ", ".join(f"{kind}{json.dumps(size)}" for kind, size in zip(kinds, sizes, strict=False))
    return BegunCollective(
        number=int(entry["collective_seq_id"]), name=str(entry["profiling_name"]).rpartition(":")[2], of=of[:200]
    )
