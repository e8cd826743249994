"""A run root analyzed: every study in it read, compared, drawn and told."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcddp.analysis.findings import Findings, find
from hpcddp.analysis.load import load_study
from hpcddp.analysis.series import full_names
from hpcddp.analysis.told import to_plain, to_text
from hpcddp.analysis.write import write_plain, write_tables
from hpcddp.errors import UsageError
from hpcddp.runroot import Study, studies


@dataclass(frozen=True)
class StudyResult:
    """What one study says."""

    name: str
    text: str
    """For the terminal: sentences, gates, tables, notes, and where the files are."""
    plain: dict[str, Any]
    """The same for scripts, as report.json holds it; every float finite, unknown is None."""
    missing: tuple[str, ...]
    """Runs the study expects that are not done, such as `r2 of n01-g4-b32-3fa9c1d2e07b`."""


def analyze(root: Path, out: Path | None = None) -> list[StudyResult]:
    """Analyzes each study at `root` and writes its report into the study's folder, or into `out`/STUDY.

    UsageError where `root` holds no study or a report cannot be written; HpcddpError for a damaged study.json.
    """
    found = studies(root) if root.is_dir() else []
    if not found:
        there = "no study in it" if root.is_dir() else "no such folder"
        raise UsageError(f"{root}: {there}; name the folder `hpcddp submit` wrote to (a study, or the one above), or submit one")
    return [_analyze(study, study.folder / "report" if out is None else out / study.folder.resolve().name) for study in found]


def _analyze(study: Study, report: Path) -> StudyResult:
    found = find(load_study(study))
    files = _write(report, found) if any(run.state != "missing" for run in found.records.runs) else []
    plain = to_plain(found, files)
    if files:
        write_plain(report / "report.json", plain)
    missing = tuple(run.name for run in found.records.runs if run.state == "missing")
    return StudyResult(found.records.name, to_text(found, report if files else None, study.folder), plain, missing)


def _write(report: Path, found: Findings) -> list[str]:
    """Tables and figures; returns their paths relative to `report`."""
    from hpcddp.analysis.figures import draw, write_figures

    files = write_tables(report, found.runs, found.scaling, full_names(found.apart))
    figures, left_out = draw(found.scaling, found.runs, found.apart)
    found.notes.extend(left_out)
    return [*files, *write_figures(report / "figures", figures)]
