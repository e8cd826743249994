"""The pages say what the code says, and lead where they say."""

from __future__ import annotations

import configparser
import dataclasses
import re
from pathlib import Path

import click
import pytest

from hpcddp.cli import main
from hpcddp.cluster.json_schema import field_docs
from tests.docs.pages import PAGES, ROOT, WRITTEN, anchors, links
from tests.docs.sweep_reference import sections
from tests.test_source import sources


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


SAYING = [*WRITTEN, *sources("hpcddp", "analysis")]
"""What names commands: pages, and messages and docstrings of the code."""


def unknown_words(typed: str) -> list[str]:
    """Of what is typed after `hpcddp`, commands and options that are not there."""
    command: click.Command = main
    words = typed.partition(" -- ")[0].split()
    while isinstance(command, click.Group) and words and re.fullmatch("[a-z][a-z0-9]*", words[0]):
        found = command.get_command(click.Context(command), words[0])
        if found is None:
            return words[:1]
        command, words = found, words[1:]
    known = {option for parameter in command.params for option in parameter.opts} | {"--help", "--version"}
    group = isinstance(command, click.Group)  # `hpcddp data`: what its commands have
    return [] if group else [word for word in re.findall(r"(?<!\S)--[a-z][a-z-]+", " ".join(words)) if word not in known]


def test_commands_that_are_named_exist() -> None:
    """In backticks, or on an indented line of a page; with their options."""
    texts = [file.read_text(encoding="utf-8") for file in SAYING]
    named = {typed for text in texts for typed in re.findall(r"`hpcddp ([^`]+)`", " ".join(text.split()))}
    named |= {typed for text in texts[: len(WRITTEN)] for typed in re.findall(r"^    hpcddp ([^|#\n]*)", text, re.MULTILINE)}
    assert {typed for typed in named if unknown_words(typed)} == set()
    assert len(named) > 100


def test_a_command_that_is_gone_is_found() -> None:
    """Or an option; behind -- is a command of the user's own."""
    assert unknown_words("propose STUDY --nodes 4") == ["propose"]
    assert unknown_words("data fetch cifar10 --rot X") == ["--rot"]
    assert unknown_words("submit --nodes 2 -- python train.py --depth 3") == []


def test_keys_and_files_that_pages_name_exist() -> None:
    """Keys of a sweep, in any page that is not made from the code; and files of the checkout."""
    keys = {f"{path}.{field.name}" for path, cls in sections() for field in dataclasses.fields(cls)}
    texts = [page.read_text(encoding="utf-8") for page in WRITTEN if page.name not in PAGES]
    named = {key for text in texts for key in re.findall(r"`((?:workload|measure|layout)\.[a-z_.]*[a-z])", text)}
    assert {key for key in named - keys if not key.startswith("workload.args")} == set()
    files = {file for text in texts for file in re.findall(r"`((?:hpcddp|analysis|templates|clusters|tests)/[\w./-]+)`", text)}
    assert {file for file in files if not (ROOT / file).exists()} == set()


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
