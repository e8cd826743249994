"""The command line explains itself, agrees with the pages on it, and starts without what it does not need."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import hpcddp.core.errors
from hpcddp.cli import main
from tests.analysis.synthetic import point, write_study
from tests.machine import CHECKOUT

USAGE, CLUSTERS, DATA, TROUBLESHOOTING = (
    (CHECKOUT / "docs" / name).read_text(encoding="utf-8")
    for name in ("usage.md", "clusters.md", "data.md", "troubleshooting.md")
)
HEAVY = ("torch", "torchvision", "numpy", "pandas", "matplotlib", "sklearn")
SWEEP = "jobs/rcc-bigmnist.yaml"


def walk(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """`hpcddp`, `hpcddp data`, `hpcddp data prepare`, ... with their commands."""
    yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for key in command.list_commands(context) if command is main else command.commands:
            yield from walk(command.get_command(context, key) or command, f"{name} {key}")


COMMANDS = dict(walk(main, "hpcddp"))
each_command = pytest.mark.parametrize("name", COMMANDS)


@each_command
def test_help_has_an_example(name: str) -> None:
    text = COMMANDS[name].get_help(click.Context(COMMANDS[name], info_name=name))
    examples = [line for line in text.splitlines() if line.startswith(f"  {name}")]
    assert examples, text


@each_command
def test_options_have_help(name: str) -> None:
    options = [param for param in COMMANDS[name].params if isinstance(param, click.Option)]
    assert [option.name for option in options if not option.help] == []


@each_command
def test_usage_mentions(name: str) -> None:
    """Or the page of its group, which usage.md links to."""
    page = USAGE + {"hpcddp clusters": CLUSTERS, "hpcddp data": DATA}.get(" ".join(name.split()[:2]), "")
    assert re.search(rf"^\s*(\$ )?{re.escape(name)}\b|`{re.escape(name)}\b", page, re.MULTILINE)


def test_the_exit_codes_have_a_table() -> None:
    codes = {value for key, value in vars(hpcddp.core.errors).items() if key.isupper() and isinstance(value, int)}
    assert {int(code) for code in re.findall(r"^\| (\d) \|", TROUBLESHOOTING, re.MULTILINE)} == codes | {0}
    epilog = main.epilog or ""
    assert {int(code) for code in re.findall(r"\b(\d) ", epilog)} == codes | {0}


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("--help", 0),
        ("clusters list", 0),
        ("render --cluster rcc --nodes 4", 0),
        (f"plan {SWEEP} --set account=abc01", 0),
        (f"submit {SWEEP} --set account=abc01 --dry-run --runs {{folder}}", 0),
        ("status {folder}", hpcddp.core.errors.INCOMPLETE),
    ],
)
def test_login_side_loads_nothing_heavy(arguments: str, code: int, tmp_path: Path) -> None:
    write_study(tmp_path / "told", [point(1, 1)])
    script = (
        "import atexit, sys\n"
        f"atexit.register(lambda: print('loaded:', *sorted(set(sys.modules) & set({HEAVY!r})), file=sys.stderr))\n"
        "from hpcddp.cli import main\n"
        "main()"
    )
    words = arguments.format(folder=tmp_path).split()
    done = subprocess.run([sys.executable, "-c", script, *words], cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1].strip() == "loaded:", done.stderr
    assert done.returncode == code, done.stderr
