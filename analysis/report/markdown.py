"""The report as Markdown: the same words and tables, its figures as the pictures beside it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hpcddp.analysis.report.export_tables import markdown_prose, markdown_table, markdown_text
from hpcddp.analysis.report.method import METHOD
from hpcddp.analysis.report.provenance import Provenance
from hpcddp.analysis.report.remarks import Remark, remarks
from hpcddp.analysis.report.table import Table
from hpcddp.analysis.study.trained import fact_text
from hpcddp.analysis.verdicts.findings import Findings


def report_markdown(found: Findings, stands_on: Provenance, tables: Sequence[Table], files: Sequence[str]) -> str:
    """`files` are relative to the report's folder."""
    blocks = [f"# {markdown_text(found.records.name)}", *map(markdown_prose, found.sentences)]
    blocks.append("\n".join(_remark(remark) for remark in remarks(found)))
    facts = [_term(name, [fact_text(values)]) for name, values in found.trained.items()]
    blocks += ["## What was trained", "\n".join(facts)] if facts else []
    for table in tables:
        blocks += [f"## {markdown_text(table.title)}", markdown_table(table), markdown_prose(table.note)]
    pictures = [file for file in files if file.endswith(".png")]
    blocks += ["## Figures", *(f"![{Path(file).stem}]({file})" for file in pictures)] if pictures else []
    blocks += ["## What stands behind this", "\n".join(_term(name, values) for name, values in stands_on.facts.items())]
    blocks += ["## How this was measured", "\n".join(_term(name, values) for name, *values in METHOD)]
    return "\n\n".join(block.rstrip("\n") for block in blocks if block) + "\n"


def _remark(remark: Remark) -> str:
    texts = [text for text in (remark.text, remark.advice, *remark.runs) if text]
    return f"- **{markdown_text(remark.kind)}** {'; '.join(map(markdown_prose, texts))}"


def _term(name: str, values: Sequence[str]) -> str:
    return f"- **{markdown_text(name)}**: {'; '.join(map(markdown_prose, values))}"
