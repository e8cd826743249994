"""What does not fit on a disk is said with the name of its file."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from hpcddp.cli import main
from hpcddp.core.records import append_line, write_aside, write_file
from tests.small_disk import fill, small_disk

WRITERS: dict[str, Callable[[Path], None]] = {
    "text": lambda file: write_file(file, "x" * 9000),
    "new": lambda file: write_file(file, b"x" * 9000, "x"),
    "aside": lambda file: write_aside(file, b"x" * 9000),
    "line": lambda file: append_line(file, "x" * 9000),
}


@pytest.mark.parametrize("way", WRITERS)
def test_the_file_that_could_not_be_written_is_named(tmp_path: Path, way: str) -> None:
    """Whatever the call that found the disk full."""
    with small_disk(tmp_path) as disk:
        fill(disk)
        file = disk / "job.sh"
        with pytest.raises(OSError, match=f"No space left on device: '{re.escape(str(file))}'"):
            WRITERS[way](file)


def test_a_record_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    """Who has it open reads the old one; where the new one does not fit the old one stays, and nothing beside it."""
    with small_disk(tmp_path) as disk:
        file = disk / "end.json"
        write_aside(file, b"old")
        with file.open("rb") as reader:
            write_aside(file, b"new")
            assert (reader.read(), file.read_bytes()) == (b"old", b"new")
        fill(disk)
        before = sorted(disk.iterdir())
        with pytest.raises(OSError, match="No space left"):
            write_aside(file, b"x" * 9000)
        assert (file.read_bytes(), sorted(disk.iterdir())) == (b"new", before)


@pytest.mark.parametrize(
    "command",
    [
        ["init", "rcc-bigmnist", "-o", "FILE"],
        ["render", "--cluster", "rcc", "--nodes", "1", "--set", "account=a", "-o", "FILE"],
    ],
)
def test_commands_say_which_file(tmp_path: Path, command: list[str]) -> None:
    """And end with 1."""
    with small_disk(tmp_path) as disk:
        fill(disk)
        file = disk / "new.yaml"
        ended = CliRunner().invoke(main, [str(file) if word == "FILE" else word for word in command])
        assert ended.exit_code == 1
        assert f"{file}: No space left on device" in ended.stderr
