"""torch's flight recorder: which collectives a rank has begun, and which of them have not ended.

torch keeps the last of them in memory, with name, number and sizes; from 2.7 on it does so by itself, before that where
TORCH_NCCL_TRACE_BUFFER_SIZE says so. Nothing is read while steps go on. At a hang each rank writes what it has into the attempt,
as the JSON that torch makes of it: its other form is a pickle, which nobody should load who did not write it.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from hpcddp.core.records import collectives_file
from hpcddp.core.schema import encode
from hpcddp.worker.watchdog.collectives import Collective, GroupState

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
    nothing, or torch does not answer.
    """
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
    members = {str(name): _ranks(each.get("ranks")) for name, each in plain.get("pg_config", {}).items()}
    some = {name: ranks for name, ranks in members.items() if len(ranks) < world}
    return {name: _state(of_group[name], some.get(name, ())) for name in list(of_group)[-MOST_GROUPS:]}


def _state(entries: Sequence[Mapping[str, Any]], members: tuple[int, ...]) -> GroupState:
    pending = [entry for entry in entries if not entry.get("retired") and entry.get("state") != "completed"]
    return GroupState(
        begun=max(int(entry["collective_seq_id"]) for entry in entries),
        pending=tuple(map(_collective, pending[:MOST_PENDING])),
        members=members,
    )


def _collective(entry: Mapping[str, Any]) -> Collective:
    """`nccl:all_reduce` of `[[6553600]]` and `["Float"]`"""
    kinds, sizes = entry.get("input_dtypes") or [], entry.get("input_sizes") or []
    of = ", ".join(f"{kind}{json.dumps(size)}" for kind, size in zip(kinds, sizes, strict=False))
    return Collective(number=int(entry["collective_seq_id"]), name=str(entry["profiling_name"]).rpartition(":")[2], of=of[:200])


def _ranks(text: Any) -> tuple[int, ...]:
    """`[0, 1]`, as torch writes the ranks of a group."""
    return tuple(map(int, re.findall(r"\d+", str(text))))
