"""The first screen: what a study comes to in 24 lines of 80 columns. `--full` and the page have all of it."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from hpcddp.analysis.report.answer import LETTERS, Answer
from hpcddp.analysis.report.table import Cell, Column, Spec, Table, key_columns, number_of, table_of, terminal_forms, unit_of
from hpcddp.analysis.report.tables import baseline_of
from hpcddp.analysis.runs.run import NOT_STARTED, by_reason
from hpcddp.analysis.study.series import full_names, short_names
from hpcddp.analysis.util.wording import percent, quantity, times
from hpcddp.analysis.verdicts.findings import Findings
from hpcddp.core.text import count, escape_controls, thousands

LINES, COLUMNS, BAR = 23, 80, 20
"""Of a terminal of 24 lines, whose last one is the prompt; characters of a bar of 100 %."""


def first_screen(found: Findings, answer: Answer, table: Table | None, report: Path | None, note: str = "") -> str:
    """`table`: shown as it is, where no point was trained, or the user named its columns; `note`: on what the user asked for."""
    why = answer.why or ("" if found.shown.empty else "no limit found")
    said = {"WHY": why, "NEXT": answer.next_step, "TRUST": answer.trust}
    said |= {"NOTE": _reason(found, "rejected", " rejected") or note, "MISSING": _reason(found, "missing")}
    said |= {"FAILED": _failed(found)}
    end = [f"{name:<8}{_fitted(text, LETTERS)}" for name, text in said.items() if text]
    end.append("; ".join(["more: --full", *([str(report / "index.html")] if report else [])]))
    begin, none = _begin(found, answer), list[str]()
    room = LINES - len(begin) - len(end)
    rows = found.failures.contain("the first screen", lambda: _rows(found, answer, table, room), none)
    return "\n".join([*begin, *rows, *end])


def _fitted(text: str, letters: int) -> str:
    """Cut between words; a command is never cut: it would be another one."""
    text = escape_controls(text)
    return text if text.startswith("hpcddp ") else _wrapped(text, letters, 1)[0]


def _wrapped(text: str, width: int, lines: int) -> list[str]:
    return textwrap.wrap(text, width, max_lines=lines, placeholder=" ...", break_on_hyphens=False)


def _begin(found: Findings, answer: Answer) -> list[str]:
    """What was trained, in a line where it fits; of a study of keys the best value, which is what it is for."""
    line = "  ".join(filter(None, [found.records.name, answer.trained, answer.kind]))
    lines = [line] if len(line) <= COLUMNS else [f"{found.records.name}  {answer.kind}", answer.trained]
    best = found.sentences[0].split(". ")[0] if found.is_of_keys and found.sentences else ""
    return [*(_fitted(line, COLUMNS) for line in lines if line), *_wrapped(escape_controls(best), COLUMNS, 2)]


def _reason(found: Findings, state: str, are: str = "") -> str:
    """The first reason of the runs that began and do not count."""
    reasons = by_reason(run for run in found.records.runs if run.state == state and run.reason != NOT_STARTED)
    why = f" for {len(reasons)} reasons" if len(reasons) > 1 else ""
    return f"{count(sum(map(len, reasons.values())), 'run')}{are}{why}: {next(iter(reasons))}" if reasons else ""


def _failed(found: Findings) -> str:
    reasons = list(found.failures.by_reason().items())
    return f"{count(len(found.failures), 'part')}: {reasons[0][1][0]}: {reasons[0][0]}" if reasons else ""


def _rows(found: Findings, answer: Answer, table: Table | None, room: int) -> list[str]:
    if found.shown.empty or table:
        forms = [form.splitlines() for form in terminal_forms(table)] if table and table.rows else [[]]
        lines = next((lines for lines in forms if len(max(lines, key=len, default="")) <= COLUMNS), forms[-1])
        return lines if len(lines) <= room else [*lines[: room - 1], _more(len(lines) - room + 1)]
    points = found.shown.assign(limit=answer.limits)
    if found.is_of_keys:
        points = points.sort_values("samples_per_s", ascending=False, kind="stable")
        shown = points if len(points) < room else points[: room - 2]
        lines = _lines([*key_columns(found.shown_apart), *_of_values(points)], shown, points, {})
        if max(map(len, lines)) <= COLUMNS:
            return lines
        return _lines(_of_values(points), points[: (room - 2) // 2], points, full_names(found.shown_apart))
    names = short_names(found.shown_apart) if len(found.shown_apart) > 1 else {}
    shown = points if len(points) + len(names) < room else _largest(points, room - 2)
    return _lines(_of_sizes(points), shown, points, names)


def _lines(specs: Sequence[Spec], shown: pd.DataFrame, points: pd.DataFrame, names: Mapping[str, str]) -> list[str]:
    """Rows of the points that are `shown`, below the names of their series."""
    name: Spec = (Column("", numeric=False, key=True), lambda row: Cell(_fitted(names[row["series"]], COLUMNS - 2), ""))
    limit: Spec = (Column("", numeric=False), lambda row: Cell(f"{row['limit']:<10}", ""))
    forms = terminal_forms(table_of("screen", "", "", [*([name] if names else []), *specs, limit], shown))
    lines = forms[-1 if names else 0].splitlines()
    return [*lines, *([_more(len(points) - len(shown))] if len(shown) < len(points) else [])]


def _more(rows: int) -> str:
    return f"  {count(rows, 'more row')}: --full"


def _largest(points: pd.DataFrame, room: int) -> pd.DataFrame:
    """The first series, of many sizes the smallest and the largest ones; of each other one, as far as there is room, two."""
    first, *others = (rows for _, rows in points.groupby("series", sort=False))
    most = room - min(len(others), 2) * 3 - bool(others)
    shown = [pd.concat([first[:1], first[1:][1 - most :]])]
    for rows in others:
        ends = pd.concat([rows[:1], rows[1:][-1:]])
        if sum(map(len, shown)) + len(shown) + len(ends) + 1 <= room:
            shown.append(ends)
    return pd.concat(shown)


def _of_values(points: pd.DataFrame) -> list[Spec]:
    best = points["samples_per_s"].max()
    return [_rate(), (Column("of the fastest".ljust(BAR + 7)), lambda row: _bar(row["samples_per_s"] / best))]


def _of_sizes(points: pd.DataFrame) -> list[Spec]:
    gpu, (base, against) = unit_of(points), baseline_of(points)
    specs: list[Spec] = [
        (Column(f"{gpu}s"), number_of("gpus", thousands)),
        (Column("nodes"), number_of("nodes", thousands)),
        _rate(),
    ]
    if points["gpus"].nunique() > 1:
        specs += [
            (Column("speedup"), number_of(f"speedup_{base}", times)),
            (Column(f"efficiency {against}".ljust(BAR + 7)), lambda row: _bar(row[f"efficiency_{base}"])),
        ]
    return specs


def _rate() -> Spec:
    return Column("samples/s"), number_of("samples_per_s", quantity)


def _bar(share: Any) -> Cell:
    if pd.isna(share):
        return Cell("", None)
    return Cell(f"{'#' * min(BAR, round(BAR * share)):<{BAR}}  {percent(share):>5}", float(share))
