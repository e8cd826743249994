"""The report's files: deterministic bytes, no absolute paths, figures of an earlier analysis never left behind.

Tables for other documents: Markdown as GitHub reads it, LaTeX as plain `tabular` that needs no package.
"""

from __future__ import annotations

import contextlib
import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from hpcddp.analysis.report.provenance import METHOD, Provenance, Remark, study_remarks
from hpcddp.analysis.report.table import Table
from hpcddp.analysis.runs.resources import FIGURES
from hpcddp.analysis.study.axes import effect_rows
from hpcddp.analysis.study.frames import ACCURACY_OF_RUN, RUN_COLUMNS, TOKENS_PER_S
from hpcddp.analysis.study.scaling import BREAKDOWN_COLUMNS, PREDICTED, SCALING_COLUMNS
from hpcddp.analysis.study.series import full_names
from hpcddp.analysis.study.trained import Facts, fact_text
from hpcddp.analysis.util.files import Failures, library, write_file, write_text
from hpcddp.analysis.verdicts.findings import Findings
from hpcddp.core.text import escape_controls

POINT = ["label", "series", "nodes", "gpus_per_node", "gpus", "ranks", "n"]
BREAKDOWN = list(BREAKDOWN_COLUMNS)
SCALING = [name for name in SCALING_COLUMNS if name not in BREAKDOWN or name in ("step_s", "step_hook_s")]
RUNS = [name for name in RUN_COLUMNS if name not in ("steady_samples", "timed_ns", "step_ns", *FIGURES, *ACCURACY_OF_RUN)]
RUNS += ["step_s", *FIGURES, *ACCURACY_OF_RUN]

Make = Callable[[], pd.DataFrame | str | None]
"""Makes a table or a text of the report; None where a table has no rows and is not to be written."""


def report_frames(found: Findings) -> dict[str, Make]:
    """The tables of a report by name: scaling, breakdown and runs always, the others where they have rows."""
    names = full_names(found.apart)

    def where_rows(table: pd.DataFrame, *, of_series: bool = True) -> pd.DataFrame | None:
        return (named(table, names) if of_series else table) if len(table) else None

    return {
        "scaling": lambda: without_unknown(named(found.scaling, names)[SCALING]),
        "breakdown": lambda: named(found.scaling, names)[[*POINT, *BREAKDOWN]],
        "runs": lambda: without_unknown(named(found.runs, names).assign(step_s=found.runs["step_ns"] / 1e9)[RUNS]),
        "readings": lambda: where_rows(found.readings),
        "effects": lambda: where_rows(pd.DataFrame(effect_rows(found.effects)), of_series=False),
        "limits": lambda: where_rows(found.limits, of_series=False),
        "loaders": lambda: where_rows(found.loaders),
        "stragglers": lambda: where_rows(found.stragglers, of_series=False),
        "buckets": lambda: where_rows(found.buckets, of_series=False),
        "comm": lambda: where_rows(found.collectives, of_series=False),
        "comm_fit": lambda: where_rows(found.fits, of_series=False),
        "epochs": lambda: where_rows(found.epochs),
        "to_accuracy": lambda: where_rows(found.targets),
        "fits": lambda: where_rows(found.laws),
        "outliers": lambda: where_rows(found.outliers),
    }


def write_tables(folder: Path, found: Findings, to: Sequence[str], failures: Failures) -> list[str]:
    """scaling.csv, and all tables of report_frames as CSV or Parquet where `to` has that; returns the names of those written.
    Any other of an earlier analysis is removed."""
    makes = {f"{name}.{suffix}": make for suffix in ("csv", "parquet") for name, make in report_frames(found).items()}
    wanted = {name: make if name == "scaling.csv" or name.endswith(tuple(to)) else None for name, make in makes.items()}
    return write_files(folder, wanted, failures)


def write_files(folder: Path, makes: Mapping[str, Make | None], failures: Failures) -> list[str]:
    """Files by name, from what makes their tables or texts; returns the names of those written. Where nothing does, or it makes
    None or raises, that of an earlier analysis is removed."""

    def is_written(file: Path, make: Make) -> bool:
        content = make()
        if isinstance(content, pd.DataFrame):
            write_file(file, parquet_bytes(content) if file.suffix == ".parquet" else csv_text(content).encode())
        elif content is not None:
            write_text(file, content)
        return content is not None

    names = [
        name for name, make in makes.items() if make and failures.contain(name, partial(is_written, folder / name, make), False)
    ]
    for name in makes.keys() - set(names):
        with contextlib.suppress(OSError):
            (folder / name).unlink(missing_ok=True)
    return names


def csv_text(table: pd.DataFrame) -> str:
    """CSV; unknown is an empty cell, and what a terminal would act on is spelled out."""
    return escape_controls(str(table.to_csv(index=False, float_format="%.9g", lineterminator="\n")))


def named(table: pd.DataFrame, names: Mapping[str, str]) -> pd.DataFrame:
    """The table with its series in words."""
    return table.assign(series=table["series"].map(lambda key: names.get(key, ""), na_action="ignore"))


def without_unknown(table: pd.DataFrame) -> pd.DataFrame:
    """The table, without tokens per second where no script says how many it trains on, and without predictions where none is."""
    found = table.columns.intersection([TOKENS_PER_S, *PREDICTED])
    return table.drop(columns=[name for name in found if table[name].isna().all()])


def plain_rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as JSON-able dicts; unknown is None, every float finite."""

    def plain(value: Any) -> Any:
        return None if value is pd.NA or (isinstance(value, float) and not math.isfinite(value)) else value

    return [{str(name): plain(value) for name, value in row.items()} for row in table.to_dict(orient="records")]


def parquet_bytes(table: pd.DataFrame) -> bytes:
    """Numbers as they are, and text without what a terminal would act on; unknown is null."""

    def shown(value: object) -> object:
        return escape_controls(value) if isinstance(value, str) else value

    arrow, parquet = library("pyarrow", "parquet"), library("pyarrow.parquet", "parquet")
    texts = {name: column for name, column in table.items() if pd.api.types.is_string_dtype(column.dtype)}
    text = {str(name): column.map(shown).astype(column.dtype) for name, column in texts.items()}
    buffer = io.BytesIO()
    parquet.write_table(arrow.Table.from_pandas(table.assign(**text), preserve_index=False), buffer)
    return buffer.getvalue()


CODE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
"""What is written as code in a sentence."""

_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>|#~&$!])")

_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    **{char: f"\\{char}" for char in "&%$#_{}"},
    **{"–": "--", "×": r"$\times$", "µ": r"$\mu$", "|": r"\textbar{}", '"': r"\textquotedbl{}"},
}


def report_markdown(found: Findings, stands_on: Provenance, tables: Sequence[Table], files: Sequence[str]) -> str:
    """`files` are relative to the report's folder."""
    blocks = [f"# {markdown_text(found.records.name)}", *map(markdown_prose, found.sentences)]
    blocks.append("\n".join(_remark(remark) for remark in study_remarks(found)))
    facts = [_term(name, [fact_text(values)]) for name, values in found.trained.items()]
    blocks += ["## What was trained", "\n".join(facts)] if facts else []
    for table in tables:
        blocks += [f"## {markdown_text(table.title)}", markdown_table(table), markdown_prose(table.note)]
    pictures = [file for file in files if file.endswith(".png")]
    blocks += ["## Figures", *(f"![{Path(file).stem}]({file})" for file in pictures)] if pictures else []
    blocks += ["## What stands behind this", "\n".join(_term(name, values) for name, values in stands_on.facts.items())]
    blocks += ["## How this was measured", "\n".join(_term(name, [text]) for name, text in METHOD.items())]
    return "\n\n".join(block.rstrip("\n") for block in blocks if block) + "\n"


def _remark(remark: Remark) -> str:
    texts = [remark.text, remark.advice, f"({'; '.join(remark.runs)})" if remark.runs else ""]
    return f"- **{markdown_text(remark.kind)}** {' '.join(map(markdown_prose, filter(None, texts)))}"


def _term(name: str, values: Sequence[str]) -> str:
    return f"- **{markdown_text(name)}**: {'; '.join(map(markdown_prose, values))}"


def markdown_table(table: Table) -> str:
    """Numbers to the right."""
    rules = ["---:" if column.numeric else ":---" for column in table.columns]
    heads = [markdown_text(column.name) for column in table.columns]
    rows = [[markdown_text(cell.text) for cell in row] for row in table.rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in (heads, rules, *rows)) + "\n"


def markdown_text(text: str) -> str:
    """One line in which nothing is markup, HTML included."""
    return _MARKDOWN.sub(r"\\\1", " ".join(text.split()))


def markdown_prose(text: str) -> str:
    """The same but for what stands between backticks, which stays code: nothing in it is markup either."""
    pieces = CODE.split(" ".join(text.split()))
    return "".join(f"`{piece}`" if i % 2 else _MARKDOWN.sub(r"\\\1", piece) for i, piece in enumerate(pieces))


def latex_table(table: Table, trained: Facts) -> str:
    """To be `\\input` where a table belongs; below it what its numbers and intervals are, and what was trained. The caption is
    the document's own.
    """
    facts = "; ".join(f"{name} {fact_text(values)}" for name, values in trained.items())
    heads = {column.head for column in table.columns}
    notes = [table.note, *(words for head, words in INTERVALS.items() if head in heads), f"Trained: {facts}." if facts else ""]
    below = [rf"\par{{\footnotesize {latex_prose(' '.join(filter(None, notes)))}\par}}"] if any(notes) else []
    rows = latex_tabular(table, latex_prose)
    return "\n".join([f"% {table.title}", *rows, *below, ""])


INTERVALS = {
    "95 %": "95 % CI: confidence interval of the median over runs; of a ratio, that of the ratio of medians.",
    "range": "Range: of all runs; of a ratio, of all pairs of runs.",
    "spread": "Spread: 95 % confidence interval of the median from six runs on, with fewer the range of all runs.",
}
"""Head of a column of intervals -> what they are."""

LATEX_HEADS = {"95 %": "95 % CI", "time": "time, h:min:s"}
"""Where no page or terminal says the rest."""


def latex_tabular(table: Table, text: Callable[[str], str]) -> list[str]:
    """Its lines; `text` escapes a cell."""
    alignment = "".join("r" if column.numeric else "l" for column in table.columns)
    heads = [_groups(table)] if any(column.group for column in table.columns) else []
    heads.append(" & ".join(latex_text(LATEX_HEADS.get(column.head, column.head)) for column in table.columns) + r" \\")
    rows = [" & ".join(text(cell.text) for cell in row) + r" \\" for row in table.rows]
    rule = r"\hline"
    return [rf"\begin{{tabular}}{{{alignment}}}", rule, *heads, rule, *rows, rule, r"\end{tabular}"]


def latex_text(text: str) -> str:
    """Text in which no character is a command."""
    return "".join(_LATEX.get(char, char) for char in " ".join(text.split()))


def latex_prose(text: str) -> str:
    """The same, what stands between backticks as code."""
    return CODE.sub(r"\\texttt{\1}", latex_text(text)).replace(r" \%", r"\,\%")


def _groups(table: Table) -> str:
    cells = [
        rf"\multicolumn{{{width}}}{{c}}{{{latex_text(group)}}}" if group else " & " * (width - 1) for group, width in table.groups
    ]
    return " & ".join(cells) + r" \\"
