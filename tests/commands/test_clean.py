"""`hpcddp clean` as a user sees it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcddp.core.errors import FAILED
from tests.analysis.synthetic import point, write_study
from tests.commands.conftest import Run
from tests.intruder import as_nobody, need_root


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that everybody may look at."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_clean_of_another_users_study_says_whose_it_is(run: Run, public: Path) -> None:
    """Who may not remove anything there hears whose study it is, not what a submission would need."""
    need_root()
    study = write_study(public / "s", [point(1, 1)])
    (study.code / "0123456789abcdef").mkdir(parents=True)
    assert "to remove: hpcddp clean" in run("clean", study.folder).stdout  # and what it imports is there

    def clean() -> None:
        result = run("clean", study.folder, "-y")
        expected = f"{study.folder}: nothing can be changed there (Permission denied); it belongs to root\n"
        assert (result.exit_code, result.stderr) == (FAILED, expected)

    as_nobody(clean, public)
