"""The pages of docs/ that are made from the code, and all pages there are."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from tests.docs.key_tables import clusters_page, sweep_page
from tests.docs.studies.page import page as study_page
from tests.docs.studies.text import study_pages

ROOT = Path(__file__).parents[2]
PAGES: Mapping[str, Callable[[], str]] = {
    "clusters.md": clusters_page,
    "sweep-reference.md": sweep_page,
    **{f"studies/{study}.md": partial(study_page, study) for study in study_pages()},
}
WRITTEN = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def anchors(text: str) -> set[str]:
    """What links may point to: headings as GitHub turns them into anchors."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(text: str) -> list[tuple[str, str]]:
    """File and anchor of each link that stays in the checkout."""
    return [(file, anchor) for file, anchor in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", text) if "://" not in file]
