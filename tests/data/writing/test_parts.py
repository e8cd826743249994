"""A file is complete, or it is not there."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from hpcddp.data.writing.parts import part_file, remove_parts, written_aside


def test_a_file_appears_when_it_is_complete(tmp_path: Path) -> None:
    """Until then it is a hidden one that names machine and process; a block that fails leaves what was there."""
    file = tmp_path / "a.u8"
    with written_aside(file) as out:
        out.write(b"12")
        assert [path.name for path in tmp_path.iterdir()] == [f".a.u8.{socket.gethostname()}.{os.getpid()}.part"]
    assert [path.name for path in tmp_path.iterdir()] == ["a.u8"]
    with pytest.raises(KeyboardInterrupt), written_aside(file) as out:
        raise KeyboardInterrupt
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a.u8": b"12"}


def test_a_link_in_the_part_files_place_is_never_written_through(tmp_path: Path) -> None:
    """Its target stays as it was."""
    (tmp_path / "target").write_bytes(b"old")
    part_file(tmp_path / "a.u8").symlink_to(tmp_path / "target")
    with written_aside(tmp_path / "a.u8") as out:
        out.write(b"new")
    assert (tmp_path / "target").read_bytes() == b"old"


def test_what_killed_processes_left_is_removed(tmp_path: Path) -> None:
    """Hidden part files of any machine; nothing else."""
    for name in (".a.u8.node7.12.part", "b.json.part", ".c"):
        (tmp_path / name).touch()
    remove_parts(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".c", "b.json.part"]
