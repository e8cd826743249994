"""The pages say what the code says, and lead where they say."""

from __future__ import annotations

import configparser
import dataclasses
import re
from pathlib import Path

import pytest

from hpcddp.cluster.field_docs import field_docs
from tests.docs.pages import PAGES, ROOT, WRITTEN, anchors, links
from tests.docs.sweep_reference import sections


@pytest.mark.parametrize("name", PAGES)
def test_a_page_made_from_the_code_is_as_the_code_is(name: str) -> None:
    """`make docs` writes it anew."""
    assert (ROOT / "docs" / name).read_text(encoding="utf-8") == PAGES[name]()


def test_every_key_of_a_sweep_has_a_sentence() -> None:
    """The docstring below its field."""
    missing = {
        f"{path}.{field.name}"
        for path, cls in sections()
        for field in dataclasses.fields(cls)
        if field.name not in field_docs(cls)
    }
    assert missing == set()


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    """To a file of the checkout, and to a heading in it."""
    text = page.read_text(encoding="utf-8")
    for file, anchor in links(text):
        target = page.parent / file if file else page
        assert target.exists(), file
        assert not anchor or target.suffix != ".md" or anchor in anchors(target.read_text(encoding="utf-8")), f"{file}#{anchor}"


def test_every_page_is_linked_from_the_readme() -> None:
    """Who opens the README finds all of them."""
    linked = {ROOT / file for file, _ in links((ROOT / "README.md").read_text(encoding="utf-8"))}
    assert set(WRITTEN) - {ROOT / "README.md"} <= linked


def test_every_mark_of_tests_is_explained() -> None:
    """CONTRIBUTING.md has a row for each mark in setup.cfg."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    marks = re.findall(r"^(\w+):", config["tool:pytest"]["markers"], re.MULTILINE)
    assert re.findall(r"^\| `(\w+)` \|", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.MULTILINE) == marks


def test_the_readme_is_short() -> None:
    """What does not fit is in docs/."""
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 1000
