"""A study's page: written by hand, but for what stands between `<!-- KIND: ... -->` and `<!-- end -->`, which is made here.

published: NAME METRIC    the published points of that name and metric, with quality and line
audit: NAME               what `hpcddp audit` finds in the audit table NAME.csv
sweep                     the groups of jobs/STUDY.yaml, and how many points they come to
measured                  the small result, docs/studies/STUDY.json
lines                     where each number of the text can be looked up
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from matplotlib.axes import Axes

from hpcddp.analysis.audit.audit import audits
from hpcddp.analysis.audit.findings import Finding
from hpcddp.analysis.figures.axis import rate_axis, size_ticks
from hpcddp.analysis.figures.colours import FAINT, INK
from hpcddp.analysis.figures.references import FILE as PUBLISHED
from hpcddp.analysis.figures.references import overlay
from hpcddp.analysis.figures.scaling import draw_overlay, legend_entries
from hpcddp.analysis.figures.style import DEFAULT, entitle, new_figure, rc_style
from hpcddp.analysis.util.wording import quantity
from hpcddp.cluster.profile_file import load_profile
from hpcddp.core.text import count
from hpcddp.sweep.expand import expand
from hpcddp.sweep.file import read_sweep
from tests.docs.studies.text import (
    AUDITS,
    BLOCK,
    PAGES,
    ROOT,
    cited_numbers,
    commands,
    csv_rows,
    link_of,
    read_page,
    small_commands,
    small_result,
)

LONG_TABLE = 8
"""Rows of published points that a page shows; of more it says where they are."""

SAID_LATER = re.compile(r"\n\n(Hollow in figures: .*)(?=\n<!-- end -->(?s:.*)\n\1\n)")
"""What stands below the last of several tables too, and is said there only."""

MANY_LINES = 4
"""Lines of a finding that are named one by one; of more, the first and the last."""


def page(study: str) -> str:
    """The page with its made parts as the data is now."""
    text = BLOCK.sub(lambda found: f"{found[1]}{MAKERS[found[2]](study, found[3] or '')}\n{found[5]}", read_page(study))
    return SAID_LATER.sub("", text)


def table(rows: list[dict[str, str]]) -> str:
    """In Markdown; columns that are empty in every row are left out."""
    columns = [key for key in rows[0] if any(row[key] for row in rows)]
    lines = [columns, ["---"] * len(columns), *([row[key].replace("|", "\\|") for key in columns] for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def published_table(study: str, arguments: str) -> str:
    """Points of a name and metric; columns in which they do not differ are left out, but for sizes."""
    name, metric = arguments.split(" ", 1)
    rows = {line: row for line, row in csv_rows(PUBLISHED).items() if (row["name"], row["metric"]) == (name, metric)}
    shown = [key for key in ("gpu", "precision", "batch_per_gpu", "workers") if len({row[key] for row in rows.values()}) > 1]
    cells = [
        {
            "line": f"[{line}](../../analysis/figures/reference_points.csv#L{line})",
            "nodes x GPUs": f"{row['nodes']} x {row['gpus_per_node']}",
            **{key.replace("_", " "): row[key] for key in shown},
            f"{metric.replace('_', ' ')}, {row['unit']}": row["value"],
            "quality": row["quality"],
            "note": row["note"],
        }
        for line, row in rows.items()
    ]
    first = f"[line {min(rows)}](../../analysis/figures/reference_points.csv#L{min(rows)})"
    shown_or_where = table(cells) if len(cells) <= LONG_TABLE else f"{len(rows)} rows from {first} on."
    return f"{shown_or_where}\n\nHollow in figures: {next(iter(rows.values()))['caveat']}."


def audit_list(study: str, name: str) -> str:
    """The first finding of each kind, the heaviest first, and how many there are like it."""
    kinds: dict[str, list[Finding]] = {}
    for found in audits(AUDITS / f"{name}.csv")[0].findings:
        kinds.setdefault(found.kind, []).append(found)
    lines = [
        f"- {_lines(of[0].lines, name)}: {of[0].sentence}{f' (and {len(of) - 1} more like it)' if of[1:] else ''}"
        for of in kinds.values()
    ]
    return "\n".join(lines) if lines else "- nothing: times without a claim cannot contradict one"


def _lines(lines: tuple[int, ...], name: str) -> str:
    several = ", ".join(map(str, lines)) if len(lines) <= MANY_LINES else f"{lines[0]} to {lines[-1]}"
    return f"[{'line' if len(lines) == 1 else 'lines'} {several}](../../tests/analysis/audits/{name}.csv#L{lines[0]})"


def sweep_groups(study: str, _: str) -> str:
    """The groups by name, and how many points they come to; `hpcddp plan` lists these."""
    source = read_sweep(ROOT / "jobs" / f"{study}.yaml")
    planned = expand(source, load_profile(str(source.sweep.cluster)))
    runs = f"{count(len(planned), 'point')}, {count(source.sweep.repeat, 'run')} each"
    return f"Groups {', '.join(f'`{name}`' for name in source.groups)}: together {runs}."


def measured_table(study: str, _: str) -> str:
    """The rows, the verdicts, date and machine; the sentences are in the study's JSON, and in what the commands print."""
    found = small_result(study)
    named = dict.fromkeys(verdict["name"] for verdict in found["verdicts"])
    verdicts = f"Verdicts: {', '.join(named)}. " if named else ""
    return f"{table([_measured(row) for row in found['rows']])}\n\n{verdicts}Measured on {found['date']}: {found['hardware']}."


def _measured(row: Mapping[str, Any]) -> dict[str, str]:
    between = f" ({quantity(row['samples_per_s_low'])} to {quantity(row['samples_per_s_high'])})" if row["n"] > 1 else ""
    step = row["step_mean_s"]
    return {
        "nodes x ranks": f"{row['nodes']} x {row['gpus_per_node']}",
        "what differs": row["what"],
        "runs": str(row["n"]),
        "samples/s": f"{quantity(row['samples_per_s'])}{between}",
        "step, ms": f"{step * 1e3:.1f}",
        "waits for data": _share(row["data_wait_mean_s"], step),
        "communicates": _share(row["comm_exposed_mean_s"], step),
    }


def _share(seconds: float | None, step_s: float) -> str:
    return "" if seconds is None else f"{100 * seconds / step_s:.0f} %"


def line_links(study: str, _: str) -> str:
    """A definition for each label of the text."""
    labels = sorted({label for _, label in cited_numbers(read_page(study))})
    return "\n".join(f"[{label}]: {link_of(study, label)}" for label in labels)


MAKERS: Mapping[str, Callable[[str, str], str]] = {
    "published": published_table,
    "audit": audit_list,
    "sweep": sweep_groups,
    "measured": measured_table,
    "lines": line_links,
}


PANEL_MM = 62.0
"""Height of its two panels."""

BAR = 0.62
"""Height of a bar, as a share of a line."""


def overlay_names(study: str) -> list[str]:
    """The published points that the page's commands draw beside one's own."""
    named = re.findall(r"--overlay (\S+)", "\n".join([*commands(study), *small_commands(study)]))
    return list(dict.fromkeys(named))


def fingerprint(study: str) -> str:
    """Of everything that is drawn: stands in the figure's description."""
    points = overlay(overlay_names(study), rejected=True).to_dict("records")
    drawn = json.dumps([points, small_result(study)["rows"]], sort_keys=True)
    return hashlib.sha256(drawn.encode()).hexdigest()[:16]


def draw(study: str) -> None:
    """Writes docs/studies/STUDY.svg."""
    points = overlay(overlay_names(study), rejected=True)
    entries = legend_entries(points)
    with new_figure(DEFAULT, PANEL_MM, 2, _runs_note(study), entries) as (figure, (left, right)):
        draw_overlay(left, points)
        _published_axes(left, points["gpus"].tolist(), points["samples_per_s"].tolist())
        _measured_axes(right, study)
        entitle(left, DEFAULT, "Published", "throughput, samples/s")
        entitle(right, DEFAULT, "Here, small: nodes x ranks", "throughput, samples/s")
    with rc_style():
        out = io.BytesIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None, "Description": fingerprint(study)})
    (PAGES / f"{study}.svg").write_bytes(out.getvalue())


def _runs_note(study: str) -> str:
    """What the bars of the small result are of, and their lines."""
    runs = sorted({row["n"] for row in small_result(study)["rows"]})
    line = f"; line: {'95 % CI' if runs[0] >= 6 else 'lowest to highest'}" if runs[-1] > 1 else ""
    return f"Here: {' to '.join(map(str, sorted({runs[0], runs[-1]})))} run{'s' if runs[-1] > 1 else ''} each{line}."


def _published_axes(ax: Axes, gpus: list[int], rates: list[float]) -> None:
    sizes = sorted(set(gpus))
    ax.set_xscale("log", base=2)
    ax.set_xlim(sizes[0] / 1.25, sizes[-1] * 1.25)
    ax.set_xticks([float(size) for size in size_ticks(sizes, str)], labels=[str(size) for size in size_ticks(sizes, str)])
    ax.minorticks_off()
    ax.set_xlabel("GPUs")
    rate_axis(ax, min(rates) / 1.15, max(rates) * 1.15, quantity)


def _measured_axes(ax: Axes, study: str) -> None:
    rows = small_result(study)["rows"]
    heights = range(len(rows))
    ax.barh(heights, [row["samples_per_s"] for row in rows], height=BAR, color=FAINT)
    for height, row in enumerate(rows):
        ax.annotate(
            quantity(row["samples_per_s"]), (row["samples_per_s"], height), (3, 0), textcoords="offset points", va="center"
        )
        if row["n"] > 1:
            ax.plot([row["samples_per_s_low"], row["samples_per_s_high"]], [height, height], color=INK, linewidth=1.0)
    ax.set_yticks(heights, labels=[_name(row) for row in rows])
    ax.invert_yaxis()
    ax.set_xlim(0, max(row["samples_per_s"] for row in rows) * 1.22)
    ax.set_xticks([])
    ax.spines["bottom"].set_visible(False)
    ax.tick_params(axis="y", length=0)


def _name(row: dict[str, object]) -> str:
    size = f"{row['nodes']} x {row['gpus_per_node']}"
    return f"{row['what']}\n{size}" if row["what"] else size
