"""The hooks and the checks of a test session find what they are there for."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hpcddp.core.records import write_json
from tests.analysis.synthetic import MS, Recorded, point, write_run, write_study
from tests.conftest import pytest_collection_modifyitems, pytest_runtest_setup, pytest_runtest_teardown, that_do_not_add_up


def attempt(folder: Path, shares: Mapping[str, float], *, by_worker: bool, state: str = "done") -> Path:
    """A run of two ranks whose steps last 10 ms; it is not left behind as `done`, as the session's own check would find it."""
    what = point(1, 2)
    written = write_run(write_study(folder, [what]), what, Recorded(step_ns=10 * MS, shares=shares, state=state))
    write_json(written / "launch.json", {"clock": "host"} if by_worker else {})
    return written


@pytest.mark.parametrize(
    ("shares", "by_worker", "odd"),
    [
        ({"forward": 0.5, "other": 0.5}, True, 0),
        ({"forward": 0.5, "other": 0.495}, True, 0),
        ({"forward": 0.5, "other": 0.489}, True, 2),
        ({"forward": 0.5, "other": 0.511}, False, 2),
        ({"forward": 0.5}, True, 2),
        ({"forward": 0.5}, False, 0),
    ],
)
def test_a_step_adds_up_to_one_percent(tmp_path: Path, shares: Mapping[str, float], by_worker: bool, odd: int) -> None:
    """Each rank's first odd step is named; rows that a test made up without `other` do not claim to be whole."""
    written = attempt(tmp_path, shares, by_worker=by_worker)
    found = list(that_do_not_add_up(written))
    (written / "end.json").unlink()
    assert len(found) == odd
    assert all(
        f"{written}/ranks/0000{rank}.steps.csv: step 0 lasted 100000000 ns" in sentence for rank, sentence in enumerate(found)
    )


def test_only_what_claims_to_be_done_and_whole_is_asked(tmp_path: Path) -> None:
    assert not list(that_do_not_add_up(attempt(tmp_path / "failed", {"other": 0.5}, by_worker=True, state="failed")))
    torn = attempt(tmp_path / "torn", {"other": 0.5}, by_worker=True)
    for file in (torn / "ranks").iterdir():
        file.write_text(file.read_text()[:-5])
    assert not list(that_do_not_add_up(torn))


BUSY = "import time\nwhile time.process_time() < 0.1: pass"


def after_a_child(marks: dict[str, bool], most_s: float | None, *, is_last: bool = False) -> None:
    """The hooks around a test whose child takes 0.1 s."""
    item: Any = SimpleNamespace(stash={}, get_closest_marker=marks.get, config=SimpleNamespace(getoption=lambda _: most_s))
    list(pytest_runtest_setup(item))
    subprocess.run([sys.executable, "-S", "-c", BUSY], check=True)
    list(pytest_runtest_teardown(item, None if is_last else item))


def test_it_is_that_of_children_too() -> None:
    """Above the limit a test fails, unless it is marked, the session has no limit, or ends with it."""
    with pytest.raises(pytest.fail.Exception, match=r"it took 0\.\d s of processor time, more than 0: make it cheaper"):
        after_a_child({}, 0.08)
    after_a_child({"dear": True}, 0.08)
    after_a_child({}, None)
    after_a_child({}, 0.08, is_last=True)


def test_modules_with_controllers_come_last() -> None:
    """Each keeps its tests together and in order."""
    fixtures_of = [("a", ["rcc_twin"]), ("b", []), ("b", ["controllers"]), ("c", ["rcc_twin"]), ("b", ["tmp_path"])]
    items: list[Any] = [SimpleNamespace(path=Path(name), fixturenames=fixtures) for name, fixtures in fixtures_of]
    expected = [items[i] for i in (0, 3, 1, 2, 4)]
    pytest_collection_modifyitems(items)
    assert items == expected


FORKED = """
import sys
import tests.__main__ as program
program.ALL = ("-p", "no:cacheprovider", "-o", "markers=slurm", "--rootdir", sys.argv[1], sys.argv[1])
sys.argv[1:] = []
sys.exit(program.main())
"""

THREE = {
    "test_a": "def test_a(): assert 0",
    "test_b": "def test_b(): pass",
    "test_c": "import pytest\n@pytest.mark.slurm\ndef test_c(): pass",
}


@pytest.mark.dear
def test_each_test_runs_once_in_one_of_the_processes(tmp_path: Path) -> None:
    """And one that fails is in the exit code, with what it said, wherever that was."""
    for name, text in THREE.items():
        (tmp_path / f"{name}.py").write_text(text)
    command = [sys.executable, "-c", FORKED, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    ends = [sum(map(int, re.findall(rf"(\d) {end}", done.stdout))) for end in ("failed", "passed")]
    assert (ends, done.stdout.count("AssertionError")) == ([1, 2], 1), done.stdout
    assert sorted(re.findall(r"(\d) o(?:f|n) ", done.stdout)) == ["0", "0", "1"]
