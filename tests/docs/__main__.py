"""`python -m tests.docs` writes the pages that are made from the code; `make docs` calls it."""

from __future__ import annotations

from tests.docs.pages import PAGES, ROOT

for name, page in PAGES.items():
    (ROOT / "docs" / name).write_text(page(), encoding="utf-8")
