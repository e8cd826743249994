"""What a job of `hpcddp data` calls."""

from __future__ import annotations

import inspect

import click
import pytest

from hpcddp.cli import main
from hpcddp.core.data_job import DataTask
from hpcddp.core.errors import UsageError
from hpcddp.data.writing.tasks import TASKS, run_task


@pytest.mark.parametrize(("action", "data"), sorted(TASKS))
def test_a_job_has_the_commands_options(action: str, data: str) -> None:
    """By name, with the same defaults: a task has only what the user gave."""
    context = click.Context(main)
    command: click.Command | None = main
    for word in ("data", action, data):
        assert isinstance(command, click.Group)
        command = command.get_command(context, word)
    assert command is not None
    of_function = {p.name: p.default for p in inspect.signature(TASKS[action, data]).parameters.values() if p.name != "here"}
    by_name = {str(option.name): option for option in command.params}
    assert set(of_function) <= set(by_name)
    for name, default in of_function.items():
        option = by_name[name]
        assert option.required == (default is inspect.Parameter.empty), name
        assert default in (None, inspect.Parameter.empty) or option.get_default(context) == default, name


def test_a_task_of_another_version() -> None:
    """Of a login node with a newer hpcddp, say."""
    with pytest.raises(UsageError, match="no `hpcddp data fold imagenet` in this version"):
        run_task(DataTask(action="fold", data="imagenet"), lambda done, total: None)
