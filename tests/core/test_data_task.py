"""What `hpcddp data` is to do, as a job is given it."""

from __future__ import annotations

from hpcddp.core.data_job import DataTask


def test_a_container_sees_where_its_folders_are_made() -> None:
    """A folder that is not there yet cannot be shown in one, the one above it can; what has none above it is shown itself."""
    options = {"root": "$SCRATCH/a/b", "out": "/data", "mnist_root": "$WORK", "copies": 2}
    task = DataTask(action="pack", data="imagenet", options=options, folders=("root", "out", "mnist_root"))
    assert task.places == ("$SCRATCH/a", "/data", "$WORK")


def test_the_command_is_one_a_shell_understands() -> None:
    """Variables are filled in, blanks stay."""
    task = DataTask(action="prepare", data="digits", options={"root": "$S/my data", "mnist_root": None}, folders=("root",))
    assert task.command == 'hpcddp data prepare digits --root "$S/my data"'
    assert DataTask(action="prepare", data="digits", options={"root": "a b"}).command.endswith("--root 'a b'")
