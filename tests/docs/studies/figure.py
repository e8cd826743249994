"""A study's figure: what was published, beside what its sweep finds here at small size. `python -m tests.docs` draws it."""

from __future__ import annotations

import hashlib
import io
import json
import re

from matplotlib.axes import Axes

from hpcddp.analysis.figures.axis import rate_axis, size_ticks
from hpcddp.analysis.figures.colours import INK, PARTS
from hpcddp.analysis.figures.references import overlay
from hpcddp.analysis.figures.scaling import draw_overlay, legend_entries, legend_mm, overlay_legend
from hpcddp.analysis.figures.style import DEFAULT, entitle, letters, new_figure, rc_style
from hpcddp.analysis.util.wording import quantity
from tests.docs.studies.evidence import PAGES, small_result
from tests.docs.studies.text import commands, small_commands

PANEL_MM = 62.0
"""Height of its two panels."""

BAR = 0.62
"""Height of a bar, as a share of a line."""


def figure_file(study: str) -> str:
    """Its name, beside the page."""
    return f"{study}.svg"


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
    entries = legend_entries(points, letters(DEFAULT, 2), measured=False)
    with new_figure(DEFAULT, PANEL_MM, 2, legend_mm(entries)) as (figure, (left, right)):
        draw_overlay(left, points)
        _published_axes(left, points["gpus"].tolist(), points["samples_per_s"].tolist())
        _measured(right, study)
        overlay_legend(figure, entries)
        entitle(left, DEFAULT, "Published", "throughput, samples/s")
        entitle(right, DEFAULT, "Here, small: nodes x ranks", "throughput, samples/s")
    with rc_style():
        out = io.BytesIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None, "Description": fingerprint(study)})
    (PAGES / figure_file(study)).write_bytes(out.getvalue())


def _published_axes(ax: Axes, gpus: list[int], rates: list[float]) -> None:
    sizes = sorted(set(gpus))
    ax.set_xscale("log", base=2)
    ax.set_xlim(sizes[0] / 1.25, sizes[-1] * 1.25)
    ax.set_xticks([float(size) for size in size_ticks(sizes, str)], labels=[str(size) for size in size_ticks(sizes, str)])
    ax.minorticks_off()
    ax.set_xlabel("GPUs")
    rate_axis(ax, min(rates) / 1.15, max(rates) * 1.15, quantity)


def _measured(ax: Axes, study: str) -> None:
    rows = small_result(study)["rows"]
    heights = range(len(rows))
    ax.barh(heights, [row["samples_per_s"] for row in rows], height=BAR, color=PARTS["backward"])
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
