"""Fixtures for tests on a real Slurm: `rcc_twin`, `marconi100_twin`, and `twins` for tests that need more than one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

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
    """The rcc twin, up until a test asks for another one."""
    return twins.get("rcc")


@pytest.fixture(scope="module")
def marconi100_twin(twins: Twins) -> Twin:
    """The marconi100 twin, up until a test asks for another one."""
    return twins.get("marconi100")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Modules without a twin come first, then those of one twin, those of it and the next, and so on: each boots once."""
    ranks: dict[Path, list[int]] = {item.path: [] for item in items}
    for item in items:
        ranks[item.path] += _boot_ranks(item)
    items.sort(key=lambda item: (min(ranks[item.path], default=0), max(ranks[item.path], default=0)))


def _boot_ranks(item: pytest.Item) -> list[int]:
    fixtures = getattr(item, "fixturenames", ())
    return [rank for rank, name in enumerate(BOOT_ORDER, start=1) if name in fixtures]


def _skip(reason: str) -> None:
    """In CI a test that cannot run is a failure."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
