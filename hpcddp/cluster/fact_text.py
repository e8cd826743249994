"""Values of a profile in words, each with the mark of its fact, and the shapes in which they are printed within 100 columns."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hpcddp.cluster.profile import ClusterProfile, Fact
from hpcddp.core.schema import encode
from hpcddp.core.text import table

WIDTH = 100

LARGE = 100_000
"""Numbers from here on are written out, not as 2e+06."""

Rows = list[tuple[str, str]]


def values(profile: ClusterProfile, path: str, record: Any, skip: Sequence[str] = ()) -> Rows:
    """The fields of a record that say something, each with the mark of its fact; defaults are left out unless text. A record in
    a field gives a row for each of its own fields (`links nvlink_gbs`); mappings are printed elsewhere.
    """
    rows, written = Rows(), encode(record)
    for field in dataclasses.fields(record):
        value, key = getattr(record, field.name), f"{path}.{field.name}"
        fact = profile.facts.get(key)
        if field.name in skip or isinstance(value, Mapping):
            continue
        if dataclasses.is_dataclass(value):
            mark_of_all = mark(fact) if fact else ""
            rows += [(f"{field.name} {below}", text + mark_of_all) for below, text in values(profile, key, value)]
        elif value is None and isinstance(field.default, bool):
            rows.append((field.name, "unknown" + (mark(fact) if fact else "")))
        elif fact is not None:
            rows.append((field.name, fact_text(fact, field.name) + mark(fact)))
        elif field.name in written and (value != field.default or isinstance(value, str)):
            rows.append((field.name, value_text(value, field.name)))
    return rows


def fact_text(fact: Fact, key: str = "") -> str:
    """The value in words; nothing is `unknown` where the fact is not verified, and `none` where it is known."""
    if fact.value is None or fact.value == []:
        return "unknown" if fact.grade == "?" else "none"
    return value_text(fact.value, key)


def mark(fact: Fact) -> str:
    """` [C]` for anything but grade A, `*` where another source says something else."""
    grade = "" if fact.grade == "A" else f" [{fact.grade}]"
    return grade + ("*" if fact.conflicts else "")


def value_text(value: object, key: str = "") -> str:
    """A value in words; durations in minutes are given in hours or days too."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (tuple, list)):
        return ", ".join(map(str, value))
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {value_text(item)}" for name, item in value.items())
    if key.endswith("_min") and isinstance(value, int) and value >= 60:
        return f"{value} ({value / 1440:.3g} d)" if value > 1440 else f"{value} ({value / 60:g} h)"
    if isinstance(value, float):
        return f"{value:g}" if abs(value) < LARGE else f"{value:,.0f}"
    return str(value)


def records_table(title: str, kind: type, records: Sequence[tuple[str, Rows]], name: str, left: Sequence[str] = ()) -> str:
    """A row per record of a `kind`, its fields as columns, those without any value left out; `left`: columns of words. Where that
    is too wide, headers of two lines, or else the fields of each record behind its name.
    """
    rows = [(label, dict(fields)) for label, fields in records]
    keys = [field.name for field in dataclasses.fields(kind) if any(field.name in row for _, row in rows)]
    if not keys:
        return pairs(title, [(label, "") for label, _ in rows])
    cells = [[label, *(row.get(key) for key in keys)] for label, row in rows]
    halves = [("", key) if key in left else _halves(key) for key in keys]
    wide = table((name, *keys), cells, left=(name, *left))
    narrow = table(("", *(half for half, _ in halves)), [[name, *(half for _, half in halves)], *cells], left=("",))
    for text in (wide, narrow):
        if fits(text):
            return f"{title}\n{text}"
    return pairs(title, [(label, ", ".join(f"{key} {value}" for key, value in row.items())) for label, row in rows])


def _halves(key: str) -> tuple[str, str]:
    """A key in two, at the underscore nearest to its middle: `default_` and `walltime_min`."""
    places = [i + 1 for i, character in enumerate(key) if character == "_"]
    place = min(places, key=lambda i: abs(2 * i - len(key)), default=0)
    return key[:place] or " ", key[place:]


def fits(text: str) -> bool:
    """Whether no line is too wide."""
    return all(len(line) <= WIDTH for line in text.splitlines())


def pairs(title: str, rows: Iterable[tuple[str, str]]) -> str:
    """Key and value per line under a title, long values wrapped; nothing without rows."""
    rows = list(rows)
    if not rows:
        return ""
    width = max(len(key) for key, _ in rows)
    lines = [title]
    for key, value in rows:
        lines += wrapped(value, " " * (width + 4), f"  {key:<{width}}  ") or [f"  {key}"]
    return "\n".join(lines)


def wrapped(text: str, indent: str, first: str | None = None) -> list[str]:
    """The lines of a text, broken between words; `first`: the beginning of the first one."""
    return textwrap.wrap(
        text, WIDTH, initial_indent=indent if first is None else first, subsequent_indent=indent, break_on_hyphens=False
    )
