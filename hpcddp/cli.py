"""The `hpcddp` command. Errors a user can correct are printed here, in one place, and end in a documented exit code."""

from __future__ import annotations

import atexit
import errno
import gc
import importlib
from typing import Any, NoReturn

import click

from hpcddp import __version__
from hpcddp.core.errors import FAILED, USAGE, HpcddpError
from hpcddp.core.text import escape_controls

DAILY = ("init", "render", "plan", "submit", "status", "logs", "cancel", "analyze")
OTHERS = (
    *("compare", "proposal", "bundle", "export", "audit", "bench", "lint", "clean"),
    *("studies", "clusters", "data", "schema", "completion"),
)
"""The other commands; each is in the file of its name in `hpcddp/commands/`."""

EPILOG = """\b
Exit codes: 0 success, 1 failure, 2 usage error, 3 incomplete (missing points),
4 a difference or finding, 5 Slurm or SageMaker refused, or did not answer."""


class Commands(click.Group):
    """A group that prints errors without a traceback, lists commands in the order of the work, and imports only the one used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*DAILY, *OTHERS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        known = self.list_commands(ctx)
        for name in [cmd_name] if cmd_name in known else known:  # click suggests one of all
            if name not in self.commands:
                self.add_command(getattr(importlib.import_module(f"hpcddp.commands.{name}"), name))
        return super().get_command(ctx, cmd_name)

    def make_context(self, *arguments: Any, **options: Any) -> click.Context:
        atexit.register(gc.freeze)  # a last search for garbage in all that was imported took 12 % of `render`
        try:
            return super().make_context(*arguments, **options)
        except click.UsageError as error:
            _explain(error)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            _explain(error)
        except HpcddpError as error:
            click.echo(escape_controls(str(error)), err=True)
            ctx.exit(error.exit_code)
        except OSError as error:
            if error.errno == errno.EPIPE:  # `hpcddp ... | head`: click ends quietly
                raise
            words = error.strerror or str(error)
            click.echo(f"{error.filename}: {words}" if error.filename else words, err=True)
            ctx.exit(FAILED)


def _explain(error: click.UsageError) -> NoReturn:
    """The reason, where click prints usage lines first; exits with code 2."""
    if isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ())):  # from click 8.2 on: the help is the reason
        raise error
    path = error.ctx.command_path if error.ctx else "hpcddp"
    click.echo(f"{escape_controls(error.format_message())}\nRun `{path} -h` for help.", err=True)
    raise click.exceptions.Exit(USAGE)


@click.group(cls=Commands, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def main() -> None:
    """Scaling studies of PyTorch DDP on Slurm clusters: from a sweep file to figures that can be trusted.

    \b
    hpcddp init rcc-bigmnist                   copy a sweep to edit
    hpcddp plan rcc-bigmnist.yaml              show points, node hours, files
    hpcddp submit rcc-bigmnist.yaml            submit the runs still missing
    hpcddp status .                            show the state of each run
    hpcddp analyze .                           print tables, draw figures
    """
