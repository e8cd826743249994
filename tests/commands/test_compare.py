"""`hpcddp compare` as a user or a CI job runs it."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.analysis.synthetic import MS, Recorded, point, write_run, write_runs, write_study
from tests.commands.conftest import Run, files


def studies(folder: Path, slower: float) -> None:
    """`old` and `new`, six runs each of two sizes; new takes `slower` times as long at two nodes."""
    for name, factor in (("old", 1.0), ("new", slower)):
        study = write_study(folder / name, [point(1, 1), point(2, 1)], repeat=6)
        for each in (point(1, 1), point(2, 1)):
            times = factor if each.layout.nodes > 1 else 1.0
            write_runs(study, each, [round((100 + run) * times * MS) for run in range(6)])


@pytest.mark.parametrize(("slower", "threshold", "code"), [(1.0, 5, 0), (1.2, 5, 4), (1.2, 30, 0), (0.5, 5, 0)])
def test_a_regression_beyond_the_threshold_ends_with_4(
    run: Run, tmp_path: Path, slower: float, threshold: int, code: int
) -> None:
    """Nothing else does: not a speedup, not a slowdown within the threshold."""
    studies(tmp_path, slower)
    result = run("compare", "old", "new", "--threshold", threshold)
    assert (result.exit_code, result.stderr) == (code, "")
    assert result.stdout.startswith("A  old (marconi100, 2023-11-14): old\nB  new (marconi100, 2023-11-14): new\nB trains ")


@pytest.mark.dear
def test_json_and_files_hold_the_same(run: Run, tmp_path: Path) -> None:
    """-o writes compare.json and the figure; --junit its own file; without them nothing but what is kept of the runs."""
    studies(tmp_path, 1.2)
    before = files(tmp_path)
    result = run("compare", "old", "new", "--format", "json")
    assert files(tmp_path) == before
    run("compare", "old", "new", "-o", "out", "--junit", "ci.xml")
    assert json.loads((tmp_path / "out/compare.json").read_bytes()) == json.loads(result.stdout)
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == [
        f"compare.{ending}" for ending in ("json", "pdf", "png", "svg")
    ]
    assert ET.parse(tmp_path / "ci.xml").getroot().get("failures") == "1"


def test_a_point_without_runs_in_b_is_incomplete(run: Run, tmp_path: Path) -> None:
    """Exit code 3: what is not there has not been checked."""
    studies(tmp_path, 1.0)
    study = write_study(tmp_path / "part", [point(1, 1), point(2, 1)], repeat=1)
    write_run(study, point(1, 1), Recorded(step_ns=102 * MS))
    result = run("compare", "old", "part")
    assert (result.exit_code, "only in A" in result.stdout) == (3, True)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["old", "nowhere"], "'nowhere' does not exist"),
        (["old", "config"], "config: no study in it"),
        (["old", "."], ".: 2 studies in it (new, old); name one of them"),
        (["old", "new", "--threshold", "-1"], "-1"),
    ],
)
def test_what_cannot_be_compared_is_a_mistake(run: Run, tmp_path: Path, arguments: list[str], says: str) -> None:
    """Exit code 2, with the name and what is wrong with it."""
    studies(tmp_path, 1.0)
    (tmp_path / "config").mkdir()
    result = run("compare", *arguments)
    assert (result.exit_code, says in result.stderr) == (2, True)


def test_a_figure_that_raises_costs_itself(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table is printed, compare.json is there, the figure is named; exit code 3."""

    def wrong(*_: object) -> None:
        raise RuntimeError("planted")

    for name in ("a", "b"):
        write_runs(write_study(tmp_path / name, [point(1, 1)]), point(1, 1), [MS])
    monkeypatch.setattr("hpcddp.analysis.comparison.figure.compare_figure", wrong)
    result = run("compare", "a", "b", "-o", "out")
    assert (result.exit_code, "B trains 1.000 times as fast as A" in result.stdout) == (3, True)
    assert "failed: out/compare.png, .svg and .pdf: RuntimeError: planted (" in " ".join(result.stderr.split())
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["compare.json"]
