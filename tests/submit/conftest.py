"""A study beside the sweep of given_plan, and a cluster that takes everything."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcddp.core.run_root import Study
from tests.fake_backend import FakeBackend
from tests.given_plan import study_of


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return study_of(tmp_path)


@pytest.fixture
def backend() -> FakeBackend:
    return FakeBackend()
