"""index.html: what was found, what is wrong with it, the tables, the figures, what stands behind them.

The page holds everything it shows: no file, no address, no font is requested, and its policy forbids it.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files as resources
from pathlib import Path

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape

from hpcddp import __version__
from hpcddp.analysis.figures.colours import page_css
from hpcddp.analysis.figures.figures import InlineSvg, figure_kind
from hpcddp.analysis.figures.style import DEFAULT
from hpcddp.analysis.report.answer import Answer, answer_of
from hpcddp.analysis.report.provenance import METHOD, Provenance, by_kind
from hpcddp.analysis.report.step_tables import percent_number
from hpcddp.analysis.report.table import Cell, Column, Spec, Table, milli, number_cell, table_of, text_cell
from hpcddp.analysis.report.tables import baseline_heads
from hpcddp.analysis.report.write import CODE
from hpcddp.analysis.study.trained import fact_text
from hpcddp.analysis.util.wording import quantity, time_words
from hpcddp.analysis.verdicts.findings import Findings
from hpcddp.analysis.verdicts.sentence import ends, sizes_words

DATA_SUFFIXES = (".csv", ".json", ".tex")


@dataclass(frozen=True)
class _Shown:
    """A figure on the page."""

    caption: str | None
    panels: Sequence[InlineSvg]
    legend: Sequence[InlineSvg]
    """Shared by the panels."""


def page_html(
    found: Findings,
    stands_on: Provenance,
    tables: Sequence[Table],
    figures: Mapping[str, Sequence[InlineSvg]],
    files: Sequence[str],
) -> str:
    """`figures`: the panels of each; `files`: what lies beside the page, relative to its folder."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True)
    environment.filters |= {"prose": prose, "column_classes": _column_classes}
    style, script = page_css() + _resource("page.css"), _resource("page.js")
    answer = answer_of(found, Path())  # a study without a run that is done has no page: no command names its folder
    step = answer.next_step
    first, topics = _by_topic(found, tables, figures)
    return environment.from_string(_resource("page.html.j2")).render(
        policy=_policy(style, script),
        style=style,
        script=script,
        name=found.records.name,
        heading=found.heading,
        sentences=found.sentences,
        answer=answer,
        next_step=prose(f"`{step}`" if step.startswith("hpcddp ") else step),
        line=" · ".join(filter(None, [answer.trained, *found.trained.get("date", [])])),
        why=". ".join(filter(None, [" and ".join(found.kinds), found.cause])),
        cards=_cards(found, answer),
        first=first,
        trained=[(name, [fact_text(values)]) for name, values in found.trained.items()],
        remarks=sorted(by_kind(found), key=lambda each: each[0] != answer.verdict),
        tables=tables,
        topics=topics,
        implied=found.implied,
        provenance=stands_on.facts.items(),
        gates=_gates(stands_on),
        runs=_runs(found, stands_on),
        method=[(name, [text]) for name, text in METHOD.items()],
        version=__version__,
        files=[file for file in files if file.endswith(DATA_SUFFIXES)],
    )


def prose(text: str) -> Markup:
    """Text with what stands between backticks as code; a number and its per cent stay together."""
    pieces = CODE.split(text.replace(" %", "\u00a0%"))
    return Markup().join(Markup("<code>{}</code>").format(piece) if i % 2 else escape(piece) for i, piece in enumerate(pieces))


def _column_classes(table: Table) -> list[str]:
    """Numbers stand at the right; where another group of columns starts, there is more room."""
    groups = [column.group for column in table.columns]
    starts = [before != group for before, group in zip([*groups[:1], *groups], groups, strict=False)]
    return [
        " ".join([*(["num"] if column.numeric else []), *(["start"] if start else [])])
        for column, start in zip(table.columns, starts, strict=True)
    ]


def _resource(name: str) -> str:
    return (resources("hpcddp.analysis.report") / name).read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    """Nothing but this very style and script runs, nothing is fetched: a picture is in the page itself."""
    rules = ["default-src 'none'", f"style-src {_hash(style)}", f"script-src {_hash(script)}", "img-src data:"]
    return "; ".join([*rules, "base-uri 'none'", "form-action 'none'"])


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _cards(found: Findings, answer: Answer) -> list[tuple[str, str]]:
    """(figure, what it is) of the largest point of each series, of keys of the fastest; what is not known is left out."""
    points = found.shown
    rows = points.nlargest(1, "samples_per_s") if found.is_of_keys else ends(points)

    def span(column: str, text: Callable[[float], str], unit: str = "") -> str:
        known = rows[column].dropna()
        return "–".join(dict.fromkeys(map(text, (known.min(), known.max())))) + unit if len(known) else ""

    heads = {} if found.is_of_keys or points.empty else baseline_heads(points)
    larger = [base for base in heads if rows["gpus" if base == "1gpu" else "nodes"].max() > 1]
    shares = [f"{share} {heads[base]}" for base in larger if (share := span(f"efficiency_{base}", percent_number, " %"))]
    passing, _, spread = answer.trust.partition("; ")
    cards = [
        (span("samples_per_s", quantity), f"samples/s on {sizes_words([row for _, row in rows.iterrows()])}"),
        (span("step_s", milli, " ms"), "per step"),
        (span("epoch_s", time_words), f"per epoch, {span('node_h_per_epoch', quantity)} node h"),
        (passing, spread),
    ]
    if shares:
        share, _, base = shares[0].partition(" % ")
        cards[1] = (f"{share} %", f"efficiency {base}{''.join(f' ({also})' for also in shares[1:])}")
    return [card for card in cards if card[0]]


def _by_topic(
    found: Findings, tables: Sequence[Table], figures: Mapping[str, Sequence[InlineSvg]]
) -> tuple[list[_Shown], dict[str, list[_Shown]]]:
    """What the first screen shows, of several panels the first; what stands below each folded table; under `more` the rest."""
    topics: dict[str, list[_Shown]] = {"more": [], **{table.name: [] for table in tables[1:]}}
    order = [*(axis.stem for axis in found.effects if found.is_of_keys), "efficiency", "scaling", "comm"]
    leading = [next((name for name in order if name in figures), ""), "breakdown"]
    first = dict[str, _Shown]()
    for name, panels in figures.items():
        kind = figure_kind(name)
        caption = kind.caption
        if name == "breakdown" and len(found.shown) > DEFAULT.most_bars:
            caption = f"the first {DEFAULT.most_bars} of {len(found.shown)} points"
        table = next((table for table in kind.below if table in topics), "more")
        marked, shared = ([panel for panel in panels if panel.marked is of_panel] for of_panel in (True, False))
        if name in leading:
            first[name] = _Shown(caption, marked[:1], shared)
            marked = marked[1:]
        if marked:
            topics[table].append(_Shown(caption, marked, shared))
    return [first[name] for name in leading if name in first], topics


def _gates(stands_on: Provenance) -> Table:
    specs: list[Spec] = [
        (Column("check", numeric=False), lambda gate: text_cell(gate.name)),
        (Column("passed"), lambda gate: Cell(f"{gate.passed} of {gate.runs} runs", gate.passed / gate.runs)),
        (Column("evidence", numeric=False), lambda gate: text_cell(gate.evidence)),
    ]
    note = "Evidence of the first run, or of the first that failed."
    return table_of("gates", "Checks of every run", note, specs, stands_on.gates)


def _runs(found: Findings, stands_on: Provenance) -> Table:
    rates = dict(zip((run.name for run in found.records.runs), found.runs["samples_per_s"], strict=True))
    specs: list[Spec] = [
        (Column("run", numeric=False), lambda run: text_cell(run.name)),
        (Column("attempt", numeric=False), lambda run: text_cell(run.attempt)),
        (Column("state", numeric=False), lambda run: text_cell(run.state)),
        (Column("checks passed", numeric=False), lambda run: text_cell(stands_on.gates_of.get(run.name))),
        (Column("steps"), lambda run: number_cell(run.steady_steps, str)),
        (Column("step ms"), lambda run: number_cell(None if run.step_ns is None else run.step_ns / 1e6, quantity)),
        (Column("samples/s"), lambda run: number_cell(rates[run.name], quantity)),
        (Column("reason", numeric=False), lambda run: text_cell(run.reason)),
    ]
    return table_of("runs", "All runs", "", specs, found.records.runs)
