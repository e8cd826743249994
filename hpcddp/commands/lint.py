"""`hpcddp lint`: what is wrong with a job script, or with a template of such scripts."""

from __future__ import annotations

import shutil
import sys
import textwrap
from pathlib import Path

import click

from hpcddp.commands.options import cluster_option, format_option, print_json, remark


@click.command()
@click.argument("file", metavar="SCRIPT|TEMPLATE", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@cluster_option
@format_option
@click.pass_context
def lint(ctx: click.Context, file: Path, cluster: str | None, format_: str) -> None:
    """Check a job script for what Slurm refuses, makes ranks hang, or leaves GPUs idle; with shellcheck where that is installed.

    Of a template (`*.j2`) the scripts that it makes on a cluster are checked. Ends with 4 where something is found.

    \b
    hpcddp lint job.sh
    hpcddp lint ./mine.sh.j2 --cluster ./mycluster.yaml
    """
    from hpcddp.core.errors import DIFFERS
    from hpcddp.core.text import count, escape_controls
    from hpcddp.script.findings import has_shellcheck

    rows = _of_template(file, cluster) if file.suffix == ".j2" else _of_script(file, cluster)
    if not has_shellcheck():
        remark("shellcheck is not installed here, so its own rules were not checked")
    if format_ == "json":
        print_json(rows)
    for row in rows if format_ == "table" else ():
        click.echo(_wrapped(escape_controls("{file}:{line}: {text} [{rule}]".format(**row))))
    if rows:
        remark(count(len(rows), "finding"))
        ctx.exit(DIFFERS)


def _wrapped(text: str) -> str:
    """A line for each finding, but on a terminal wrapped to its width."""
    if not sys.stdout.isatty():
        return text
    width = max(80, shutil.get_terminal_size().columns)
    return textwrap.fill(text, width, subsequent_indent="    ", break_on_hyphens=False, break_long_words=False)


def _of_script(file: Path, cluster: str | None) -> list[dict[str, object]]:
    from hpcddp.core.errors import UsageError
    from hpcddp.script.lint import lint_script

    if cluster is not None:
        raise click.UsageError("--cluster is for a template, whose scripts depend on it; a script is what it is")
    try:
        text = file.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{file}: cannot be read: it is not UTF-8 text") from error
    return [{"file": str(file), **finding._asdict()} for finding in lint_script(text)]


def _of_template(file: Path, cluster: str | None) -> list[dict[str, object]]:
    from hpcddp.submit.choose import pick_cluster
    from hpcddp.submit.lint_template import lint_template

    found = lint_template(file, pick_cluster(cluster))
    return [{"file": each.file, **each.finding._asdict()} for each in found]
