"""What tests of analysis share."""

from __future__ import annotations

import pytest


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """`analyze` without matplotlib's figures, which take most of its time: for tests of what is said."""
    monkeypatch.setattr("hpcddp.analysis.figures.figures.study_drawings", lambda *_: ({}, []))


@pytest.fixture
def drawn(undrawn: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """With them all the same, in a module that does without."""
    monkeypatch.undo()
