"""`hpcddp audit`: what in someone else's table of results does not add up."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hpcddp.commands import complete
from hpcddp.commands.options import format_option, print_json, remark

if TYPE_CHECKING:
    from hpcddp.analysis.audit.nodes import KnownNode
    from hpcddp.cluster.profile import NodeType


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--cluster",
    metavar="NAME|FILE",
    shell_complete=complete.clusters,
    help="A profile: node lists, GPUs per node and GPU types are checked against it.",
)
@format_option
@click.pass_context
def audit(ctx: click.Context, files: tuple[Path, ...], cluster: str | None, format_: str) -> None:
    """Check published numbers: averages, speedups, baselines, hardware.

    FILES hold tables as printed, no number rounded again: Markdown within a
    page, LaTeX, CSV or TSV, a row for each measurement. Columns, or other usual
    names for them:

    \b
      size      gpus, nodes, gpus_per_node; or words: `8x A100`, `2 nodes x 4`
      result    time (s, or m:ss, h:mm:ss), throughput; s/epoch, it/s, img/s,
                img/s/GPU
      claim     average, median, speedup, efficiency (`vs 1 GPU`)
      hardware  node_list, gpu_type
      work      batch_per_gpu, grad_accum, global_batch, samples, epochs, steps
      parts     compute, comm, data_wait, bandwidth, gpu_utilization
      runs      run, or `rank 0` for ranks of one run; a row with run `avg` or
                `median` sums up the others

    All other columns of words, and of settings in numbers, tell rows apart.
    Lines before the header of a CSV file that begin with `#` are notes.
    A number is wrong only where nothing that rounds to its digits fits.
    Ends with 0 where nothing is found, with 4 where something is.

    \b
    hpcddp audit results.csv
    hpcddp audit README.md paper.tex
    hpcddp audit results.csv --cluster rcc --format json
    """
    from hpcddp.analysis.audit.audit import audits
    from hpcddp.core.errors import DIFFERS
    from hpcddp.core.text import escape_controls

    known = _known_nodes(cluster) if cluster else None
    found = [each for file in files for each in audits(file, known)]
    for text in (text for each in found for text in each.table.remarks):
        remark(escape_controls(text))
    if format_ == "json":
        print_json(found[0].plain if len(found) == 1 else {"schema": 1, "tables": [each.plain for each in found]})
    else:
        click.echo(escape_controls("\n\n".join(each.text for each in found)))
    if any(each.findings for each in found):
        ctx.exit(DIFFERS)


def _gpu(node: NodeType) -> str | None:
    """`V100 32GB`; names that have the memory in them as they are."""
    size = f"{node.gpu_memory_gb}GB"
    return f"{node.gpu} {size}" if node.gpu and node.gpu_memory_gb and size not in node.gpu else node.gpu


def _known_nodes(cluster: str) -> dict[str, KnownNode]:
    """The nodes that a profile names; UsageError where it names none."""
    from hpcddp.analysis.audit.nodes import KnownNode, expand
    from hpcddp.cluster.profile_file import load_profile
    from hpcddp.core.errors import UsageError

    profile = load_profile(cluster)
    known = {
        name: KnownNode(kind, node.gpus, _gpu(node))
        for kind, node in profile.node_types.items()
        for name in (expand(node.names) if node.names else ())
    }
    if not known:
        raise UsageError(
            f"the profile of {profile.name} names no nodes (`names:` of a node type); leave --cluster out, or add them"
        )
    return known
