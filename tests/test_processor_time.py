"""The processor time that a test without a mark may take."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import pytest_runtest_setup, pytest_runtest_teardown

BUSY = "import time\nwhile time.process_time() < 0.2: pass"


def after_a_child(marks: dict[str, bool], most_s: float | None, *, is_last: bool = False) -> None:
    """The hooks around a test whose child takes 0.2 s."""
    item: Any = SimpleNamespace(stash={}, get_closest_marker=marks.get, config=SimpleNamespace(getoption=lambda _: most_s))
    list(pytest_runtest_setup(item))
    subprocess.run([sys.executable, "-S", "-c", BUSY], check=True)
    list(pytest_runtest_teardown(item, None if is_last else item))


def test_it_is_that_of_children_too() -> None:
    """Above the limit a test fails, unless it is marked, the session has no limit, or ends with it."""
    with pytest.raises(pytest.fail.Exception, match=r"it took 0\.\d s of processor time, more than 0: make it cheaper"):
        after_a_child({}, 0.15)
    after_a_child({"dear": True}, 0.15)
    after_a_child({}, None)
    after_a_child({}, 0.15, is_last=True)
    after_a_child({}, 60.0)
