"""Tests; and their goldens: `UPDATE_GOLDENS=1 pytest ...` writes them anew, for a reader to review."""

from __future__ import annotations

import os
from pathlib import Path

GOLDENS = Path(__file__).parent / "goldens"


def check_golden(name: str, text: str) -> None:
    """Asserts that `text` is the golden `name`, byte for byte."""
    file = GOLDENS / name
    if os.environ.get("UPDATE_GOLDENS"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")
