"""The text of a study's page: what in it is made, its commands, and what its numbers come from: published points, audit tables,
the page's own small result.

In the text of a page a number is written `[24.9][p2/p23]`: the value of line 2 of reference_points.csv over that of line 23.

    [3,466 s][p2]                  the value on line 2 of the published points, or another number on that line
    [39 %][p2/p23/p23.gpus]        arithmetic on values and on named columns of lines; with `%` in hundredths
    [13.86][marconi100:9]          a cell of line 9 of the audit table marconi100.csv
    [1.6 times][m2.samples_per_s/m1.samples_per_s]    of rows of the page's small result, the first being m1
"""

from __future__ import annotations

import ast
import csv
import functools
import json
import operator
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hpcddp.analysis.figures.references import FILE as PUBLISHED

ROOT = Path(__file__).parents[3]
PAGES = ROOT / "docs" / "studies"
AUDITS = ROOT / "tests" / "analysis" / "audits"

NUMBER = re.compile(r"(?<![\w.,/-])\d[\d,]*(?:\.\d+)?(?![\w.]*\w)")
"""A number that stands by itself: none within a name such as ResNet-18, V100 or g5.2xlarge."""

OPERATORS: Mapping[type, Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


class UnsupportedNumberError(Exception):
    """A number of a page that its label does not give."""


@functools.cache
def csv_rows(file: Path) -> dict[int, dict[str, str]]:
    """Line of the file -> its cells by column; no cell has a line break."""
    with file.open(encoding="utf-8", newline="") as text:
        return dict(enumerate(csv.DictReader(text), start=2))


@functools.cache
def small_result(study: str) -> dict[str, Any]:
    """What docs/studies/STUDY.json holds, as small_study.py wrote it."""
    found: dict[str, Any] = json.loads((PAGES / f"{study}.json").read_text(encoding="utf-8"))
    return found


def check_number(study: str, text: str, label: str) -> None:
    """UnsupportedNumberError where `label` does not give the number in `text`, at the digits that are printed."""
    audit = re.fullmatch(r"([\w-]+):(\d+)", label)
    if audit:
        _check_cell(text, csv_rows(AUDITS / f"{audit[1]}.csv")[int(audit[2])])
    elif re.fullmatch(r"p\d+", label) and _is_on_line(text, csv_rows(PUBLISHED)[int(label[1:])]):
        return
    else:
        _check_value(text, evaluate(study, label))


def link_of(study: str, label: str) -> str:
    """Where a label's number can be looked up, relative to the page."""
    audit = re.fullmatch(r"([\w-]+):(\d+)", label)
    if audit:
        return f"../../tests/analysis/audits/{audit[1]}.csv#L{audit[2]}"
    line = re.search(r"\bp(\d+)", label)
    return f"../../analysis/figures/reference_points.csv#L{line[1]}" if line else f"{study}.json"


def evaluate(study: str, label: str) -> float:
    """The value of an expression over lines: `p2/p23`, `1-p42/p34`, `m2.step_mean_s*1000`."""
    try:
        return _evaluate(study, ast.parse(label, mode="eval").body)
    except (KeyError, SyntaxError, TypeError, ValueError) as error:
        raise UnsupportedNumberError(f"[{label}] is no expression over lines of published points or of {study}.json") from error


def _evaluate(study: str, node: ast.expr) -> float:
    if isinstance(node, ast.BinOp):
        return OPERATORS[type(node.op)](_evaluate(study, node.left), _evaluate(study, node.right))
    if isinstance(node, ast.Constant):
        return float(node.value)  # type: ignore[arg-type]  # ValueError and TypeError are caught
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return _cell(study, node.value.id, node.attr)
    if isinstance(node, ast.Name):
        return _cell(study, node.id, "value")
    raise ValueError(ast.dump(node))


def _cell(study: str, row: str, column: str) -> float:
    kind, number = row[0], int(row[1:])
    if kind == "p":
        return float(csv_rows(PUBLISHED)[number][column])
    if kind == "m":
        return float(small_result(study)["rows"][number - 1][column])
    raise KeyError(row)


def _is_on_line(text: str, row: Mapping[str, str]) -> bool:
    return set(map(_plain, NUMBER.findall(text))) <= {_plain(found) for cell in row.values() for found in NUMBER.findall(cell)}


def _check_cell(text: str, row: Mapping[str, str]) -> None:
    cells = {cell.strip() for cell in row.values() if cell}
    numbers = {_plain(found) for cell in cells for found in NUMBER.findall(cell)}
    if text.strip() not in cells and not set(map(_plain, NUMBER.findall(text))) <= numbers:
        raise UnsupportedNumberError(f"`{text}` is not on its line: {row}")


def _check_value(text: str, value: float) -> None:
    (printed,) = NUMBER.findall(text)
    scaled = value * 100 if "%" in text else value
    decimals = len(printed.partition(".")[2])
    if f"{scaled:.{decimals}f}" != printed.replace(",", ""):
        raise UnsupportedNumberError(f"`{text}` should be {scaled:,.{decimals}f}")


def _plain(number: str) -> str:
    return f"{float(number.replace(',', '')):g}" if len(number) < 7 else number.replace(",", "")


BLOCK = re.compile(r"(<!-- (\w+)(?:: ([^>]*?))? -->\n)(.*?)(<!-- end -->)", re.DOTALL)
CITED = re.compile(r"\[([^\]\[]+)\]\[([^\]\[]+)\]")
CODE = re.compile(r"`([^`]+)`")
SMALL = "\n## What it finds here"
"""Heading of the part whose commands run anywhere."""
COMMAND = re.compile(r"^    (hpcddp (?:.*\\\n)*.*)$", re.MULTILINE)


def study_pages() -> list[str]:
    """The names of the studies that have a page."""
    return sorted(file.stem for file in PAGES.glob("*.md"))


def read_page(study: str) -> str:
    """As it is in the checkout."""
    return (PAGES / f"{study}.md").read_text(encoding="utf-8")


def commands(study: str) -> list[str]:
    """What the page says to type for its cluster, in its order."""
    return COMMAND.findall(read_page(study).partition(SMALL)[0])


def small_commands(study: str) -> list[str]:
    """What it says to type on one machine without Slurm."""
    return COMMAND.findall(read_page(study).partition(SMALL)[2])


def cited_numbers(text: str) -> list[tuple[str, str]]:
    """(number with its words, label) of each."""
    return CITED.findall(BLOCK.sub("", text))


def code_with_numbers(text: str) -> list[str]:
    """Excerpts in the text, of the sweep, that have a number."""
    return [code for code in CODE.findall(_prose(text)) if NUMBER.search(code)]


def uncited_numbers(text: str) -> list[str]:
    """Numbers by hand without a label, outside code."""
    prose = CODE.sub("", CITED.sub("", _prose(text)))
    return NUMBER.findall(re.sub(r"\]\([^)]*\)", "]", prose))


def _prose(text: str) -> str:
    """The page without what is made, and without indented code."""
    return re.sub(r"^    .*$", "", BLOCK.sub("", text), flags=re.MULTILINE)
