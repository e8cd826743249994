"""One twin at a time in a test session, and few boots."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.conftest import pytest_collection_modifyitems


def test_modules_are_ordered_by_the_twin_they_need() -> None:
    """No twin, rcc, rcc then marconi100, marconi100; a module keeps its tests together and in order."""
    rcc, marconi100 = ["rcc_twin"], ["marconi100_twin", "tmp_path"]
    fixtures_of = [("m", marconi100), ("both", rcc), ("both", marconi100), ("r", []), ("r", rcc), ("none", ["tmp_path"])]
    items: list[Any] = [SimpleNamespace(path=Path(name), fixturenames=fixtures) for name, fixtures in fixtures_of]
    expected = [items[i] for i in (5, 3, 4, 1, 2, 0)]
    pytest_collection_modifyitems(items)
    assert items == expected
