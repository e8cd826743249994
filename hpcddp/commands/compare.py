"""`hpcddp compare`: two studies, point by point."""

from __future__ import annotations

from pathlib import Path

import click

from hpcddp.commands.options import RunsPath, format_option, print_json, remark, style_option

STUDY = RunsPath()


@click.command()
@click.argument("a", type=STUDY)
@click.argument("b", type=STUDY)
@click.option(
    "--threshold",
    type=click.FloatRange(min=0, max=100, max_open=True),
    default=5.0,
    show_default=True,
    metavar="PERCENT",
    help="How much slower B may be.",
)
@click.option("-o", "output", type=click.Path(path_type=Path, file_okay=False), help="Folder for compare.json and the figure.")
@click.option("--junit", type=click.Path(path_type=Path, dir_okay=False), help="File for JUnit XML: a test case per point.")
@style_option
@format_option
@click.pass_context
def compare(
    ctx: click.Context,
    a: Path,
    b: Path,
    threshold: float,
    output: Path | None,
    junit: Path | None,
    style: str,
    format_: str,
) -> None:
    """Compare two studies: how fast B trains, relative to A.

    A and B are folders or bundles. Clusters, GPUs, software and dates may
    differ; points are matched by layout and workload. A point is slower
    where the whole 95 % interval of the ratio lies beyond the threshold,
    slightly slower where it lies below 1 all the same; with fewer than six
    runs, medians decide. Ends with 4 where a point is slower (slightly
    slower is no reason to), with 3 where B lacks runs or a file could not
    be written.

    \b
    hpcddp compare jobs/before jobs/after
    hpcddp compare jobs/before jobs/after --threshold 3 --junit compare.xml
    """
    from hpcddp.analysis.comparison.compare import compare_studies, compared_plain
    from hpcddp.analysis.comparison.text import compared_text, to_junit
    from hpcddp.analysis.util.output import Failures, write_plain, write_text
    from hpcddp.core.errors import DIFFERS, INCOMPLETE
    from hpcddp.core.run_root import single_study
    from hpcddp.core.text import escape_controls
    from hpcddp.share.unbundle import opened_study

    with opened_study(a) as root_a, opened_study(b) as root_b:
        found = compare_studies(single_study(root_a), single_study(root_b), threshold / 100, (str(a), str(b)))
    plain = compared_plain(found)
    print_json(plain) if format_ == "json" else click.echo(escape_controls(compared_text(found)))
    failures = Failures()
    if output is not None:
        from hpcddp.analysis.comparison.figure import compare_figure
        from hpcddp.analysis.figures.style import STYLES, save

        stem, rc_style = output / "compare", STYLES[style]
        failures.contain(f"{stem}.json", lambda: write_plain(output / "compare.json", plain), None)
        failures.contain(
            f"{stem}.png, .svg and .pdf", lambda: save(compare_figure(found, rc_style), stem, rc_style), list[Path]()
        )
    if junit is not None:
        failures.contain(str(junit), lambda: write_text(junit, to_junit(found)), None)
    for failure in failures:
        remark(escape_controls(f"failed: {failure.of}: {failure.reason}"))
    if found.regressions or found.unfinished or failures:
        ctx.exit(DIFFERS if found.regressions else INCOMPLETE)
