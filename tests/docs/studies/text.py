"""The text of a study's page: what in it is made, what is a command, and the numbers that are written by hand."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.studies.evidence import NUMBER, PAGES

BLOCK = re.compile(r"(<!-- (\w+)(?:: ([^>]*?))? -->\n)(.*?)(<!-- end -->)", re.DOTALL)
CITED = re.compile(r"\[([^\]\[]+)\]\[([^\]\[]+)\]")
CODE = re.compile(r"`([^`]+)`")
SMALL = "\n## What it finds here"
"""Heading of the part whose commands run anywhere."""
COMMAND = re.compile(r"^    (hpcddp (?:.*\\\n)*.*)$", re.MULTILINE)


def study_pages() -> list[str]:
    """The names of the studies that have a page."""
    return sorted(file.stem for file in PAGES.glob("*.md"))


def page_file(study: str) -> Path:
    """Its page."""
    return PAGES / f"{study}.md"


def read_page(study: str) -> str:
    """As it is in the checkout."""
    return page_file(study).read_text(encoding="utf-8")


def commands(study: str) -> list[str]:
    """What the page says to type for its cluster, in its order."""
    return COMMAND.findall(read_page(study).partition(SMALL)[0])


def small_commands(study: str) -> list[str]:
    """What it says to type on one machine without Slurm."""
    return COMMAND.findall(read_page(study).partition(SMALL)[2])


def cited_numbers(text: str) -> list[tuple[str, str]]:
    """(number with its words, label) of each."""
    return CITED.findall(BLOCK.sub("", text))


def code_with_numbers(text: str) -> list[str]:
    """Excerpts in the text, of the sweep, that have a number."""
    return [code for code in CODE.findall(_prose(text)) if NUMBER.search(code)]


def uncited_numbers(text: str) -> list[str]:
    """Numbers by hand without a label, outside code."""
    prose = CODE.sub("", CITED.sub("", _prose(text)))
    return NUMBER.findall(re.sub(r"\]\([^)]*\)", "]", prose))


def _prose(text: str) -> str:
    """The page without what is made, and without indented code."""
    return re.sub(r"^    .*$", "", BLOCK.sub("", text), flags=re.MULTILINE)
