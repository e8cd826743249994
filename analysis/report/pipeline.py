"""One study read, compared, drawn and told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcddp.analysis.figures.references import Published, published
from hpcddp.analysis.report.result import How, StudyResult
from hpcddp.analysis.report.terminal import failure_blocks, report_blocks, to_blocks, to_plain
from hpcddp.analysis.report.write import write_tables, write_texts
from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.util.failures import Failure, Failures, contain
from hpcddp.analysis.util.output_files import write_plain
from hpcddp.analysis.util.output_paths import check_writable, refused_links, report_folder
from hpcddp.analysis.util.parallel import all_of
from hpcddp.analysis.verdicts.findings import Findings, find
from hpcddp.core.run_root import Study

if TYPE_CHECKING:
    from hpcddp.analysis.figures.figures import Drawing


def tell_study(study: Study, named: Path | None, keep_in: Path | None, how: How) -> tuple[StudyResult, Path | None]:
    """What it says, and the folder of its report, None where there is nothing to report; HpcddpError for a damaged study.json.

    The report goes into the folder `named`, by default to where output_paths.report_folder says.
    """
    beside = published(how.overlay, how.overlay_rejected)
    records = load_study(study, keep_in, meanwhile=_load_what_writes)
    found = find(records, how.train_epochs or records.train_epochs)
    failures = found.failures
    report, files = None, list[str]()
    if any(run.state != "missing" for run in found.records.runs):
        if named:
            check_writable(named)
        report = named or report_folder(study)
        files = _Report(report, study, found, beside, how.style).write()
    blocks = to_blocks(found, study.folder)
    plain = to_plain(found, files)
    if report and files:
        failures.contain("report.json", partial(write_plain, report / "report.json", plain), None)
    missing = tuple(run.name for run in found.records.runs if run.state == "missing")
    written = report if files else None
    blocks += [*failure_blocks(failures), *report_blocks(written)]
    blocks += [[text] for text in ([] if named else refused_links(study))]
    return StudyResult(found.records.name, blocks, plain, missing, failed=tuple(each.of for each in failures)), written


def _load_what_writes() -> None:
    """What writes a report imports: half a second."""
    for name in ("figures.figures", "report.report"):
        import_module(f"hpcddp.analysis.{name}")


@dataclass(frozen=True)
class _Report:
    """Tables, figures and the page with them, on their way into a folder."""

    folder: Path
    study: Study
    found: Findings
    beside: Published
    style: str

    def write(self) -> list[str]:
        """The paths of what is written, relative to the folder."""
        from hpcddp.analysis.figures.style import SUFFIXES

        failures = self.found.failures
        tables = write_tables(self.folder, self.found, failures)
        draw = self._drawings()
        expected = [f"figures/{name}{suffix}" for name in draw for suffix in SUFFIXES]
        page = self._page(tables)
        jobs: list[Callable[[], Any]] = [partial(page, expected), *draw.values()]
        *drawn, (texts, failed) = all_of(jobs[::-1], processes=self.found.records.large)  # the last figures take longest
        pictures = [file for files in reversed(drawn) if not isinstance(files, Failure) for file in files]
        lost = [each for each in reversed(drawn) if isinstance(each, Failure)]
        if lost:
            texts, failed = page(pictures)
        failures.extend([*lost, *failed])
        return [*tables, *pictures, *write_texts(self.folder, texts, failures)]

    def _drawings(self) -> dict[str, Callable[[], list[str] | Failure]]:
        """What draws each figure into its files, by its name; what they leave out is added to the notes."""
        from hpcddp.analysis.figures.figures import close_drawings, drawings, figure_folder, save_figure
        from hpcddp.analysis.figures.style import STYLES

        folder, found, style, failures = self.folder / "figures", self.found, STYLES[self.style], self.found.failures
        failures.contain("figures", partial(figure_folder, folder), None)
        nothing: tuple[dict[str, Drawing], list[str]] = ({}, [])
        of_points, left_out = failures.contain(
            "figures of points",
            lambda: drawings(found.shown, found.runs, found.shown_apart, self.beside.points, style),
            nothing,
        )
        of_runs, more_left_out = failures.contain("figures of single runs", lambda: close_drawings(found, style), nothing)
        found.notes.extend([*left_out, *more_left_out, *self.beside.notes])
        figures = of_points | of_runs
        return {
            name: partial(contain, f"figures/{name}", partial(save_figure, folder, name, draw, style))
            for name, draw in figures.items()
        }

    def _page(self, tables: Sequence[str]) -> Callable[[Sequence[str]], tuple[dict[str, str | None], Failures]]:
        """What makes the texts of the report, given its pictures."""
        from hpcddp.analysis.report.provenance import Provenance, provenance
        from hpcddp.analysis.report.report import report_files

        runs, unknown = self.found.records.runs, Provenance({}, [], {})
        stands_on = self.found.failures.contain("what stands behind the numbers", lambda: provenance(self.study, runs), unknown)

        def page(pictures: Sequence[str]) -> tuple[dict[str, str | None], Failures]:
            failed = Failures()
            return report_files(self.found, stands_on, self.beside.points, [*tables, *pictures], failed), failed

        return page
