"""A report's figures, drawn from the tables so that every point can be asked for its values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pandas as pd

from hpcddp.analysis.figures.axis import log_ticks, nodes_at, percent_ticks, rate_limits, size_ticks
from hpcddp.analysis.figures.colours import COLLECTIVES, FASTER, PARTS, SLOWER, TRAINED
from hpcddp.analysis.figures.comm import LARGEST, SMALLEST, TICKS, panels, rate_range
from hpcddp.analysis.figures.comm import Panel as Bandwidths
from hpcddp.analysis.figures.figures import MAX_SERIES
from hpcddp.analysis.figures.overlay import COLOURS as REFERENCES
from hpcddp.analysis.figures.overlay import best_quality, said
from hpcddp.analysis.figures.series_lines import by_marker, ideals, is_product, tracks
from hpcddp.analysis.report.breakdown_bars import breakdown
from hpcddp.analysis.report.chart import Axis, Line, Mark, Panel, figure, legend, panel, swatch
from hpcddp.analysis.report.detail import close_figures, heat_rules
from hpcddp.analysis.report.html import Html, join, tag
from hpcddp.analysis.study.comm_bench import OPS
from hpcddp.analysis.study.series import full_names
from hpcddp.analysis.util.column_heads import baselines
from hpcddp.analysis.util.failures import Failures
from hpcddp.analysis.util.wording import percent, percent_within, percents, quantity, times, unit
from hpcddp.analysis.verdicts.findings import Findings
from hpcddp.core.text import message_size


def report_figures(found: Findings, published: pd.DataFrame, failures: Failures) -> dict[str, Html]:
    """By the name of the table they belong to, or their own."""
    drawings: dict[str, Callable[[], Html]] = {
        "scaling": lambda: join(_scaling(found, published)),
        "breakdown": lambda: breakdown(found) if len(found.shown) else Html(),
        "collectives" if len(found.collectives) else "exchange": lambda: _collectives(found),
        **close_figures(found),
    }
    figures = {name: failures.contain(f"the page's figure `{name}`", draw, Html()) for name, draw in drawings.items()}
    return {name: figure for name, figure in figures.items() if figure}


def _scaling(found: Findings, published: pd.DataFrame) -> Iterator[Html]:
    """Throughput and efficiency side by side, a row per series, all on the same scales."""
    names = full_names(found.shown_apart)
    series = [points for _, points in found.shown.groupby("series", sort=False) if len(points) > 1][:MAX_SERIES]
    if not series:
        return
    rejected = found.runs[(found.runs["state"] == "rejected") & found.runs["samples_per_s"].notna()]
    of_series = [rejected[rejected["series"] == points["series"].iloc[0]] for points in series]
    beside = published.iloc[:0] if (found.shown["device"] == "cpu").any() else published
    y = _rate_axis([*series, *of_series, beside], [line for points in series for line, _ in _ideals(points)])
    for points, odd in zip(series, of_series, strict=True):
        name = names[points["series"].iloc[0]] if len(series) > 1 else ""
        yield tag("div", _throughput(points, odd, beside, y, name), _efficiency(points, name), class_="pair")


def _rate_axis(tables: Sequence[pd.DataFrame], ideals: Sequence[Line]) -> Axis:
    """From the least to the most of what is drawn, intervals included."""
    columns = ("samples_per_s", "samples_per_s_low", "samples_per_s_high")
    rates = [float(rate) for points in tables for name in columns if name in points for rate in points[name].dropna()]
    return _logarithmic(min(rates) / 1.2, max([*rates, *(line.points[-1][1] for line in ideals)]) * 1.2, quantity)


def _logarithmic(low: float, high: float, text: Callable[[float], str]) -> Axis:
    """As figures.axis.rate_axis has it."""
    low, high = rate_limits(low, high)
    return Axis(low, high, {tick: [text(tick)] for tick in log_ticks(low, high)}, log=True)


def _throughput(points: pd.DataFrame, rejected: pd.DataFrame, published: pd.DataFrame, y: Axis, name: str) -> Html:
    references = {str(key): rows for key, rows in published.groupby("name", sort=False)}
    marks = [_rate_mark(row, shape) for shape, group in by_marker(points) for _, row in group.iterrows()]
    odd = [_rejected_mark(row) for _, row in rejected.iterrows()]
    measured = [Line(list(zip(line["gpus"], line["samples_per_s"], strict=True)), "c-ink") for line in tracks(points)]
    ideals = _ideals(points)
    entries = [*_shapes(points, "c-ink"), *(swatch(text, line.colour, "dashed") for line, text in ideals)]
    entries += [swatch("rejected", "c-faint", "o", hollow=True)] if odd else []
    entries += [
        swatch(_source(rows), _reference_colour(i), *_look(best_quality(rows))) for i, rows in enumerate(references.values())
    ]
    entries += [tag("li", said(published))] if said(published) else []
    theirs = [
        _published_mark(row, _reference_colour(i)) for i, rows in enumerate(references.values()) for _, row in rows.iterrows()
    ]
    drawn = Panel(
        label=f"{name} Throughput against {_units(points)}, logarithmic".strip(),
        x=_sizes(points, pd.concat([rejected["gpus"], published["gpus"]])),
        y=y,
        lines=[*(line for line, _ in ideals), *measured],
        marks=[*theirs, *odd, *marks],
        x_names=_x_names(points),
    )
    return figure("Throughput, samples/s", name, legend(entries), panel(drawn))


def _efficiency(points: pd.DataFrame, name: str) -> Html:
    against = baselines(points)
    known = {base: points.dropna(subset=[f"efficiency_{base}"]) for base in against}
    known = {base: rows for base, rows in known.items() if len(rows) > 1}
    if not known:
        return Html()
    ends = [rows[f"efficiency_{base}{end}"].max() for base, rows in known.items() for end in ("", "_high")]
    highest = max([1.06, *(float(end) * 1.05 for end in ends if pd.notna(end))])
    ticks = {tick / 100: [str(tick)] for tick in percent_ticks(highest * 100)}
    lines = [Line([(points["gpus"].min(), 1.0), (points["gpus"].max(), 1.0)], "c-faint", dashed=True)]
    marks, labels = [], []
    for base, rows in known.items():
        column, colour = f"efficiency_{base}", f"c-{base}"
        lines += [Line(list(zip(line["gpus"], line[column], strict=True)), colour) for line in tracks(rows)]
        for shape, group in by_marker(points):
            shown = group[group[column].notna()]
            marks += [_efficiency_mark(row, base, shape) for _, row in shown.iterrows()]
        labels.append((float(rows[column].iloc[-1]), percent(rows[column].iloc[-1]), colour))
    entries = [swatch(against[base], f"c-{base}", "o") for base in known]
    drawn = Panel(
        label=f"{name} Efficiency against {_units(points)}".strip(),
        x=_sizes(points, points["gpus"]),
        y=Axis(0.0, highest, ticks),
        lines=lines,
        marks=marks,
        ends=labels,
        x_names=_x_names(points),
    )
    return figure("Efficiency, %", name, legend([*entries, swatch("perfect scaling", "c-faint", "dashed")]), panel(drawn))


def _rate_mark(row: Any, shape: str) -> Mark:
    return Mark(row["gpus"], row["samples_per_s"], "c-ink", _values(row), *_ends(row, "samples_per_s"), shape=shape)


def _efficiency_mark(row: Any, base: str, shape: str) -> Mark:
    column = f"efficiency_{base}"
    return Mark(row["gpus"], row[column], f"c-{base}", _values(row), *_ends(row, column), shape=shape)


def _ends(row: Any, column: str) -> tuple[float | None, float | None]:
    low, high = row[f"{column}_low"], row[f"{column}_high"]
    return (float(low), float(high)) if pd.notna(low) and pd.notna(high) else (None, None)


def _rejected_mark(row: Any) -> Mark:
    values = {"rejected": f"r{row['run']} of {row['label']}", "reason": str(row["reason"])}
    return Mark(row["gpus"], row["samples_per_s"], "c-faint", values, hollow=True)


def _published_mark(row: Any, colour: str) -> Mark:
    values = {"published": row["label"], "GPUs": str(row["gpus"]), "samples/s": quantity(row["samples_per_s"])}
    doubt = {} if row["quality"] == "ok" else {"quality": row["quality"]}
    shape, hollow = _look(row["quality"])
    return Mark(row["gpus"], row["samples_per_s"], colour, values | doubt, shape=shape, hollow=hollow)


def _look(quality: str) -> tuple[str, bool]:
    """Shape, and whether it is hollow, as in the picture: with a caveat; a cross where rejected."""
    return "x" if quality == "reject" else "D", quality != "ok"


def _source(rows: pd.DataFrame) -> str:
    return f"{rows['label'].iloc[0]} ({rows['cite'].iloc[0]})"


def _reference_colour(index: int) -> str:
    return f"r-{index % len(REFERENCES)}"


def _values(row: Any) -> dict[str, str]:
    """What a point of the scaling table says when pointed at."""
    gpu = unit(row["device"])
    values = {
        "nodes": f"{row['nodes']} × {row['gpus_per_node']} {gpu}s",
        f"{gpu}s": str(row["gpus"]),
        "samples/s": quantity(row["samples_per_s"]),
        "runs": str(row["n"]),
    }
    if pd.notna(row["interval"]):
        values[row["interval"]] = f"{quantity(row['samples_per_s_low'])}–{quantity(row['samples_per_s_high'])}"
    for base, name in (("1gpu", f"vs 1 {gpu}"), ("1node", "vs 1 node")):
        if pd.notna(row[f"speedup_{base}"]):
            low, high = _ends(row, f"efficiency_{base}")
            ends = "" if low is None or high is None else f" ({percents(low, high, '–')})"
            values[name] = f"{times(row[f'speedup_{base}'])}×, {percent_within(row[f'efficiency_{base}'], low, high)}{ends}"
    return values


def _ideals(points: pd.DataFrame) -> list[tuple[Line, str]]:
    """To the largest size measured."""
    return [(Line(ends, f"c-{base}", dashed=True), text) for base, text, ends in ideals(points, int(points["gpus"].max()))]


def _sizes(points: pd.DataFrame, also: pd.Series[Any]) -> Axis:
    sizes = sorted({*map(int, points["gpus"]), *map(int, also)})
    several = (points["nodes"] > 1).any()
    names = {tick: nodes_at(points, tick) for tick in size_ticks(sizes, lambda tick: nodes_at(points, tick))}
    ticks = {float(tick): [str(tick), *([name] if several else [])] for tick, name in names.items()}
    return Axis(sizes[0] / 1.2, sizes[-1] * 1.2, ticks, log=True)


def _x_names(points: pd.DataFrame) -> list[str]:
    return [_units(points), *(["nodes"] if (points["nodes"] > 1).any() else [])]


def _units(points: pd.DataFrame) -> str:
    return f"{unit(points['device'].iloc[0])}s"


def _shapes(points: pd.DataFrame, colour: str) -> list[Html]:
    """A legend entry per marker."""
    if not is_product(points):
        return [swatch("measured", colour, "o")]
    return [swatch(f"{group['gpus_per_node'].iloc[0]} per node", colour, shape) for shape, group in by_marker(points)]


def _collectives(found: Findings) -> Html:
    """Bus bandwidth against message size, a panel per layout."""
    shown, _ = panels(found.collectives, found.close.trained)
    if not shown:
        return Html()
    y = _logarithmic(*rate_range(shown), "{:g}".format)
    x = Axis(SMALLEST, LARGEST, {float(tick): [message_size(tick)] for tick in TICKS}, log=True)
    return tag("div", *(_layout(each, x, y) for each in shown), class_="pair")


def _layout(each: Bandwidths, x: Axis, y: Axis) -> Html:
    of_op = {op: each.sizes[each.sizes["op"] == op] for op in OPS if (each.sizes["op"] == op).any()}
    limit = [] if each.limit is None else [Line([(x.low, each.limit), (x.high, each.limit)], "c-faint", dashed=True)]
    marks = [_rate_of(op, row) for op, rows in of_op.items() for _, row in rows.iterrows()]
    drawn = Panel(
        label=f"Bus bandwidth against message size, {each.layout}",
        x=x,
        y=y,
        lines=[
            *limit,
            *(Line(list(zip(p["bytes"], p["busbw_bytes_per_s"] / 1e9, strict=True)), f"o-{op}") for op, p in of_op.items()),
        ],
        marks=[*marks, *(_gradients(row) for _, row in each.trained.iterrows())],
    )
    entries = [swatch(OPS[op], f"o-{op}", "o") for op in of_op]
    entries += [swatch("gradients while training", "o-trained", "D")] if len(each.trained) else []
    entries += [swatch(f"{each.said} GB/s", "c-faint", "dashed")] if limit else []
    name = each.layout if limit else f"{each.layout}; {each.said}"
    return figure("Bus bandwidth, GB/s", name, legend(entries), panel(drawn))


def _gradients(row: Any) -> Mark:
    rate = float(row["busbw_bytes_per_s"]) / 1e9
    what = "bucket" if row["kind"] == "bucket" else "buckets, mean size"
    values = {what: f"{quantity(row['bytes'] / 1e6)} MB", "bus": f"{quantity(rate)} GB/s"}
    return Mark(float(row["bytes"]), rate, "o-trained", values, shape="D")


def _rate_of(op: str, row: Any) -> Mark:
    rate = float(row["busbw_bytes_per_s"]) / 1e9
    values = {
        OPS[op]: message_size(int(row["bytes"])),
        "bus": f"{quantity(rate)} GB/s",
        "time": f"{quantity(row['time_s'] * 1e6)} µs",
    }
    return Mark(float(row["bytes"]), rate, f"o-{op}", values)


def colour_rules() -> str:
    """The style's classes of parts, collectives and published points."""
    parts = [f".p-{part}{{fill:var(--{part},{colour})}}" for part, colour in PARTS.items()]
    ops = [f".o-{op}{{--c:{colour}}}" for op, colour in COLLECTIVES.items() if op != "all_reduce"]
    references = [f".r-{i}{{--c:{colour}}}" for i, colour in enumerate(REFERENCES)]
    return "".join(
        [*parts, *ops, *references, ".o-all_reduce{--c:var(--ink)}", f".o-trained{{--c:{TRAINED}}}", heat_rules(SLOWER, FASTER)]
    )
