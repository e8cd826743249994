"""The memory that a rank's loader processes may fill."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hpcddp.worker.loader_room import ROOM_SHARE, loader_room_bytes


def test_it_is_a_ranks_share_of_what_is_least(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here of what Slurm gave the job: 8 MiB a node, half of it, for four ranks."""
    monkeypatch.setenv("SLURM_MEM_PER_NODE", "8")
    assert loader_room_bytes(4, str(tmp_path)) == ROOM_SHARE * 8 * 2**20 / 4


def test_all_of_a_node_is_no_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--mem=0` gives the job all of it; Slurm then says 0, or nothing."""
    monkeypatch.setenv("SLURM_MEM_PER_NODE", "0")
    without_limit = loader_room_bytes(1, str(tmp_path))
    assert without_limit is not None
    assert without_limit > 2**20
    assert loader_room_bytes(1, str(tmp_path / "none")) is not None


def test_shared_memory_without_a_limit_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tmpfs that is mounted with size=0 has no blocks to say, and takes what the node has."""
    limited = loader_room_bytes(1, "/nowhere")
    empty = os.statvfs_result((4096, 4096, 0, 0, 0, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda folder: empty)
    assert limited is not None
    assert (loader_room_bytes(1) or 0) > limited / 2
