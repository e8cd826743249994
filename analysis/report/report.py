"""The report as one page: what was found, what is wrong with it, the tables, the figures, what stands behind them.

index.html holds everything it shows: no file, no address, no font is asked for, and its policy forbids it. report.md and the
LaTeX tables say the same for other documents.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib.resources import files as resources

import pandas as pd

from hpcddp import __version__
from hpcddp.analysis.figures.inline_svg import InlineSvg
from hpcddp.analysis.figures.style import DEFAULT
from hpcddp.analysis.report.export_tables import latex_table
from hpcddp.analysis.report.html import Html, prose, tag
from hpcddp.analysis.report.html_table import grid
from hpcddp.analysis.report.markdown import report_markdown
from hpcddp.analysis.report.method import METHOD
from hpcddp.analysis.report.provenance import Provenance
from hpcddp.analysis.report.remarks import remark_list, remarks
from hpcddp.analysis.report.table import UNKNOWN, Cell, Column, Table
from hpcddp.analysis.util.wording import quantity
from hpcddp.analysis.verdicts.findings import Findings
from hpcddp.core.text import message_size

DATA_SUFFIXES = (".csv", ".json", ".tex")


def report_files(
    found: Findings,
    every: Sequence[Table],
    stands_on: Provenance,
    figures: Mapping[str, Sequence[InlineSvg]],
    files: Sequence[str],
) -> dict[str, str | None]:
    """Name -> text of the page, its Markdown and a LaTeX file per table, None for tables without rows.

    `every`: tables, some without rows; `figures`: the panels of each; `files` are what else the report has, relative to its
    folder. What raises is noted as failed and not there.
    """
    tables = [table.in_documents for table in every if table.rows]
    beside = [*files, *(f"{table.name}.tex" for table in tables), "report.json"]
    texts: dict[str, Callable[[], str]] = {
        **{f"{table.name}.tex": partial(latex_table, table) for table in tables},
        "report.md": lambda: report_markdown(found, stands_on, tables, files),
        "index.html": lambda: _page(found, stands_on, tables, _by_topic(found, figures), beside),
    }
    earlier = {f"{table.name}.tex": None for table in every}
    return earlier | {name: found.failures.contain(name, make, None) for name, make in texts.items()}


TOPICS = {"scaling": "scaling", "efficiency": "scaling", "breakdown": "breakdown"}
"""Figure -> the table below which it stands; the others are of single runs."""

DETAIL = {
    "steps": "All steps of each point",
    "ranks": "Each rank's own time, without waiting for others",
    "timeline": "One step, the nearest to the run's median",
}
"""Figure of single runs -> its caption."""


def _by_topic(found: Findings, figures: Mapping[str, Sequence[InlineSvg]]) -> dict[str, Html]:
    """What stands below each table, and under `detail` what shows single runs."""
    topics: dict[str, list[Html]] = {}
    tables = TOPICS | {"comm": "collectives" if len(found.collectives) else "exchange"} | dict.fromkeys(DETAIL, "detail")
    for name, panels in figures.items():
        caption = _left_out(found) if name == "breakdown" else DETAIL.get(name)
        topics.setdefault(tables[name], []).extend(_shown(panels, caption))
    return {name: tag("div", *shown, class_="pair") for name, shown in topics.items()}


def _shown(panels: Sequence[InlineSvg], caption: str | None) -> Iterator[Html]:
    """Each panel, and the legend that they share."""
    head = tag("figcaption", caption) if caption else None
    yield from (tag("figure", head, Html(panel.markup)) for panel in panels if panel.marked)
    shared = [Html(panel.markup) for panel in panels if not panel.marked]
    if shared:
        yield tag("div", *shared, class_="legend")


def _left_out(found: Findings) -> str | None:
    shown, every = DEFAULT.most_bars, len(found.shown)
    return f"the first {shown} of {every} points" if every > shown else None


def _page(
    found: Findings, stands_on: Provenance, tables: Sequence[Table], figures: Mapping[str, Html], files: Sequence[str]
) -> str:
    body = tag(
        "main",
        _summary(found),
        _section("Before you quote this", remark_list(remarks(found))),
        *(_topic(table, figures.get(table.name), found) for table in tables),
        _section("A closer look", figures["detail"]) if "detail" in figures else None,
        _provenance(found, stands_on),
        _section("How this was measured", tag("dl", *(_term(*each) for each in METHOD), class_="facts")),
        tag("footer", f"hpcddp {__version__}. Beside this page: {', '.join(f for f in files if f.endswith(DATA_SUFFIXES))}."),
    )
    style, script = Html(_resource("report.css")), Html(_resource("report.js"))
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_policy(style, script)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", f"{found.records.name}: scaling report"),
        tag("style", style),
    )
    return f"<!DOCTYPE html>\n{tag('html', head, tag('body', body, tag('script', script)), lang='en')}\n"


def _resource(name: str) -> str:
    return (resources("hpcddp.analysis.report") / name).read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    """Nothing but this very style and script runs, nothing is fetched: a picture is in the page itself."""
    rules = ["default-src 'none'", f"style-src {_hash(style)}", f"script-src {_hash(script)}", "img-src data:"]
    return "; ".join([*rules, "base-uri 'none'", "form-action 'none'"])


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _summary(found: Findings) -> Html:
    """The first sentence large, the others below it, then how much of the study there is."""
    first, *others = found.sentences or [_of_collectives(found)]
    counting = sum(run.state == "counts" for run in found.records.runs)
    gpus = [str(gpu) for gpu in found.runs["gpu"].dropna().unique()]
    facts = [*found.kinds, f"{counting} of {len(found.records.runs)} runs count", *gpus]
    toggle = tag("button", "Light or dark", type="button", id="theme", class_="screen", hidden=True)
    return tag(
        "header",
        tag("div", tag("p", found.records.name, class_="study"), toggle, class_="top"),
        tag("h1", prose(first)),
        *(tag("p", prose(sentence), class_="also") for sentence in others),
        tag("p", " · ".join(facts), class_="note"),
    )


def _of_collectives(found: Findings) -> str:
    """The headline of a study without training: what the largest layout reaches."""
    fits = found.fits[found.fits["op"] == "all_reduce"]
    if fits.empty:
        return "No training run counts."
    best = fits.sort_values("ranks", kind="stable").iloc[-1]
    rate, size = quantity(best["largest_busbw_bytes_per_s"] / 1e9), message_size(int(best["largest_bytes"]))
    return f"{best['layout']}: an all-reduce of {size} reaches {rate} GB/s of bus bandwidth."


def _topic(table: Table, figure: Html | None, found: Findings) -> Html:
    """A question: its table, then its figure; of laws what they imply comes first."""
    said = tag("ul", *(tag("li", prose(text)) for text in found.implied), class_="plain") if table.name == "laws" else None
    return _section(table.title, said, grid(table), figure)


def _provenance(found: Findings, stands_on: Provenance) -> Html:
    facts = tag("dl", *(_term(name, *values) for name, values in stands_on.facts.items()), class_="facts")
    runs = tag("details", tag("summary", f"All runs ({len(found.runs)})"), grid(_runs(found, stands_on)), class_="screen")
    gates = [tag("h3", "Checks of every run"), grid(_gates(stands_on))] if stands_on.gates else []
    return _section("What stands behind this", facts, *gates, runs)


def _term(name: str, *values: str) -> Html:
    return tag("div", tag("dt", name), *(tag("dd", prose(value)) for value in values))


def _gates(stands_on: Provenance) -> Table:
    columns = [Column("check", numeric=False), Column("passed"), Column("evidence", numeric=False)]
    rows = [
        [_words(gate.name), Cell(f"{gate.passed} of {gate.runs} runs", gate.passed / gate.runs), _words(gate.evidence)]
        for gate in stands_on.gates
    ]
    return Table("gates", "Checks of every run", "Evidence of the first run, or of the first that failed.", columns, rows)


def _runs(found: Findings, stands_on: Provenance) -> Table:
    heads = {
        "run": False,
        "attempt": False,
        "state": False,
        "checks passed": False,
        "steps": True,
        "step ms": True,
        "samples/s": True,
    }
    columns = [*(Column(head, numeric=numeric) for head, numeric in heads.items()), Column("reason", numeric=False)]
    rows = [
        [
            _words(run.name),
            _words(run.attempt),
            _words(run.state),
            _words(stands_on.gates_of.get(run.name)),
            _number(run.steady_steps, str),
            _number(None if run.step_ns is None else run.step_ns / 1e6, quantity),
            _number(rate, quantity),
            _words(run.reason),
        ]
        for run, rate in zip(found.records.runs, found.runs["samples_per_s"], strict=True)
    ]
    return Table("runs", "All runs", "", columns, rows)


def _words(text: str | None) -> Cell:
    return Cell(text or UNKNOWN, text)


def _number(value: float | None, text: object) -> Cell:
    assert callable(text)
    return Cell(UNKNOWN, None) if value is None or pd.isna(value) else Cell(text(value), float(value))


def _section(title: str, *children: Html | None) -> Html:
    return tag("section", tag("h2", title), *children)
