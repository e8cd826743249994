"""`hpcddp lint`: what is wrong with a job script, or with a template of such scripts."""

from __future__ import annotations

import shutil
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

    Of a template (`*.j2`) the scripts that it makes on a cluster are checked. Exits with code 4 if something is found.

    \b
    hpcddp lint job.sh
    hpcddp lint ./mine.sh.j2 --cluster ./mycluster.yaml
    """
    from hpcddp.core.errors import DIFFERS
    from hpcddp.core.text import count, escape_controls
    from hpcddp.script.lint import lint_script

    if file.suffix == ".j2":
        from hpcddp.submit.choose import pick_cluster
        from hpcddp.submit.explain import lint_template

        found = [(each.file, each.finding) for each in lint_template(file, pick_cluster(cluster))]
    elif cluster is not None:
        raise click.UsageError("--cluster is for a template, whose scripts depend on it; a script is what it is")
    else:  # a comment in Latin-1 does not matter to sbatch
        found = [(str(file), each) for each in lint_script(file.read_bytes().decode(errors="replace"))]
    if not shutil.which("shellcheck"):
        remark("shellcheck is not installed here, so its own rules were not checked")
    if format_ == "json":
        print_json([{"file": name, **finding._asdict()} for name, finding in found])
    for name, finding in found if format_ == "table" else ():
        click.echo(escape_controls(f"{name}:{finding.line}: {finding.text} [{finding.rule}]"))
    if found:
        remark(count(len(found), "finding"))
        ctx.exit(DIFFERS)
