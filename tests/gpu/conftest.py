"""Fixtures of the GPU tests, and their results."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gpu.results import Figures, append_result


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> Figures:
    """What the test measures."""
    found = Figures()
    request.node.stash[FIGURES] = found
    return found


FIGURES = pytest.StashKey[Figures]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """A line for a test when it has run, or could not."""
    report = yield
    if report.when == "call" or report.outcome != "passed":
        found = item.stash.get(FIGURES, Figures())
        reason = None if report.passed else str(call.excinfo.value).splitlines()[0] if call.excinfo else None
        name = item.nodeid.removeprefix("tests/gpu/")
        took_s = round(call.duration, 1)
        append_result({"test": name, "outcome": report.outcome, "reason": reason, "took_s": took_s, "figures": found.values})
    return report
