"""Findings as text for the terminal and as plain values for scripts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hpcddp.analysis.findings import Findings
from hpcddp.analysis.load import Run
from hpcddp.analysis.series import full_names
from hpcddp.analysis.tables import breakdown_table, scaling_table
from hpcddp.analysis.write import plain_rows

SCHEMA = 1
"""Of report.json: 1 (0.1.0) as to_plain says."""

AT_MOST = 8
"""Rejected or missing runs told one by one; report.json has them all."""


def to_plain(found: Findings, files: Sequence[str]) -> dict[str, Any]:
    """What report.json and `--format json` hold; `files` are relative to the report's folder."""
    done = _of_state(found, "counts", "rejected")
    return {
        "schema": SCHEMA,
        "name": found.records.name,
        "scaling": found.kinds,
        "sentences": found.sentences,
        "runs": {"done": len(done), "pass": len(_of_state(found, "counts")), "expected": len(found.records.runs)},
        "rejected": [{"run": run.name, "reason": run.reason} for run in _of_state(found, "rejected")],
        "missing": [{"run": run.name, "reason": run.reason} for run in _of_state(found, "missing")],
        "points": plain_rows(found.scaling, full_names(found.apart)),
        "notes": found.notes,
        "files": list(files),
    }


def to_text(found: Findings, report: Path | None, folder: Path) -> str:
    """Sentences, gates, tables, notes, where the files are; `folder` is where the study was looked for."""
    head = ": ".join([found.records.name, *([" and ".join(found.kinds)] if found.kinds else [])])
    blocks = [[head, *found.sentences], _states(found, folder)]
    if len(found.scaling):
        blocks.append([scaling_table(found.scaling, found.apart)])
        blocks.append(
            [
                "  where the step goes, % of it (mean over ranks, median over steps and runs)",
                breakdown_table(found.scaling, found.apart),
            ]
        )
    blocks.append([f"note: {note}" for note in found.notes])
    if report is not None:
        blocks.append([f"report: {report}  (scaling.csv, breakdown.csv, runs.csv, report.json, figures/*.png, figures/*.svg)"])
    return "\n\n".join("\n".join(block) for block in blocks if block)


def _states(found: Findings, folder: Path) -> list[str]:
    rejected, missing = _of_state(found, "rejected"), _of_state(found, "missing")
    done = len(found.records.runs) - len(missing)
    lines = [f"gates     {done - len(rejected)} of {done} runs pass"] if done else []
    if not done:
        lines.append(f"no run is done yet; `hpcddp status {folder}` says what they do")
    return [*lines, *_listed("rejected", rejected), *_listed("missing", missing)]


def _listed(word: str, runs: Sequence[Run]) -> list[str]:
    """A line per run, the word before the first; the rest only counted."""
    lines = [f"{run.name}: {run.reason}" for run in runs[:AT_MOST]]
    if len(runs) > AT_MOST:
        lines.append(f"and {len(runs) - AT_MOST} more of {len(runs)}")
    return [f"{word if i == 0 else '':<10}{line}" for i, line in enumerate(lines)]


def _of_state(found: Findings, *states: str) -> list[Run]:
    return [run for run in found.records.runs if run.state in states]
