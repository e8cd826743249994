"""Which figures a study gets, what the page says of each, and their files; figures as SVG elements of the page."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

import matplotlib as mpl
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.legend import Legend
from matplotlib.transforms import Bbox, BboxBase

from hpcddp.analysis.figures.accuracy import training_drawings
from hpcddp.analysis.figures.breakdown import breakdown_figure, timeline_figure
from hpcddp.analysis.figures.colours import BASELINES, FAINT, GRID, INK, PARTS, PREDICTED
from hpcddp.analysis.figures.comm import comm_figure, panels
from hpcddp.analysis.figures.distribution import MAX_ROWS, distribution_figure, rank_map_figure
from hpcddp.analysis.figures.scaling import baselines, effect_drawings, efficiency_figure, scaling_figure
from hpcddp.analysis.figures.style import DEFAULT, SUFFIXES, Mark, MarkedFigure, Style, fix_layout, rc_style, save
from hpcddp.analysis.study.axes import OF_EFFECTS
from hpcddp.analysis.study.series import full_names, short_names
from hpcddp.analysis.verdicts.findings import Findings

Drawing = Callable[[], MarkedFigure]
"""A figure that is yet to be drawn."""

Drawings = tuple[dict[str, Drawing], list[str]]
"""Figures by name, and notes on what they leave out."""


@dataclass(frozen=True)
class FigureKind:
    """What the page says of a figure."""

    label: str
    """What it is called for those who do not see it."""
    below: tuple[str, ...] = ()
    """It stands below the first of these tables that is there, otherwise among what shows single runs."""
    caption: str | None = None
    parts: bool = False
    """Its colours are those of the parts of a step."""


ONE_STEP = "One step, the nearest to the run's median"
FIGURES = {
    "efficiency": FigureKind("Efficiency against size", ("scaling",)),
    "scaling": FigureKind("Throughput against size", ("scaling",)),
    "breakdown": FigureKind("Parts of the step", ("breakdown",), parts=True),
    "accuracy": FigureKind("Accuracy against time, epochs and node hours", ("accuracy",), parts=True),
    "to_accuracy": FigureKind("Speedup to an accuracy against size", ("to_accuracy",)),
    "steps": FigureKind("Lengths of all steps"),
    "ranks": FigureKind("Each rank's own time", caption="Each rank's own time, without waiting for others"),
    "timeline": FigureKind(ONE_STEP, caption=ONE_STEP, parts=True),
    "comm": FigureKind("Bus bandwidth against message size", ("collectives", "exchange")),
}
"""Every figure by the name of its files, but those of keys."""


def figure_kind(name: str) -> FigureKind:
    """Of a figure of a key, too, which has the name of its table."""
    return FIGURES.get(name) or FigureKind("Throughput against what changes it", (name,))


MAX_SERIES = 6
"""Series in one figure, the largest ones; the table and the CSV have them all."""


def study_drawings(found: Findings, style: Style = DEFAULT, overlay: pd.DataFrame | None = None) -> Drawings:
    """All of a study's figures, those of its keys first where it is about them; of what raises there are none."""
    groups: dict[str, Callable[[], Drawings]] = {
        "points": lambda: point_drawings(found, style, overlay),
        "trainings": lambda: training_drawings(found, style),
        "keys": lambda: effect_drawings(found.effects, style),
        "single runs": lambda: detail_drawings(found, style),
    }
    nothing: Drawings = ({}, [])
    done = {of: found.failures.contain(f"figures of {of}", make, nothing) for of, make in groups.items()}
    ordered = [*([done["keys"]] if found.is_of_keys else []), *done.values()]
    figures = {name: draw for drawn, _ in ordered for name, draw in drawn.items()}
    return figures, [note for _, notes in done.values() for note in notes]


def point_drawings(found: Findings, style: Style = DEFAULT, overlay: pd.DataFrame | None = None) -> Drawings:
    """How points scale, and where their steps go. A series with one layout has nothing to show of scaling."""
    scaling, runs, apart = found.shown, found.runs, found.shown_apart
    names, short = full_names(apart), short_names(apart)
    layouts = scaling.groupby("series", sort=False)["label"].transform("size")
    wide = list(dict.fromkeys(scaling.loc[layouts > 1, "series"]))
    shown = scaling[scaling["series"].isin(wide[:MAX_SERIES])]
    figures: dict[str, Drawing] = {}
    most = style.most_bars
    if any(baselines(points) for _, points in shown.groupby("series")):
        figures["efficiency"] = partial(efficiency_figure, shown, names, runs, style)
    if len(scaling):
        figures["breakdown"] = partial(breakdown_figure, scaling[:most], names, short, style)
    if wide:
        figures["scaling"] = partial(scaling_figure, shown, names, runs, overlay, style)
    beside_cpus = overlay is not None and len(overlay) and (scaling["device"] == "cpu").any()
    left = [
        "published points are of GPUs: they are not drawn beside ranks on CPUs" if beside_cpus else "",
        f"the scaling figures show the {MAX_SERIES} largest of {len(wide)} series" if len(wide) > MAX_SERIES else "",
        f"figures/breakdown.png shows the first {most} of {len(scaling)} points" if len(scaling) > most else "",
    ]
    return figures, [note for note in left if note]


def detail_drawings(found: Findings, style: Style = DEFAULT) -> Drawings:
    """Of runs looked at closely: all steps of each point, the ranks and one step of few runs, and the network."""
    detail = found.detail
    figures: dict[str, Drawing] = {}
    points = list(detail.times["row"].unique())
    shown = detail.times[detail.times["row"].isin(points[:MAX_ROWS])]
    if points:
        names, short = full_names(found.shown_apart), short_names(found.shown_apart)
        figures["steps"] = partial(distribution_figure, found.shown, shown, names, short, style)
    if len(detail.ranks):
        figures["ranks"] = partial(rank_map_figure, detail.ranks, style)
    if len(detail.parts):
        figures["timeline"] = partial(timeline_figure, detail.parts, detail.travels, style)
    layouts, fewer = panels(found.collectives, detail.trained)
    if layouts:
        figures["comm"] = partial(comm_figure, layouts, style)
    more = f"the figure of all steps shows the first {MAX_ROWS} of {len(points)} points" if len(points) > MAX_ROWS else None
    return figures, [note for note in (more, fewer) if note]


def figure_folder(folder: Path) -> None:
    """Makes the report's folder of figures, without those of an earlier analysis; a link in its place is removed."""
    if folder.is_symlink():
        folder.unlink()
    folder.mkdir(parents=True, exist_ok=True)
    for name in (*FIGURES, f"{OF_EFFECTS}*"):
        for file in [file for suffix in SUFFIXES for file in folder.glob(f"{name}{suffix}")]:
            file.unlink(missing_ok=True)


@dataclass(frozen=True)
class SavedFigure:
    """`files`: paths from the folder above; `panels`: what the page shows of it."""

    files: list[str]
    panels: list[InlineSvg]


def save_figure(stem: Path, draw: Drawing, style: Style, draw_page: Drawing, suffixes: Sequence[str]) -> SavedFigure:
    """Drawn once for its files and the page, if its style is the page's; else `draw_page` draws what the page shows."""
    figure = draw()
    files = save(figure, stem, style, suffixes)
    if style != DEFAULT:
        figure = draw_page()
        fix_layout(figure, DEFAULT)
    kind = figure_kind(stem.name)
    panels = inline_svg(figure, kind.label, parts=kind.parts)
    return SavedFigure([f"{stem.parent.name}/{file.name}" for file in files], panels)


DPI = 72.0
"""matplotlib's SVG counts in points."""

RASTER_DPI = 200

PX_PER_PT = 1.8
"""Of a panel where there is room: its type of 8 points is then as large as the page's tables."""

PAD_PT = 3.0
"""Around a panel that is cut out of several."""

LEAST_PT = 5.0
"""Half the width of what can be pointed at."""

VARIABLES = {INK: "--ink", FAINT: "--faint", GRID: "--grid", "#ffffff": "--paper"}
OF_PARTS = {PARTS["other"]: "--other", PARTS["unaccounted"]: "--unaccounted"}
OF_LINES = {BASELINES["1gpu"]: "--one", BASELINES["1node"]: "--node", PREDICTED: "--other"}
"""Colour -> variable of the page's style. Parts coloured as baselines keep their colour: the lighter one is another part's."""

_NO_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
"""Characters that XML cannot hold; names in records may."""


@dataclass(frozen=True)
class InlineSvg:
    """One element."""

    markup: str
    marked: bool
    """False: a legend or a colour bar that several panels share."""


def inline_svg(figure: MarkedFigure, name: str, parts: bool = False) -> list[InlineSvg]:
    """The SVG elements of its panels, then of what they share; it is laid out. `name`, `parts`: as its FigureKind has them."""
    colours = VARIABLES | (OF_PARTS if parts else OF_LINES)
    figure.dpi = DPI
    defs, drawn = _drawn(figure, {colour.lower(): f"var({variable})" for colour, variable in colours.items()})
    if len({id(mark.ax) for mark in figure.marks}) < 2:
        return [_element(figure, figure.bbox, [defs, *drawn], figure.marks, name)]
    axes = [ax for ax in figure.axes if ax.get_visible()]
    of_axes, of_legends = drawn[: len(axes)], drawn[len(axes) :]
    panels = [
        _element(figure, _box(ax), [defs, child], [mark for mark in figure.marks if mark.ax is ax], name)
        for ax, child in zip(axes, of_axes, strict=True)
    ]
    return [*panels, *(entry for pair in zip(figure.legends, of_legends, strict=True) for entry in _entries(figure, *pair, name))]


def _box(*artists: Artist) -> Bbox:
    boxes = [box for box in (artist.get_tightbbox() for artist in artists) if box is not None]
    return Bbox.union(boxes).padded(PAD_PT)


def _entries(figure: MarkedFigure, legend: Legend, drawn: Element, name: str) -> Iterator[InlineSvg]:
    """The entries of a legend one by one, so that they fill lines of any width; each is drawn as its symbol, then its text."""
    children: list[list[Element]] = [[]]
    for child in drawn:
        children[-1].append(child)
        if child.find(".//text") is not None:
            children.append([])
    for handle, text, shapes in zip(legend.legend_handles, legend.get_texts(), children, strict=False):
        assert handle is not None
        yield _element(figure, _box(handle, text), shapes, (), name)


def _drawn(figure: MarkedFigure, colours: Mapping[str, str]) -> tuple[Element, list[Element]]:
    """(definitions, panels and legends), as matplotlib draws them and a page can hold them."""
    out = io.StringIO()
    with rc_style():
        mpl.rcParams["svg.fonttype"] = "none"
        figure.savefig(out, format="svg", dpi=RASTER_DPI, metadata={"Date": None, "Creator": None})
    root = ElementTree.fromstring(_NO_XML.sub("\ufffd", out.getvalue()))
    for element in root.iter():
        _clean(element, colours)
    defs = Element("defs")
    defs.extend(clip for each in root.findall("defs") for clip in each.iter("clipPath"))
    (group,) = root.findall("g")
    return defs, list(group)[1:]  # the first is the background


def _clean(element: Element, colours: Mapping[str, str]) -> None:
    """Without namespaces, layout of the text and ids that nothing refers to; `style` as attributes."""
    element.tag = element.tag.rpartition("}")[2]
    attributes = {name.rpartition("}")[2]: " ".join(value.split()) for name, value in element.attrib.items()}
    for rule in filter(None, attributes.pop("style", "").split(";")):
        name, value = (side.strip() for side in rule.split(":", 1))
        attributes[name] = colours.get(value, value)
    for name in ("font-family", *(["id"] if element.tag == "g" else [])):
        attributes.pop(name, None)
    element.attrib = attributes
    element.tail = None
    if element.tag not in ("text", "tspan"):
        element.text = None


def _element(figure: MarkedFigure, box: BboxBase, children: list[Element], marks: Sequence[Mark], name: str) -> InlineSvg:
    height = figure.bbox.height
    view = f"{box.x0:.1f} {height - box.y1:.1f} {box.width:.1f} {box.height:.1f}"
    svg = Element(
        "svg", {"class": "plot", "viewBox": view, "width": f"{PX_PER_PT * box.width:.0f}", "role": "group", "aria-label": name}
    )
    svg.extend(children)
    for mark in marks:
        _add_target(svg, mark, height)
    return InlineSvg(ElementTree.tostring(svg, encoding="unicode"), bool(marks))


def _add_target(svg: Element, mark: Mark, height: float) -> None:
    """An invisible shape over the mark, with its values for the page's script and for those who do not see them."""
    ends = mark.ax.transData.transform(list(zip(mark.x, mark.y, strict=True)))
    (left, right), (low, high) = sorted(ends[:, 0]), sorted(height - ends[:, 1])
    values = {name: " ".join(text.split()) for name, text in mark.values.items()}
    shown = {
        "class": "mark",
        "data-tip": "\n".join(f"{name}\t{text}" for name, text in values.items()),
        "role": "img",
        "aria-label": ", ".join(f"{name} {text}".strip() for name, text in values.items()),
    }
    if mark.x[0] == mark.x[1]:
        SubElement(svg, "circle", {"cx": f"{left:.1f}", "cy": f"{low:.1f}", "r": f"{LEAST_PT:g}", **shown})
    else:
        box = {"x": left, "y": low, "width": right - left, "height": high - low}
        SubElement(svg, "rect", {**{name: f"{length:.1f}" for name, length in box.items()}, **shown})
