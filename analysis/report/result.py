"""What one study's analysis answers, and how it is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hpcddp.analysis.util.wording import WIDE


@dataclass(frozen=True)
class StudyResult:
    """What one study says."""

    name: str
    blocks: list[list[str]]
    """For the terminal: sentences, gates, tables, notes, and where the files are; of each all forms, the widest first."""
    plain: dict[str, Any]
    """The same for scripts, as report.json holds it; every float finite, unknown is None."""
    missing: tuple[str, ...]
    """Runs the study expects that are not done, such as `r2 of n01-g4-b32-3fa9c1d2e07b`."""
    damaged: bool = False
    """Its study.json cannot be read: `text` says why."""
    failed: tuple[str, ...] = ()
    """Runs that could not be read, and files of the report that could not be made: `text` says why."""

    @property
    def incomplete(self) -> bool:
        """Whether runs are missing, something failed, or no run counts."""
        runs = self.plain.get("runs", {})
        return bool(self.missing or self.failed or (runs.get("done") and not runs.get("pass")))

    @property
    def text(self) -> str:
        """As wide as where no terminal is."""
        return self.text_in(WIDE)

    def text_in(self, width: int) -> str:
        """Of each block the first form without a line of more than `width` characters, or its last."""
        return "\n\n".join(
            next((form for form in forms if max(map(len, form.splitlines())) <= width), forms[-1]) for forms in self.blocks
        )


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
    parquet: bool = False
    """Each table as Parquet too; pyarrow writes it."""


PLAINLY = How()
