"""`python -m tests.docs` writes the pages that are made from the code; `make docs` calls it."""

from __future__ import annotations

from tests.docs.pages import PAGES, ROOT
from tests.docs.studies.page import draw
from tests.docs.studies.text import study_pages

for name, page in PAGES.items():
    (ROOT / "docs" / name).write_text(page(), encoding="utf-8")

for study in study_pages():
    draw(study)
