"""One study read, compared, drawn and told."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from hpcddp.analysis.figures.references import Published, published
from hpcddp.analysis.findings import Findings, find
from hpcddp.analysis.place import report_folder
from hpcddp.analysis.records.load import load_study
from hpcddp.analysis.side_by_side import all_of
from hpcddp.analysis.study import How, StudyResult
from hpcddp.analysis.told import to_blocks, to_plain
from hpcddp.analysis.write import write_plain, write_tables, write_texts
from hpcddp.runroot import Study


def tell_study(study: Study, report: Path | None, keep_in: Path | None, how: How) -> tuple[StudyResult, Path | None]:
    """What it says, and the folder of its report, None where there is nothing to report; HpcddpError for a damaged study.json."""
    beside = published(how.overlay, how.overlay_rejected)
    records = load_study(study, keep_in, meanwhile=_load_what_writes)
    found = find(records, how.train_epochs or records.train_epochs)
    files: list[str] = []
    if any(run.state != "missing" for run in found.records.runs):
        report = report or report_folder(study)
        files = _write(report, study, found, beside, how.style)
    plain = to_plain(found, files)
    if report and files:
        write_plain(report / "report.json", plain)
    missing = tuple(run.name for run in found.records.runs if run.state == "missing")
    written = report if files else None
    return StudyResult(found.records.name, to_blocks(found, written, study.folder), plain, missing), written


def _load_what_writes() -> None:
    """What _write imports: half a second."""
    for name in ("figures.figures", "report.report"):
        import_module(f"hpcddp.analysis.{name}")


def _write(report: Path, study: Study, found: Findings, beside: Published, style: str) -> list[str]:
    """Tables, figures and the page with them; returns their paths relative to `report`."""
    from hpcddp.analysis.figures.figures import close_drawings, drawings, figure_files, save_figure
    from hpcddp.analysis.figures.style import STYLES
    from hpcddp.analysis.report.provenance import provenance
    from hpcddp.analysis.report.report import report_files

    files = write_tables(report, found)
    figures, left_out = drawings(found.shown, found.runs, found.shown_apart, beside.points, STYLES[style])
    closer, more_left_out = close_drawings(found, STYLES[style])
    figures |= closer
    found.notes.extend([*left_out, *more_left_out, *beside.notes])
    folder = report / "figures"
    files += figure_files(folder, figures)
    page = partial(report_files, found, provenance(study, found.records.runs), beside.points, files)
    jobs: list[Callable[[], Any]] = [page]
    jobs += [partial(save_figure, folder, name, draw, STYLES[style]) for name, draw in figures.items()]
    *_, texts = all_of(jobs[::-1], processes=found.records.large)  # the last figures take longest
    return [*files, *write_texts(report, texts)]
