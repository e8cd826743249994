"""A table as HTML: heads are buttons that sort, wide tables scroll in their own frame."""

from __future__ import annotations

from hpcddp.analysis.report.html import Html, join, prose, tag
from hpcddp.analysis.report.table import Cell, Column, Table


def grid(table: Table) -> Html:
    """The frame with the table, and its note."""
    starts = {i for i in range(1, len(table.columns)) if table.columns[i].group != table.columns[i - 1].group}
    heads = [_head(column, i in starts) for i, column in enumerate(table.columns)]
    rows = [[_cell(*each, i in starts) for i, each in enumerate(zip(row, table.columns, strict=True))] for row in table.rows]
    made = tag(
        "table",
        tag("thead", _groups(table), tag("tr", *heads)),
        tag("tbody", *(tag("tr", *row) for row in rows)),
        class_=f"t-{table.name}",
        aria_label=table.title,
    )
    frame = tag("div", made, class_="scroll", tabindex="0", role="region", aria_label=f"{table.title}, table")
    return join([frame, tag("p", prose(table.note), class_="note") if table.note else None])


def _groups(table: Table) -> Html | None:
    """The line of headings that columns share."""
    if not any(column.group for column in table.columns):
        return None
    cells = [
        tag("th", tag("span", group), colspan=width, scope="colgroup", class_="group") if group else tag("td", colspan=width)
        for group, width in table.groups
    ]
    return tag("tr", *cells)


def _head(column: Column, start: bool) -> Html:
    return tag("th", tag("button", column.head, type="button"), scope="col", class_=_classes(column, start))


def _cell(cell: Cell, column: Column, start: bool) -> Html:
    value = repr(cell.value) if isinstance(cell.value, float) else cell.value
    return tag("td", cell.text, class_=_classes(column, start), data_v=value)


def _classes(column: Column, start: bool) -> str | None:
    """`start`: another group begins."""
    return " ".join([*(["num"] if column.numeric else []), *(["start"] if start else [])]) or None
