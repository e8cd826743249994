"""`hpcddp compare`: two studies point by point, or one study by the values of a key."""

from __future__ import annotations

from pathlib import Path

import click

from hpcddp.commands.options import RunsPath, format_option, print_json, remark, style_option


@click.command()
@click.argument("a", type=RunsPath())
@click.argument("b", type=RunsPath(), required=False)
@click.option("--by", "key", metavar="KEY", help="Compare points of A that differ in this key alone, such as workload.precision.")
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
    b: Path | None,
    key: str | None,
    threshold: float,
    output: Path | None,
    junit: Path | None,
    style: str,
    format_: str,
) -> None:
    """Compare two studies, or the points of one study by a key.

    A and B are folders or bundles. Clusters, GPUs, software and dates may differ. Points are matched by layout and workload.
    A point of B is slower if the whole 95 % interval of the throughput ratio B / A lies beyond the threshold. It is slightly
    slower if the interval lies below 1, but not beyond the threshold. With fewer than six runs, medians decide.

    The command exits with code 4 if a point is slower. It exits with code 3 if B lacks runs or a file could not be written.
    With --by KEY and A alone, each line is a size and each column a value of the key. Cells are ratios to the base value.

    \b
    hpcddp compare jobs/before jobs/after
    hpcddp compare jobs/marconi100-resnet50 --by workload.precision
    hpcddp compare jobs/before jobs/after --threshold 3 --junit compare.xml
    """
    if (b is None) == (key is None) or (key is not None and (output or junit)):
        raise click.UsageError("give two studies, or one study with --by KEY and without -o and --junit")
    if b is None or key is not None:
        _show_by_key(a, str(key), format_)
        return
    from hpcddp.analysis.comparison.compare import compare_studies, compared_plain
    from hpcddp.analysis.comparison.text import compared_text, to_junit
    from hpcddp.analysis.util.files import Failures, write_plain, write_text
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
        files = f"{stem}.png, .svg and .pdf"
        failures.contain(files, lambda: save(compare_figure(found, rc_style), stem, rc_style), list[Path]())
    if junit is not None:
        failures.contain(str(junit), lambda: write_text(junit, to_junit(found)), None)
    for failure in failures:
        remark(escape_controls(f"failed: {failure.of}: {failure.reason}"))
    if found.regressions or found.unfinished or failures:
        ctx.exit(DIFFERS if found.regressions else INCOMPLETE)


def _show_by_key(root: Path, key: str, format_: str) -> None:
    from hpcddp.analysis.study.by_key import axis_of, by_plain, by_text
    from hpcddp.core.run_root import single_study
    from hpcddp.core.text import escape_controls
    from hpcddp.share.unbundle import opened_study

    with opened_study(root) as folder:
        study = single_study(folder)
        axis = axis_of(study, key)
    print_json(by_plain(study, axis)) if format_ == "json" else click.echo(escape_controls(by_text(study, axis)))
