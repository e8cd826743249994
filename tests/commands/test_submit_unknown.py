"""`hpcddp submit` while the controller does not answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcddp.backends.base import JobState
from tests.commands.conftest import Run
from tests.given_order import SWEEP
from tests.told_backend import ToldBackend


def test_runs_that_are_not_known_of_are_left_alone_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    """Nothing is submitted for them, and `nothing to submit` is not all that is said."""
    backend = ToldBackend()
    monkeypatch.setattr("hpcddp.backends.choose.make_backend", lambda *given, **more: backend)
    (tmp_path / "small.yaml").write_text(SWEEP)
    first = run("submit", "small.yaml", "-y")
    assert first.exit_code == 0, first.output
    silent = JobState(phase="unknown", detail="squeue: Socket timed out on send/recv operation")
    backend.states = dict.fromkeys(backend.queued, silent)
    again = run("submit", "small.yaml", "-y")
    assert "nothing to submit" in again.stdout
    assert f"! 4 runs not known of just now, and left alone: {silent.detail}" in again.stderr
    assert len(backend.queued) == 4
