"""One study read, compared, drawn and reported."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from hpcddp.analysis.figures.references import Published, published
from hpcddp.analysis.report.answer import answer_of
from hpcddp.analysis.report.provenance import Provenance, provenance
from hpcddp.analysis.report.result import How, StudyResult
from hpcddp.analysis.report.screen import first_screen
from hpcddp.analysis.report.table import Table
from hpcddp.analysis.report.tables import study_tables
from hpcddp.analysis.report.terminal import findings_plain, full_texts
from hpcddp.analysis.report.write import Make, latex_table, report_markdown, write_files, write_tables
from hpcddp.analysis.study.axes import OF_EFFECTS
from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.study.readings import with_co2
from hpcddp.analysis.util.files import Failure, check_writable, contain, refused_links, report_folder, write_plain
from hpcddp.analysis.util.parallel import run_jobs
from hpcddp.analysis.verdicts.findings import Findings, find
from hpcddp.core.run_root import Study

if TYPE_CHECKING:
    from hpcddp.analysis.figures.figures import InlineSvg, SavedFigure


def analyze_study(study: Study, named: Path | None, cache_in: Path | None, how: How) -> tuple[StudyResult, Path | None]:
    """The result, and its report's folder: `named`, or files.report_folder; None without one. HpcddpError: damaged study.json."""
    beside = published(how.overlay, how.overlay_rejected)
    records = load_study(study, cache_in, meanwhile=_load_what_writes)
    found = find(records, how.train_epochs or records.train_epochs)
    failures = found.failures
    readings = failures.contain("CO2 of readings", lambda: with_co2(found.readings, how.co2_g_per_kwh), found.readings)
    found = replace(found, readings=readings)
    tables = study_tables(found, how.columns)
    report, files = None, list[str]()
    if any(run.state != "missing" for run in found.records.runs):
        if named:
            check_writable(named)
        report = named or report_folder(study)
        files = _Report(report, study, found, tables, beside, how).write()
    plain = findings_plain(found, files)
    if report and files:
        failures.contain("report.json", partial(write_plain, report / "report.json", plain), None)
    missing = tuple(run.name for run in found.records.runs if run.state == "missing")
    written = report if files else None
    where = [f"report: {written / 'index.html'}"] if written else []
    full = full_texts(found, study.folder, tables, [*where, *([] if named else refused_links(study))])
    as_is = tables.get("collectives" if found.shown.empty else "scaling" if how.columns else "")
    screen = first_screen(found, answer_of(found, study.folder), as_is, written, "; ".join(beside.notes))
    return StudyResult(found.records.name, screen, full, plain, missing, failed=tuple(each.of for each in failures)), written


def _load_what_writes() -> None:
    """What writes a report imports: half a second."""
    for name in ("figures.figures", "report.page"):
        import_module(f"hpcddp.analysis.{name}")


@dataclass(frozen=True)
class _Report:
    """Tables, figures and the page with them, on their way into a folder."""

    folder: Path
    study: Study
    found: Findings
    tables: Mapping[str, Table]
    beside: Published
    how: How

    def write(self) -> list[str]:
        """The paths of what is written, relative to the folder."""
        found, failures = self.found, self.found.failures
        tables = write_tables(self.folder, found, self.how.to, failures)
        jobs = self._drawings()
        done = run_jobs([*jobs.values()][::-1], processes=found.records.large)[::-1]  # the last figures take longest
        failures.extend(each for each in done if isinstance(each, Failure))
        figures = {name: each for name, each in zip(jobs, done, strict=True) if not isinstance(each, Failure)}
        pictures = [file for each in figures.values() for file in each.files]
        panels = {name: each.panels for name, each in figures.items()}
        stands = partial(provenance, self.study, found.records.runs)
        stands_on = failures.contain("what stands behind the numbers", stands, Provenance({}, [], {}))
        texts = self._texts(stands_on, panels, [*tables, *pictures])
        return [*tables, *pictures, *write_files(self.folder, texts, failures)]

    def _texts(
        self, stands_on: Provenance, panels: Mapping[str, Sequence[InlineSvg]], files: Sequence[str]
    ) -> dict[str, Make | None]:
        """Name -> what makes the LaTeX tables, the Markdown and the page; None of what an earlier analysis may have left: a table
        without rows, and what is not wanted."""
        from hpcddp.analysis.report.page import page_html

        found, to = self.found, self.how.to
        tables = [table.in_documents for table in self.tables.values() if table.rows]
        latex = {f"{table.name}.tex": partial(latex_table, table, found.trained) for table in tables if "latex" in to}
        beside = [*files, *latex, "report.json"]
        every = [f"{table.name}.tex" for table in self.tables.values()]
        return {
            "report.md": (lambda: report_markdown(found, stands_on, tables, files)) if "markdown" in to else None,
            **dict.fromkeys([*every, *(file.name for file in self.folder.glob(f"{OF_EFFECTS}*.tex"))]),
            **latex,
            "index.html": lambda: page_html(found, stands_on, tables, panels, beside),
        }

    def _drawings(self) -> dict[str, Callable[[], SavedFigure | Failure]]:
        """What draws each figure, by its name; what its files leave out is added to the notes."""
        from hpcddp.analysis.figures.figures import figure_folder, save_figure, study_drawings
        from hpcddp.analysis.figures.style import DEFAULT, STYLES, SUFFIXES

        folder, style, failures = self.folder / "figures", STYLES[self.how.style], self.found.failures
        suffixes = [suffix for suffix in SUFFIXES if suffix != ".pdf" or "pdf" in self.how.to]
        failures.contain("figures", partial(figure_folder, folder), None)
        figures, notes = study_drawings(self.found, style, self.beside.points)
        of_page = figures if style == DEFAULT else study_drawings(self.found, DEFAULT, self.beside.points)[0]
        self.found.notes.extend([*notes, *self.beside.notes])
        return {
            name: partial(
                contain, f"figures/{name}", partial(save_figure, folder / name, draw, style, of_page.get(name, draw), suffixes)
            )
            for name, draw in figures.items()
        }
