"""A figure as SVG inside a page: one element per panel, text as text, the page's own colours, and marks that can be pointed at.

A page whose policy allows no inline style needs attributes in place of matplotlib's `style`. Colours that differ between
light and dark become variables of the page's style.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.legend import Legend
from matplotlib.transforms import Bbox, BboxBase

from hpcddp.analysis.figures.colours import BASELINES, FAINT, GRID, INK, PARTS
from hpcddp.analysis.figures.style import Mark, MarkedFigure, rc_style

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
OF_LINES = {BASELINES["1gpu"]: "--one", BASELINES["1node"]: "--node"}
"""Colour -> variable of the page's style. Parts coloured as baselines keep their colour: the lighter one is another part's."""

Colours = Mapping[str, str]

_NO_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
"""Characters that XML cannot hold; names in records may."""


@dataclass(frozen=True)
class InlineSvg:
    """One element."""

    markup: str
    marked: bool
    """False: a legend or a colour bar that several panels share."""


def inline_svg(figure: MarkedFigure, name: str, parts: bool = False) -> list[InlineSvg]:
    """The SVG elements of its panels, then of what several panels share; the figure is laid out already.

    `name`: for those who do not see it; `parts`: its colours are those of the parts of a step.
    """
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
    """About all of them."""
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


def _drawn(figure: MarkedFigure, colours: Colours) -> tuple[Element, list[Element]]:
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


def _clean(element: Element, colours: Colours) -> None:
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
