"""The page on method says where in the source each rule is kept: those places exist. Its thresholds are the code's."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from hpcddp.analysis.verdicts.verdicts import ALL

ROOT = Path(__file__).parent.parent
RULES = [line for line in (ROOT / "docs/method.md").read_text(encoding="utf-8").splitlines() if re.match(r"\| \d+ \|", line)]


def test_all_twelve_rules_have_a_row() -> None:
    assert [int(rule.split("|")[1]) for rule in RULES] == list(range(1, 13))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule.split("|")[1].strip()))
def test_every_place_is_there(rule: str) -> None:
    """At least one file by rule, and every function that is named is defined in its file."""
    places = re.findall(r"`((?:hpcddp|analysis)/[\w/]+\.py)(?:::(\w+))?`", rule)
    assert places
    for file, function in places:
        text = (ROOT / file).read_text(encoding="utf-8")
        assert not function or re.search(rf"^def {function}\(", text, re.MULTILINE), f"{file} defines no {function}"


def test_every_gate_is_explained() -> None:
    source = (ROOT / "hpcddp/worker/gates.py").read_text(encoding="utf-8")
    names = {*re.findall(r'_gate\(\s*"([^"]+)"', source), *re.findall(r'name(?:, \w+)* = "([^"]+)"', source)}
    page = (ROOT / "docs/method.md").read_text(encoding="utf-8")
    assert len(names) == len(re.findall(r"^def .*\) -> GateResult:", source, re.MULTILINE)) - 1  # _gate makes them
    assert {name for name in names if f"| {name} |" not in page} == set()


UNITS = {"%": 0.01, "KiB": 1024, "": 1}


def verdict_rows() -> dict[str, str]:
    """Verdict -> its thresholds, as the page has them."""
    part = (ROOT / "docs/method.md").read_text(encoding="utf-8").partition("\n## Verdicts\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines() if line.startswith("| ")]
    return {name: thresholds for name, _, thresholds in rows[1:]}


def test_every_verdict_has_a_row() -> None:
    assert list(verdict_rows()) == list(ALL)


NO_VERDICTS = ("findings", "notes", "sentence", "verdicts")
"""Of analysis/verdicts: their numbers are about words and pictures."""

NO_THRESHOLDS = ("LOSS_STEPS", "WIDTH")
"""Of runs/step_times.py: how losses and steps are put together."""


def test_thresholds_are_the_codes() -> None:
    """Each number on the page is the constant it names, and no constant of the verdicts is missing."""
    named = re.findall(r"`(\w+)\.([A-Z_]+)` ([\d.]+) ?(%|KiB|)", " ".join(verdict_rows().values()))
    constants = {
        (file.stem, name): getattr(importlib.import_module(f"hpcddp.analysis.{file.parent.name}.{file.stem}"), name)
        for file in (*(ROOT / "analysis/verdicts").glob("*.py"), ROOT / "analysis/runs/step_times.py")
        if file.stem not in NO_VERDICTS
        for name in re.findall(r"^([A-Z_]+) = [\d.* ]+$", file.read_text(encoding="utf-8"), re.MULTILINE)
        if name not in NO_THRESHOLDS
    }
    assert {(module, name) for module, name, _, _ in named} == set(constants)
    for module, name, number, unit in named:
        assert float(number) * (1 if name.endswith("_PERCENT") else UNITS[unit]) == pytest.approx(constants[module, name]), name
