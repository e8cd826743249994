"""The page on architecture is that of this code: its files exist, its floors are those that lint holds."""

from __future__ import annotations

import configparser
import re

import pytest

from tests.docs.pages import ROOT
from tests.docs.sweep_reference import sections
from tests.test_source import BANNED, sources

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    """The text below a heading."""
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def rows(title: str) -> list[list[str]]:
    """Cells of the section's tables, without their heads."""
    lines = [line for line in section(title).splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def files(text: str) -> list[str]:
    """Paths in backticks."""
    return re.findall(r"`((?:hpcddp|analysis|templates|clusters|tests)/[\w./-]*)`", text)


def test_it_is_short() -> None:
    """The picture, the floors, the way of one run, where something new goes."""
    assert len(PAGE.split()) <= 1500


def test_every_file_that_it_names_exists() -> None:
    """Folders, too."""
    assert len(files(PAGE)) > 50
    assert [file for file in files(PAGE) if not (ROOT / file).exists()] == []


@pytest.mark.parametrize(("contract", "heading"), [("floors", "`hpcddp/`"), ("analysis", "`analysis/`")])
def test_floors_are_those_of_lint(contract: str, heading: str) -> None:
    """From the top, each once, and those that are side by side on one line."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    layers = config[f"importlinter:contract:{contract}"]["layers"].split("\n")
    of_lint = [sorted(layer.split(" | ")) for layer in layers if layer and layer not in ("__main__", "cli")]
    table = section("Floors").partition(f"{heading}, from the top:")[2].partition("\n\n`")[0]
    floors = [re.findall(r"`(\w+)`", line.split(" | ")[0]) for line in table.splitlines() if line.startswith("| `")]
    assert [sorted(floor) for floor in floors if "cli" not in floor] == of_lint


def test_where_keys_of_a_sweep_live() -> None:
    """Every file with a dataclass of keys is named."""
    (where,) = [row[1] for row in rows("Where something new goes") if row[0] == "a key of a sweep"]
    assert {f"{cls.__module__.replace('.', '/')}.py" for _, cls in sections()} <= set(files(where))


def test_classes_that_it_names_exist() -> None:
    """In the meanings of the words."""
    named = {name for row in rows("Words") for name in re.findall(r"`([A-Z]\w+)`", row[1])}
    code = "\n".join(file.read_text(encoding="utf-8") for file in sources("hpcddp", "analysis"))
    assert {name for name in named if not re.search(rf"^class {name}\b", code, re.MULTILINE)} == set()
    assert len(named) > 5


def test_words_have_one_meaning_each() -> None:
    """No word twice, none that the code refuses."""
    words = [row[0] for row in rows("Words")[1:]]
    assert len(words) == len(set(words))
    assert not BANNED & set(words)
