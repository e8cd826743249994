"""docs/command-line.md from the help of every command: what `--help` says, laid out for a page."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from typing import Any

import click

from hpcddp.cli import main

HEAD = """# Command line

Made by `make docs` from the commands' own help. Every command has `-h` and `--help`, too.
"""


def page() -> str:
    """All of it, in Markdown."""
    commands = list(walk(main, "hpcddp"))
    return "\n".join(
        [HEAD, *_contents(commands[1:]), "", *(part for name, command in commands for part in _section(name, command))]
    )


def walk(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """`hpcddp`, `hpcddp data`, `hpcddp data prepare`, ... with their commands."""
    yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for key in command.list_commands(context) if command is main else command.commands:
            yield from walk(command.get_command(context, key) or command, f"{name} {key}")


def _contents(commands: list[tuple[str, click.Command]]) -> Iterator[str]:
    yield "| command | what it does |\n|---|---|"
    for name, command in commands:
        yield f"| [`{name}`](#{name.replace(' ', '-')}) | {command.get_short_help_str(200)} |"


def _section(name: str, command: click.Command) -> Iterator[str]:
    yield f"## {name}\n"
    yield f"    {' '.join([name, *command.collect_usage_pieces(click.Context(command))])}\n"
    yield from _paragraphs(command.help or "")
    yield from _paragraphs(command.epilog or "")
    options = [param for param in command.params if isinstance(param, click.Option)]
    if options:
        yield "| option | what it does |\n|---|---|"
        yield from (f"| {_cell(_forms(option))} | {_cell(_meaning(option))} |" for option in options)
        yield ""


def _paragraphs(text: str) -> Iterator[str]:
    """Paragraphs that click would not wrap (after a line of `\\b`) are code."""
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        lines = paragraph.splitlines()
        if lines[:1] == ["\b"]:
            yield "\n".join(f"    {line}" for line in lines[1:]) + "\n"
        elif lines:
            yield "\n".join(lines) + "\n"


def _forms(option: click.Option) -> str:
    """`-J`, `--job-option OPTION`."""
    value = "" if option.is_flag or option.count else f" {option.metavar or _value(option.type)}"
    return ", ".join(f"`{form}`" for form in [*option.opts[:-1], option.opts[-1] + value])


def _value(kind: click.ParamType[Any]) -> str:
    return "|".join(map(str, kind.choices)) if isinstance(kind, click.Choice) else kind.name.split()[0].upper()


def _meaning(option: click.Option) -> str:
    limits = _limits(option.type) if isinstance(option.type, click.IntRange | click.FloatRange) else None
    default = option.show_default if isinstance(option.show_default, str) else option.default
    shown = f"default: {default}" if option.show_default else None
    remarks = "; ".join(part for part in (shown, limits) if part)
    return f"{option.help or ''}{f' ({remarks})' if remarks else ''}"


def _limits(kind: click.IntRange | click.FloatRange) -> str:
    least = f"above {kind.min}" if kind.min_open else f"{kind.min} or more"
    return least if kind.max is None else f"{least}, {'below' if kind.max_open else 'at most'} {kind.max}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(page())
