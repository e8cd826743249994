"""Whatever was done to a study's folder, `analyze` ends, runs nothing of it, names what is damaged, and counts the rest alike."""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from hpcddp.analysis import StudyResult, analyze
from hpcddp.core.errors import FAILED
from hpcddp.core.point import point_to_dict
from hpcddp.core.records import write_json
from hpcddp.core.run_root import Study
from tests.analysis.damages import JSON_TEXTS, empty_total, grow, link_to_itself, of_points, of_runs, of_studies
from tests.analysis.synthetic import MS, Bucket, Recorded, point, write_run, write_runs, write_study

DEADLINE_S = 120
pytestmark = [pytest.mark.usefixtures("undrawn"), pytest.mark.timeout(DEADLINE_S)]  # analyze may wait for a file to answer

POINTS = (point(1, 1), point(1, 2), point(2, 2))
HOOKED = point(1, 2, comm="on")
BUCKET = Bucket(size_bytes=1000, ready_ns=MS, done_ns=2 * MS)

PLANTED = ("__init__.py", "conftest.py", "duckdb.py", "hpcddp.py", "json.py", "matplotlib.py", "pandas.py", "sitecustomize.py")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A folder that goes again at once: what reads all that tests leave behind would wait for FIFOs."""
    yield tmp_path / "place"
    shutil.rmtree(tmp_path / "place")


@pytest.fixture
def ran(tmp_path: Path) -> Path:
    """Where code that ran leaves a file."""
    (tmp_path / "ran").mkdir()
    return tmp_path / "ran"


def sound_study(folder: Path) -> Study:
    """Three points of two runs each; nobody says anything bad about them."""
    study = write_study(folder, [*POINTS], repeat=2)
    for each in POINTS:
        write_runs(study, each, [(30 + each.ranks) * MS, (31 + each.ranks) * MS])
    return study


def sound_run(study: Study) -> Path:
    """An attempt of HOOKED, to be copied and damaged."""
    write_json(study.point_file(HOOKED.label), {"schema": 1, "id": HOOKED.id, "point": point_to_dict(HOOKED)})
    recorded = Recorded(step_ns=8 * MS, shares={"forward": 0.25, "backward": 0.25, "comm_exposed": 0.25}, buckets=[BUCKET])
    return write_run(study, HOOKED, recorded)


def analyzed(root: Path) -> dict[str, StudyResult]:
    """By the name of the study's folder."""
    return {result.name: result for result in analyze(root, root.parent / "out")}


def numbers(report: Path) -> list[dict[str, str]]:
    """Of the runs that are not damaged, all that is known."""
    labels = {each.label for each in POINTS}
    with (report / "runs.csv").open(encoding="utf-8", newline="") as rows:
        return [row for row in csv.DictReader(rows) if row["label"] in labels]


def steady_steps(report: Path, label: str) -> int:
    """Of the point's one run."""
    with (report / "runs.csv").open(encoding="utf-8", newline="") as rows:
        (found,) = [row for row in csv.DictReader(rows) if row["label"] == label]
    return int(found["steady_steps"])


@pytest.fixture(scope="module")
def undamaged(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """The points and runs of the study that nobody damaged."""
    folder = tmp_path_factory.mktemp("alone")
    sound_study(folder / "runs/s")
    found = analyzed(folder / "runs")["s"].plain["points"]
    return found, numbers(folder / "out/s")


def reasons_by_run(result: StudyResult) -> dict[str, str]:
    """Run -> why it does not count."""
    return {each["run"]: each["reason"] for each in (*result.plain["rejected"], *result.plain["missing"])}


@pytest.mark.dear
@pytest.mark.usefixtures("drawn")
def test_damaged_runs_are_named_and_the_others_count_as_before(place: Path, ran: Path, undamaged: Any) -> None:
    """More than 200 ways, each to a run of its own; the page stays a page."""
    draw, study, damages = Random(4), sound_study(place / "runs/s"), list(of_runs(ran))
    assert len(damages) >= 200
    first = sound_run(study)
    for run, (_, damage) in enumerate(damages, start=2):
        attempt = study.attempt_dir(HOOKED.label, run, "100", 0)
        shutil.copytree(first, attempt)
        damage(draw, attempt)
    shutil.rmtree(first.parent)
    result = analyzed(place / "runs")["s"]
    reasons = reasons_by_run(result)
    counted = [name for run, (name, _) in enumerate(damages, start=2) if not reasons.get(f"r{run} of {HOOKED.label}")]
    assert counted == [], "these damaged runs count, or nothing is said of them"
    assert (result.plain["points"], numbers(place / "out/s")) == undamaged
    assert "<script>window" not in (place / "out/s/index.html").read_text(encoding="utf-8")
    assert list(ran.iterdir()) == []


@pytest.mark.dear
def test_a_step_that_was_not_measured_costs_itself_alone(place: Path) -> None:
    """One total of forty is an empty cell: the run counts by the others, and those beside it as before."""
    study, odd = sound_study(place / "runs/s"), point(1, 2, batch_per_gpu=8)
    write_json(study.point_file(odd.label), {"schema": 1, "id": odd.id, "point": point_to_dict(odd)})
    attempt = write_run(study, odd, Recorded(step_ns=8 * MS, steps=40))
    analyzed(place / "runs")
    before = numbers(place / "out/s"), steady_steps(place / "out/s", odd.label)
    empty_total(attempt, rank=1, row=20)
    result = analyzed(place / "runs")["s"]
    assert (numbers(place / "out/s"), steady_steps(place / "out/s", odd.label)) == (before[0], before[1] - 1)
    assert reasons_by_run(result) == {}


@pytest.mark.dear
def test_a_damaged_point_costs_its_own_runs_only(place: Path, undamaged: Any) -> None:
    """Its label is named, with the reason; a label that would be lines of its own is one word."""
    draw, study = Random(5), sound_study(place / "runs/s")
    names = {}
    for seed, (name, damage) in enumerate(of_points(), start=100):
        other = point(1, 2, seed=seed)
        folder = study.point_file(other.label).parent
        write_study(place / "spare", [other])
        shutil.copytree(place / "spare" / other.label, folder)
        write_run(study, other, Recorded(step_ns=8 * MS))
        there = set(study.folder.iterdir())
        damage(draw, folder)
        (names[name],) = set(study.folder.iterdir()) - there or {folder}
    result = analyzed(place / "runs")["s"]
    assert (result.plain["points"], numbers(place / "out/s")) == undamaged
    text = "\n".join([*reasons_by_run(result), *result.plain["notes"]])
    for name, folder in names.items():
        label = " ".join(folder.name.split())
        assert (label in text) == os.path.lexists(folder / "point.json"), name
    assert not any(line.startswith("r9 of all") for line in result.text.splitlines())


@pytest.mark.dear
def test_a_damaged_study_leaves_those_beside_it(place: Path, undamaged: Any) -> None:
    """It is named with the reason; alone, it is the command's error."""
    draw, root = Random(6), place / "runs"
    sound_study(root / "whole")
    every = dict(of_studies())
    for number, damage in enumerate(every.values()):
        shutil.copytree(root / "whole", root / f"s{number}")
        damage(draw, root / f"s{number}")
    results = analyzed(root)
    assert (results["whole"].plain["points"], numbers(place / "out/whole")) == undamaged
    assert {name: results[f"s{i}"].damaged for i, name in enumerate(every)} == dict.fromkeys(every, True)
    assert all(f"s{i}/study.json is damaged: " in results[f"s{i}"].text for i in range(len(every)))


@pytest.mark.dear
def test_odd_files_beside_whole_records_change_nothing(place: Path, ran: Path, undamaged: Any) -> None:
    """Things that wait, loop or never end, in every folder and in place of all that is read for display only."""
    study = sound_study(place / "runs/s")
    for file in (study.submissions_file, study.folder / "report"):
        os.mkfifo(file)
    for each in POINTS:
        for run in ("r0", "r01", "r٣", f"r{10**30}", "r1\n", "r-1"):
            (study.folder / each.label / run).mkdir()
        link_to_itself(study.folder / each.label / "r1/loop.0")
        nodes = study.attempt_dir(each.label, 1, "101", 0) / "nodes"
        nodes.mkdir()
        os.mkfifo(nodes / "r000.json")
        (nodes / "r001.json").write_text(JSON_TEXTS["nested"], encoding="utf-8")
        (nodes / "r002.json").mkdir()
        grow(nodes / "r003.json")
    (study.folder / "up").symlink_to("..")
    (place / "runs/again").symlink_to(".")
    result = analyzed(place / "runs")["s"]
    assert (result.plain["points"], numbers(place / "out/s")) == undamaged


@pytest.mark.dear
def test_nothing_in_a_study_is_run(place: Path, ran: Path) -> None:
    """Modules, settings and pickles in a folder that a user stands in while `hpcddp analyze .` reads it."""
    study = sound_study(place / "runs/s")
    leave_mark = f"open({str(ran / 'module')!r}, 'w')\n"
    for folder in (study.folder, study.folder / POINTS[0].label, study.attempt_dir(POINTS[0].label, 1, "101", 0)):
        for name in PLANTED:
            (folder / name).write_text(leave_mark)
        (folder / "matplotlibrc").write_text("backend: module://pandas\n")
        (folder / "evil.pth").write_text(f"import os; {leave_mark}")
    command = [str(Path(sys.executable).parent / "hpcddp"), "analyze", "."]
    done = subprocess.run(command, cwd=study.folder, capture_output=True, text=True, check=False, timeout=DEADLINE_S)
    assert (done.returncode, done.stderr) == (0, "")
    assert list(ran.iterdir()) == []


def test_the_command_ends_with_1_where_a_study_is_damaged(place: Path) -> None:
    """After it told what the others say."""
    from click.testing import CliRunner

    from hpcddp.cli import main

    for name in ("a", "b"):
        sound_study(place / "runs" / name)
    (place / "runs/a/study.json").write_text("{")
    done = CliRunner().invoke(main, ["analyze", str(place / "runs"), "-o", str(place / "out")])
    assert done.exit_code == FAILED
    assert "a/study.json is damaged" in done.stdout
    assert "gates     6 of 6 runs pass" in done.stdout
