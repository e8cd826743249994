"""Fixtures for tests on a real Slurm: `rcc_twin`, `marconi100_twin`, and `twins` for tests that need more than one."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.twin.manager import Twins
from tests.twin.requirements import missing
from tests.twin.twin import Twin

BOOT_ORDER = ("rcc_twin", "marconi100_twin")


@pytest.fixture(scope="session")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twins]:
    """Twins by cluster name: `twins.get("rcc")`. One is up at a time: getting another takes the first down."""
    reason = missing()
    if reason:
        _skip(reason)
    manager = Twins(tmp_path_factory.mktemp)
    yield manager
    manager.close()


@pytest.fixture(scope="module")
def rcc_twin(twins: Twins) -> Twin:
    """The rcc twin, up for the whole module: not together with another twin in one module."""
    return twins.get("rcc")


@pytest.fixture(scope="module")
def marconi100_twin(twins: Twins) -> Twin:
    """The marconi100 twin, up for the whole module: not together with another twin in one module."""
    return twins.get("marconi100")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Modules without a twin come first, then those of one twin after the other: each boots once."""
    last = {item.path: 0 for item in items}
    for item in items:
        last[item.path] = max(last[item.path], _boot_rank(item))
    items.sort(key=lambda item: last[item.path])


def _boot_rank(item: pytest.Item) -> int:
    fixtures = getattr(item, "fixturenames", ())
    return max((rank for rank, name in enumerate(BOOT_ORDER, start=1) if name in fixtures), default=0)


def _skip(reason: str) -> None:
    """In CI a test that cannot run is a failure."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
