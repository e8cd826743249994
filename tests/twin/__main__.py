"""A twin by hand: `python -m tests.twin rcc` gives a shell in it, `python -m tests.twin rcc -- sinfo -N` runs one command."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click

from hpcddp.cluster.profile_file import load_profile
from hpcddp.core.errors import HpcddpError
from tests.twin.daemons import Ended, missing
from tests.twin.rules import site_accounts
from tests.twin.shape import DEFAULT_NODES, Site
from tests.twin.twin import Twin


@click.command()
@click.argument("cluster")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option("--nodes", type=click.IntRange(min=1), help=f"At most so many nodes of each type.  [default: {DEFAULT_NODES}]")
@click.option("--account", "accounts", multiple=True, help="An account you may use.  [default: one in the cluster's own form]")
@click.option("--python", default=sys.executable, help="What `python3` is in jobs that load the profile's modules.")
def main(cluster: str, command: Sequence[str], nodes: int | None, accounts: Sequence[str], python: str) -> None:
    """Boots a Slurm shaped like CLUSTER on this machine and takes it down at the end.

    With COMMAND, runs it and ends with its status: python -m tests.twin rcc -- sbatch --test-only job.sh
    """
    reason = missing()
    if reason:
        raise click.ClickException(reason)
    with tempfile.TemporaryDirectory(prefix="twin-", dir="/tmp") as folder:
        try:
            profile = load_profile(cluster)
            site = Site(accounts=tuple(accounts) or site_accounts(profile))
            with Twin(profile, Path(folder), nodes=nodes, site=site, python=python) as twin:
                status = _run(twin, command)
        except HpcddpError as error:
            raise click.ClickException(str(error)) from error
        except Ended as ended:
            status = ended.exit_status
    sys.exit(status)


def _run(twin: Twin, command: Sequence[str]) -> int:
    if not command:
        click.echo(f"The twin is up, its logs in {twin.folder}/log. Leave this shell (exit) to take it down.", err=True)
    shell = os.environ.get("SHELL", "/bin/bash")
    status = subprocess.run(command or [shell], env={**os.environ, **twin.env}, check=False).returncode
    return 128 - status if status < 0 else status


if __name__ == "__main__":
    main()
