"""Which collective ranks hang in, by what torch's flight recorder has of each."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from hpcddp.core.records import collectives_file
from hpcddp.core.schema import encode
from hpcddp.worker.watchdog import flight_recorder
from hpcddp.worker.watchdog.flight_recorder import (
    COLLECTIVES,
    WAIT_S,
    DumpRound,
    dump_collectives,
    group_states,
    keep_collectives,
    stalled_collective,
)

BUCKET = [6553600]


def entry(number: int, name: str = "all_reduce", size: Sequence[int] = BUCKET, ended: bool = True, **more: Any) -> dict[str, Any]:
    """One collective. With gloo `state` stays as it was scheduled, and only `retired` says that it has ended."""
    return {
        "collective_seq_id": number,
        "input_dtypes": ["Float"] if size else [],
        "input_sizes": [list(size)] if size else [],
        "is_p2p": False,
        "op_id": number,
        "p2p_seq_id": 0,
        "pg_id": 0,
        "process_group": ["0", "default_pg"],
        "profiling_name": f"nccl:{name}",
        "record_id": number - 1,
        "retired": ended,
        "state": "completed" if ended else "started",
        "time_created_ns": 1795457782454035875 + number,
        **more,
    }


def dump(*entries: dict[str, Any], members: dict[str, str] | None = None) -> dict[str, Any]:
    groups = members or {"0": "[0, 1, 2, 3]"}
    return {
        "version": "2.10",
        "pg_config": {name: {"name": name, "desc": "", "ranks": ranks} for name, ranks in groups.items()},
        "pg_status": {},
        "entries": list(entries),
    }


def sentence(dumps: dict[int, dict[str, Any]], world: int = 4) -> str | None:
    return stalled_collective({rank: group_states(plain, world) for rank, plain in dumps.items()}, world)


WAITS = dump(entry(35), entry(36), entry(37, ended=False))
COLLECTIVE_37 = "collective 37 (all_reduce of Float[6553600])"
NOT_THERE = dump(entry(35), entry(36))


EARLY, AHEAD = dump(entry(35)), dump(entry(36), *(entry(number, ended=False) for number in range(37, 60)))
OTHER, SMALLER = (dump(entry(36), entry(37, *other, ended=False)) for other in (("broadcast", [5]), ("all_reduce", [7])))
ENDED, NEXT_ONE = dump(entry(36), entry(37)), dump(entry(37), entry(38, ended=False))
WAITS_FOR, BEGUN_BY_ALL = f"{COLLECTIVE_37} waits for", f"{COLLECTIVE_37} was started by all ranks, but does not finish on ranks"


@pytest.mark.parametrize(
    ("dumps", "says"),
    [
        ([WAITS, WAITS, NOT_THERE, WAITS], f"{WAITS_FOR} rank 2, which has started 36; in it: ranks 0-1, 3"),
        ([WAITS, WAITS, None, WAITS], f"{WAITS_FOR} rank 2, whose state is unknown; in it: ranks 0-1, 3"),
        (
            [WAITS, EARLY, NOT_THERE, None],
            f"{WAITS_FOR} ranks 1-2, which have started 35 to 36 and rank 3, whose state is unknown; in it: rank 0",
        ),
        (
            [WAITS, WAITS, OTHER, WAITS],
            "ranks differ in collective 37: all_reduce of Float[6553600] on ranks 0-1, 3, broadcast of Float[5] on rank 2",
        ),
        (
            [WAITS, SMALLER],
            "ranks differ in collective 37: all_reduce of Float[6553600] on rank 0, all_reduce of Float[7] on rank 1",
        ),
        ([WAITS] * 4, f"{BEGUN_BY_ALL} 0-3"),
        ([ENDED, WAITS, WAITS, WAITS], f"{BEGUN_BY_ALL} 1-3"),
        ([NEXT_ONE, WAITS, NEXT_ONE, WAITS], f"{BEGUN_BY_ALL} 1, 3"),
        ([AHEAD, AHEAD, NOT_THERE, WAITS], f"{WAITS_FOR} rank 2, which has started 36; in it: ranks 0-1, 3"),
        ([NOT_THERE] * 4, None),
        ([None] * 4, None),
    ],
)
def test_the_collective_that_ranks_wait_in(dumps: list[dict[str, Any] | None], says: str | None) -> None:
    """Of ranks of which some do not answer. NCCL's collectives are begun without waiting: the first that has not ended counts."""
    assert sentence({rank: plain for rank, plain in enumerate(dumps) if plain}, len(dumps)) == says


def test_the_group_in_which_a_rank_is_missing_comes_first() -> None:
    """Sharded and replicated groups: the ranks of the one that lacks a member never come to the others'."""
    of = {"members": {"0": "[0, 1, 2, 3]", "1": "[0, 1]", "2": "[2, 3]"}}
    shard: dict[str, Any] = {"process_group": ["2", "shard"]}
    hangs = dump(entry(4), entry(9, "_all_gather_base", [64], ended=False, **shard), **of)
    absent = dump(entry(4), entry(8, "_all_gather_base", [64], **shard), **of)
    all_in = dump(entry(4), entry(5, ended=False), **of)
    found = str(sentence({0: all_in, 1: all_in, 2: hangs, 3: absent}))
    assert "collective 5 (all_reduce of Float[6553600]) waits for ranks 2-3, which have started 4; in it: ranks 0-1" in found
    found = str(sentence({2: hangs, 3: absent}))
    assert "collective 9 of the group of ranks 2-3 (_all_gather_base of Float[64]) waits for rank 3, which has started 8" in found


def test_messages_between_two_ranks_are_no_collectives() -> None:
    assert group_states({"entries": [entry(1, is_p2p=True)]}, 2) == {}


def test_a_dump_is_written_and_summed_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.distributed.get_world_size", lambda: 4)
    (tmp_path / "ranks").mkdir()
    text = json.dumps(dump(*(entry(number, ended=number < 400) for number in range(1, 500)))).encode()
    state = dump_collectives(tmp_path, 3, lambda: text)
    assert state is not None
    assert len(json.dumps(state)) < 1000
    assert collectives_file(tmp_path, 3).read_bytes() == text
    rounds = DumpRound(state, 10.0)
    assert not rounds.is_over(10.0, [1])
    rounds.add(1, state)
    assert rounds.is_over(10.0, [1])
    assert rounds.is_over(10.0 + WAIT_S, [1, 2])
    assert "400 (all_reduce of Float[6553600]) was started by all ranks, but does not finish on ranks 0-1" in str(rounds.words(2))


@pytest.mark.parametrize(
    "text", [b"", b"{}", b'{"entries": []}', b"\x80\x04pickle", b'{"entries": [{"process_group": []}]}', b"[1]"]
)
def test_what_torch_does_not_say_ends_no_rank(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "ranks").mkdir()
    assert dump_collectives(tmp_path, 0, lambda: text) is None
    assert not collectives_file(tmp_path, 0).exists()


def test_a_gpu_that_does_not_answer_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits, wakes = os.pipe()
    monkeypatch.setattr(flight_recorder, "DUMP_S", 0.1)
    assert dump_collectives(tmp_path, 0, lambda: os.read(waits, 1)) is None
    os.write(wakes, b"{")


def test_an_answer_that_is_none_counts_as_no_answer() -> None:
    rounds = DumpRound({"0": encode(group_states(WAITS, 4)["0"])}, 0.0)
    rounds.add(1, {"0": {"begun": "many"}})
    found = str(rounds.words(2))
    assert "waits for rank 1, whose state is unknown" in found


def test_the_recorder_is_on_by_the_name_that_torch_has() -> None:
    for version, name in (("2.4.1+cu121", "TORCH_NCCL_TRACE_BUFFER_SIZE"), ("2.15.0", "TORCH_FR_BUFFER_SIZE")):
        env: dict[str, str] = {}
        keep_collectives(env, version)
        assert env == {name: str(COLLECTIVES)}
        own = {"TORCH_NCCL_TRACE_BUFFER_SIZE": "0"}
        keep_collectives(own, version)
        assert own == {"TORCH_NCCL_TRACE_BUFFER_SIZE": "0"}
