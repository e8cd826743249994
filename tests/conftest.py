"""Fixtures: a real Slurm (`rcc_twin`, `twins`, `controllers`), a slow network (`link`), a `browser`; hooks."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import signal
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from hpcddp.cluster.profile_file import load_profile
from hpcddp.core.errors import HpcddpError
from hpcddp.core.records import PARTS, steps_file
from hpcddp.core.run_root import Study
from tests.chromium import Page, chromium, program
from tests.fake_slurm import FakeBackend
from tests.given_plan import study_of
from tests.machine import cannot_run
from tests.twin.controllers import OF_OTHER_RULES, Controllers
from tests.twin.daemons import missing
from tests.twin.twin import Twin, Twins

if TYPE_CHECKING:
    from tests.net.link import Link

settings.register_profile("unhurried", parent=settings(), deadline=None)  # a busy machine is no failure
settings.load_profile("unhurried")

os.environ.setdefault("OMP_NUM_THREADS", "1")  # ranks are forked from this process: they would wait for threads that it had

os.environ.pop("MAKEFLAGS", None)  # a make that a test starts is none of the one that started this

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # of `make test &` in a script: what tests start would ignore it, too
    signal.signal(signal.SIGINT, signal.default_int_handler)

LIMIT_S, SOAK_LIMIT_S = 600, 7200
"""Of a test with its fixtures. On two busy processors the longest of those without Slurm took two minutes."""

MAY_TAKE_LONG = ("slurm", "timed", "gpu", "soak", "dear")
BEGAN_S = pytest.StashKey[float]()


@pytest.fixture(scope="session", autouse=True)
def unsynced() -> Iterator[None]:
    """Nothing is synced to disk by this process and those it forks: no test cuts the power, and a slow disk takes 50 ms each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture(scope="session")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twins]:
    """Twins by cluster name: `twins.get("rcc")`. One is up at a time: getting another takes the first down."""
    reason = missing()
    if reason:
        cannot_run(reason)
    manager = Twins(tmp_path_factory.mktemp)
    yield manager
    manager.close()


@pytest.fixture(scope="module")
def rcc_twin(twins: Twins) -> Twin:
    """The rcc twin, up until a test asks for another one."""
    return twins.get("rcc")


@pytest.fixture(scope="module")
def controllers(twins: Twins) -> Controllers:
    """Controllers by profile, without nodes, for what needs no job: `controllers.get(profile).test_only(script)`."""
    return twins.controllers()


@pytest.fixture(scope="module")
def shipped(controllers: Controllers) -> Controllers:
    """The same, with those that `make test` needs up: booting beside each other they take little longer than one."""
    controllers.boot([load_profile(name) for name in OF_OTHER_RULES])
    return controllers


@pytest.fixture(scope="module")
def link() -> Iterator[Link]:
    """Two network namespaces with a wire between them, as fast as the machine until a test calls `set_rate`."""
    from tests.net.link import throttled_link  # with torch, which most tests do without

    with contextlib.ExitStack() as stack:
        try:
            wire = stack.enter_context(throttled_link(None))
        except HpcddpError as error:
            cannot_run(str(error))
        yield wire


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A page of a headless Chromium."""
    if program() is None:
        cannot_run("no Chromium: apt-get install chromium")
    with chromium(tmp_path_factory.mktemp("chromium")) as page:
        yield page


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """`analyze` without matplotlib's figures, which take most of its time: for tests of what is said."""
    monkeypatch.setattr("hpcddp.analysis.figures.figures.study_drawings", lambda *_: ({}, []))


@pytest.fixture
def drawn(undrawn: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """With them all the same, in a module that does without."""
    monkeypatch.undo()


@pytest.fixture
def study(tmp_path: Path) -> Study:
    """Where tests that have no other make one; it is not there yet."""
    return study_of(tmp_path)


@pytest.fixture
def backend() -> FakeBackend:
    """A cluster that takes everything."""
    return FakeBackend()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Of sessions that run many tests: in one of a single test what is imported first would count as the test's."""
    words = "fail a test, unless it is marked to take long, that takes more seconds of processor time with its fixtures"
    parser.addoption("--most-cpu", type=float, metavar="SECONDS", help=words)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    """The processor time of a test begins before its fixtures."""
    item.stash[BEGAN_S] = _processor_s()
    yield


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """And ends behind them: that of this process and of all those that it waited for. The last test ends the session's, too."""
    yield
    if nextitem is None:
        return
    most_s, took_s = item.config.getoption("--most-cpu"), _processor_s() - item.stash[BEGAN_S]
    if most_s is not None and took_s > most_s and not any(map(item.get_closest_marker, MAY_TAKE_LONG)):
        pytest.fail(
            f"it took {took_s:.1f} s of processor time, more than {most_s:.0f}: make it cheaper, or mark it `dear`, or `soak` if"
            " another test finds the same faults",
            pytrace=False,
        )


def _processor_s() -> float:
    """Of this process and its children."""
    return sum(os.times()[:4])


def pytest_itemcollected(item: pytest.Item) -> None:
    """Whatever uses a twin is marked `slurm`, and what measures a wire `timed`; no test waits for ever."""
    fixtures = getattr(item, "fixturenames", ())
    if "twins" in fixtures:
        item.add_marker("slurm")
    if "controllers" in fixtures:
        item.add_marker("controllers")
    if "link" in fixtures:
        item.add_marker("timed")
    if item.get_closest_marker("timeout") is None:
        # by a signal: a thread's limit would end this process, and leave a twin behind; ranks that are forked do not inherit it
        item.add_marker(pytest.mark.timeout(SOAK_LIMIT_S if item.get_closest_marker("soak") else LIMIT_S, method="signal"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Modules that use controllers come last: the twin goes down for them, once."""
    last = {item.path for item in items if "controllers" in getattr(item, "fixturenames", ())}
    items.sort(key=lambda item: item.path in last)


OFF_BY = 0.01
"""Of the total; the parts of a CPU's step add up exactly, those of a GPU's are each rounded by its events."""


@pytest.fixture(scope="session", autouse=True)
def closure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """When all tests have run, reads every whole file of steps below their folders."""
    yield
    odd = [
        sentence
        for end in sorted(tmp_path_factory.getbasetemp().rglob("end.json"))
        for sentence in that_do_not_add_up(end.parent)
    ]
    assert not odd, "\n".join(["steps whose parts do not add up to their total:", *odd])


def that_do_not_add_up(attempt: Path) -> Iterator[str]:
    """The first such step of each rank, in words. Of attempts that ended `done` only, and of files that are as end.json has them.

    Rows that a test made up may leave `other` out, and with it the claim to be whole; a worker's never do.
    """
    end, launch = _read(attempt / "end.json"), _read(attempt / "launch.json")
    for entry in end.get("ranks", ()) if end.get("state") == "done" else ():
        file = steps_file(attempt, entry["rank"])
        if file.is_file() and zlib.crc32(file.read_bytes()) == entry["crc32"]:
            odd = _first_odd(file, synthetic="clock" not in launch)
            yield from [f"{file}: {odd}"] if odd else []


def _first_odd(file: Path, *, synthetic: bool) -> str | None:
    with file.open(newline="") as lines:
        rows = csv.reader(lines)
        column = {name: place for place, name in enumerate(next(rows, ()))}
        parts = [column[f"{part}_ns"] for part in PARTS if column]
        for row in rows:
            total_ns, parts_ns = int(row[column["total_ns"]] or 0), sum(int(row[part] or 0) for part in parts)
            if abs(parts_ns - total_ns) >= OFF_BY * total_ns and not (synthetic and not row[column["other_ns"]]):
                return f"step {row[column['step']]} lasted {total_ns} ns and its parts {parts_ns} ns"
    return None


def _read(file: Path) -> dict[str, Any]:
    """{} for what a test has damaged, or left out."""
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
