"""Fixtures of the GPU tests, and their results."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gpu.device import Figures, append_result
from tests.gpu.ranks import Attempt, done, gpu_point


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> Figures:
    found = Figures()
    request.node.stash[FIGURES] = found
    return found


@pytest.fixture(scope="session")
def recorded_run(tmp_path_factory: pytest.TempPathFactory) -> Attempt:
    """On every GPU, with copies ahead, the hook and a profile: several tests read what it has recorded."""
    measure = {"comm": "on", "profile_steps": 2}
    return done(tmp_path_factory.mktemp("run"), gpu_point(copy_ahead=True, loader_workers_per_rank=1, measure=measure))


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
