"""What one study's analysis answers, and how it is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hpcddp.analysis.util.wording import WIDE

WIDTHS = (120, WIDE, 80)
"""Columns of terminals; prose has no lines of more than WIDE, which are hard to read."""


@dataclass(frozen=True)
class StudyResult:
    """What one study says."""

    name: str
    screen: str
    """For the terminal, its first screen."""
    full: tuple[str, ...]
    """All of it: sentences, verdicts, checks, tables, notes, and where the files are; for terminals of each of WIDTHS."""
    plain: dict[str, Any]
    """The same for scripts, as report.json holds it; every float finite, unknown is None."""
    missing: tuple[str, ...]
    """Runs the study expects that are not done, such as `r2 of n01-g4-b32-3fa9c1d2e07b`."""
    damaged: bool = False
    """Its study.json cannot be read: `screen` and `full` say why."""
    failed: tuple[str, ...] = ()
    """Runs that could not be read, and files of the report that could not be made: `text` says why."""

    @property
    def incomplete(self) -> bool:
        """Whether runs are missing, something failed, or no run counts."""
        runs = self.plain.get("runs", {})
        return bool(self.missing or self.failed or (runs.get("done") and not runs.get("pass")))

    @property
    def text(self) -> str:
        """All of it, as wide as where no terminal is."""
        return self.text_in(WIDE)

    def text_in(self, width: int) -> str:
        """The widest of all that fits, or the narrowest."""
        return next((text for text, needed in zip(self.full, WIDTHS, strict=False) if needed <= width), self.full[-1])


FORMATS = ("csv", "latex", "markdown", "parquet", "pdf")
"""Every table as CSV, LaTeX or Parquet (pyarrow writes it), the page as Markdown, the figures as PDF."""


@dataclass(frozen=True)
class How:
    """How a study is told."""

    overlay: tuple[str, ...] = ()
    """Names of published points to draw beside the throughput."""
    overlay_rejected: bool = False
    """Also those that are not to be trusted."""
    train_epochs: int | None = None
    """Of a whole training; by default those that each study's sweep says."""
    style: str = "default"
    """Of its figures: one of figures.style.STYLES."""
    co2_g_per_kwh: float | None = None
    """The user's own factor; without it nothing is said of CO2."""
    to: tuple[str, ...] = ("csv", "latex", "markdown", "pdf")
    """Of FORMATS, those that are written beside the page, scaling.csv, report.json and the figures as SVG and PNG."""
    columns: tuple[str, ...] = ()
    """Of the scaling table in all of them but scaling.csv, by its names there; by default those that matter most."""


PLAINLY = How()
