"""The sweeps that come with hpcddp: what each is of, as its first comment says, and the page of those that are studies."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcddp.core.errors import UsageError
from hpcddp.core.schema import did_you_mean
from hpcddp.core.text import table

FOLDER = Path(__file__).parents[1] / "sweeps"
SCHEMA = "sweep.schema.json"
"""What the editor lines of sweeps name; `hpcddp schema` prints it."""


@dataclass(frozen=True)
class ShippedSweep:
    """One sweep file of hpcddp's."""

    name: str
    line: str
    """The first sentence of its first comment."""
    page: str | None
    """Where its study is described, in the source of hpcddp; None: it repeats nobody's study."""
    text: str
    """The file."""
    script: Path | None
    """That it runs, beside it; None: it trains a model by name."""


def shipped_sweeps() -> list[ShippedSweep]:
    """All of them, by name."""
    return [_read(file) for file in sorted(FOLDER.glob("*.yaml"))]


def shipped_sweep(name: str) -> ShippedSweep:
    """The one of that name; UsageError names the nearest."""
    sweeps = {sweep.name: sweep for sweep in shipped_sweeps()}
    if name not in sweeps:
        raise UsageError(f"no sweep `{name}` comes with hpcddp{did_you_mean(name, sweeps)}")
    return sweeps[name]


def studies_plain(sweeps: Sequence[ShippedSweep]) -> list[dict[str, object]]:
    """Those that have a page, a row each."""
    return [{"study": sweep.name, "what it is of": sweep.line, "page": sweep.page} for sweep in sweeps if sweep.page]


def sweeps_table(sweeps: Sequence[ShippedSweep]) -> str:
    """Names and lines, for a terminal."""
    return table(("sweep", "what it is of"), [(each.name, each.line) for each in sweeps], left=("sweep", "what it is of"))


def studies_table(sweeps: Sequence[ShippedSweep]) -> str:
    """Of those that have a page: a line each, the page below it."""
    return "\n".join(f"{each.name}: {each.line}\n    {each.page}" for each in sweeps if each.page)


def _read(file: Path) -> ShippedSweep:
    text = file.read_text(encoding="utf-8")
    comment = re.match(r"(?:#.*\n)*", text)
    words = " ".join(line.lstrip("#").strip() for line in comment[0].splitlines()) if comment else ""
    page = re.search(r"^# Page: (\S+)$", text, re.MULTILINE)
    line = re.split(r"(?<=\.)\s", words, maxsplit=1)[0].rstrip(".")
    script = re.search(r"^  script: (\S+)", text, re.MULTILINE)
    return ShippedSweep(file.stem, line, page[1] if page else None, text, file.with_name(script[1]) if script else None)
