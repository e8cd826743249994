"""Whatever was done to a study's folder, `analyze` ends, runs nothing of it, names what is damaged, and counts the rest alike.

`of_runs`, `of_points` and `of_studies` give (name, damage); a damage takes a seeded generator and a whole folder, and leaves
it so that nothing in it may count. The runs are of two ranks with `comm: on`.
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
import pickle
import shutil
import socket
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner

from hpcddp.analysis import StudyResult, analyze
from hpcddp.cli import main
from hpcddp.core.errors import FAILED
from hpcddp.core.point import point_to_dict
from hpcddp.core.records import STEP_COLUMNS, write_json
from hpcddp.core.run_root import Study
from tests.analysis.synthetic import MS, Bucket, Recorded, point, write_measured, write_run, write_study

Damage = Callable[[Random, Path], None]
Damages = Iterator[tuple[str, Damage]]

RECORDS = ("launch.json", "end.json", "ranks/00000.steps.csv", "ranks/00001.steps.csv", "ranks/00001.buckets.csv")
EVIL = "<script>window.ran=1</script>\nr9 of all: fine\x1b[2J';--*"
JSON_TEXTS = {
    "deep": "[" * 100_000 + "]" * 100_000,
    "open": '{"a":' * 50_000,
    "nested": '{"schema": ' + "[" * 400 + "]" * 400 + "}",
    "NaN": '{"schema": NaN}',
    "infinite": '{"schema": 1e999}',
    "list": "[]",
    "null": "null",
    "long number": "1" * 5000,
    "long text": '"' + "x" * 10**6,
}
VALUES: dict[str, dict[str, list[Any]]] = {
    "launch.json": {
        "schema": [2, 0, "1", None, 10**30, [1], EVIL],
        "point": ["0123456789ab", EVIL, 7, None, {}],
        "ranks": [0, -1, 1, 3, 10**15, 10**30, "2", 2.5, True, [2]],
        "gpus": ["V100", [None], [["V100"]], {"a": 1}, 4, None],
        "env_id": [None, 3, ["env"], {}],
        "hosts": ["r000", [0], {}],
        "profile": [[], "p", {"node_types": [1]}, {"node_types": {"v100": 3}}, {"default_node_type": []}],
        "cpus_of_ranks": [8, ["8"], [-1], [None], [10**19]],
        "bindings": ["0-7", [7], [{"cpus": 3}], [{"cpus": "0", "gpu_socket": -1}], [{"cpus": "0", "sockets": ["a"]}]],
        "ranks_per_node": [0, "2", -4],
        "data": ["x", {"samples": "many"}, {"samples": -1}, {"samples": 1e300}],
        "versions": [[], {"torch": {"a": []}}, "2.7"],
        "started_unix_ns": ["now", -1, 10**20],
    },
    "end.json": {
        "gates": [None, {}, [], "passed", [1], [{}], [{"name": "g", "passed": "no", "evidence": ""}], [{"name": 1}]],
        "ranks": [None, {}, [], [1], [{"rank": 0}], [{"rank": []}], 2],
        "global_batch": [0, -64, 65, "64", float("inf"), 10**30, None, [64], True],
        "protocol": [[], "p", {"steady_from_step": "1"}, {"steady_from_step": -1}, {"steady_from_step": 10**9}],
        "telemetry": [[], {"nodes": {}}, {"nodes": [1]}, {"nodes": [{"host": []}]}, {"energy_j_per_1000_samples": "1"}],
        "evaluation": [[], {"samples": "10"}, {"correct": -1}, {"samples": 9, "correct": 10, "loss": 0.1}, {"loss": -0.5}],
        "loss_first": ["low", [], {}, True],
        "flops_per_sample": ["many", -1, 10**30, 1.5],
        "comm_check": [[], {"sentence": 1}, {"closes": "yes"}],
        "history": ["x", {}, [1], *([{"attempt": name, "first_step": 0, "steps": 10**15}] for name in ("9.9", "..", EVIL))],
    },
}
"""File -> key -> values that no run has."""

OF_RANK: dict[str, list[Any]] = {
    "rows": [-1, 0, 10**15, 10**30, "6", None, True, 5, 7],
    "crc32": [0, -1, "x", None, 2**40],
    "clock": [[], {"start": 1}, {"start": {"unix_ns": 1}}, {"end": {"unix_ns": "a", "offset_ns": 0, "error_ns": 0}}],
    "peak_memory_bytes": [7, {"allocated": "all"}, {"allocated": -1}],
    "rank": [None, "0", 1, 10**12],
    "bucket_rows": ["1", -1, 10**15],
}
"""The same for what end.json says of rank 0."""

TOTALS = (b"0", b"-8000000", b"1" + b"0" * 15, b"1" * 30, b"x", b"nan", b"1e400", b'"a\nb"', b"'; DROP", b"\xff\xfe", b"\0", b"")
"""In place of every rank's totals, under a checksum that holds."""

TOTAL = STEP_COLUMNS.index("total_ns")

ODD_NAMES = ("100.²", "1²0.0", "٣.٣", f"{EVIL.replace('/', '|')}.0", "*.*", "[!x].0", "a'b\".0", "..0", "\udce9.0", "r1.csv")
"""Of an attempt."""

POINT_CHANGES: dict[str, dict[str, Any]] = {
    "nodes": {"nodes": 10**30},
    "product": {"nodes": 2**40, "batch_per_gpu": 2**40},
    "steps": {"steps": 2**70},
}


class Pickled:
    """Unpickling this leaves a file."""

    def __init__(self, ran: Path) -> None:
        self.ran = ran

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.ran / "pickle",))


def of_runs(ran: Path) -> Damages:
    """Of an attempt; a planted pickle would leave a file in `ran`."""
    for name in RECORDS:
        yield from _of_file(name, ran)
    for name in ("launch.json", "end.json"):
        yield from _of_json(name)
    for name, keys in VALUES.items():
        for key, values in keys.items():
            for value in values:
                yield f"{name}: {key} is {value!r:.30}", partial(change, name, key, value)
            if None in values:
                yield f"{name} lacks {key}", partial(leave_out, name, key)
    for key, values in OF_RANK.items():
        for value in values:
            yield f"rank 0: {key} is {value!r:.30}", partial(change_rank, key, value)
    for cell in TOTALS:
        yield f"totals {cell[:10]!r}", partial(rewrite_totals, cell)
    for odd in ODD_NAMES:
        yield f"attempt {odd!r}", partial(rename, odd)
    yield "a rank is missing", partial(change, "end.json", "ranks", [])
    yield "ranks/ is missing", partial(instead, "ranks", leave)
    yield "ranks/ is a loop", partial(instead, "ranks", link_to_itself)
    yield "ranks/ is a file", partial(instead, "ranks", Path.touch)
    yield "the folder is empty", partial(instead, ".", Path.mkdir)


def of_points() -> Damages:
    """Of a point's folder; its run is whole."""
    yield from _of_file("point.json", Path("/"))
    yield from _of_json("point.json")
    for name, text in (("no point", "{}"), ("text", '{"point": "x"}'), ("unknown", '{"point": {"evil": 1}}')):
        yield f"point.json is {name}", partial(overwrite, "point.json", text.encode())
    for name, changes in POINT_CHANGES.items():
        yield f"point.json: {name} is huge", partial(_huge, changes)
    yield "odd name", move


def of_studies() -> Damages:
    """Of study.json."""
    yield from _of_file("study.json", Path("/"))
    yield from _of_json("study.json")
    points: list[Any] = [None, {}, [1], [{"label": 1}], [{"repeat": 1}]]
    points += [[{"label": label}] for label in ("..", "/etc", "a/b", "a\0b", "")]
    points += [[{"label": "n01", "repeat": repeat}] for repeat in ("x", 10**12, -3)]
    values: dict[str, list[Any]] = {
        "repeat": [0, -1, 10**15, 10**30, "2", None, True],
        "points": points,
        "sweep": [1, [], {"hold": "breath"}, {"hold": []}],
        "name": [["x"]],
    }
    for key, value in ((key, value) for key, these in values.items() for value in these):
        yield f"{key} is {value!r:.40}", partial(change, "study.json", key, value)


def _of_file(name: str, ran: Path) -> Damages:
    yield f"{name} truncated", partial(truncate, name)
    yield f"{name} with flipped bits", partial(flip, name)
    yield f"{name} random", lambda draw, folder: overwrite(name, draw.randbytes(draw.randrange(1, 4000)), draw, folder)
    yield f"{name} a pickle", partial(overwrite, name, pickle.dumps(Pickled(ran)))
    yield f"{name} zeros", lambda draw, folder: overwrite(name, bytes((folder / name).stat().st_size), draw, folder)
    for make in (leave, Path.touch, Path.mkdir, os.mkfifo, link_to_itself, link_to_nothing, link_to_zeros, listen, grow):
        if (name, make) != ("study.json", leave):  # jobs submitted by hand have none
            yield f"{name}: {make.__name__}", partial(instead, name, make)


def _of_json(name: str) -> Damages:
    for kind, text in JSON_TEXTS.items():
        yield f"{name} {kind}", partial(overwrite, name, text.encode())


def truncate(name: str, draw: Random, folder: Path) -> None:
    """A JSON file keeps neither its end nor all before its last newline."""
    file = folder / name
    os.truncate(file, draw.randrange(file.stat().st_size - 1))


def flip(name: str, draw: Random, folder: Path) -> None:
    """A few bytes that are no ASCII any more."""
    data = bytearray((folder / name).read_bytes())
    for place in draw.sample(range(len(data)), 3):
        data[place] |= 0x80
    (folder / name).write_bytes(data)


def overwrite(name: str, data: bytes, draw: Random, folder: Path) -> None:
    (folder / name).write_bytes(data)


def instead(name: str, make: Callable[[Path], object], draw: Random, folder: Path) -> None:
    """Something else in the place of a file or folder."""
    path = folder / name
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    make(path)


def move(draw: Random, folder: Path) -> None:
    folder.rename(folder.with_name(EVIL.replace("/", "|")))


def leave(path: Path) -> None:
    """Nothing."""


def link_to_itself(path: Path) -> None:
    path.symlink_to(path.name)


def link_to_nothing(path: Path) -> None:
    path.symlink_to("nothing")


def link_to_zeros(path: Path) -> None:
    """Reading it never ends."""
    path.symlink_to("/dev/zero")


def listen(path: Path) -> None:
    """A socket. Its address may have 107 bytes: it is made from where its name alone is the path."""
    with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)


def grow(path: Path) -> None:
    """1 TB of zeros that take no room."""
    path.touch()
    os.truncate(path, 1 << 40)


def change(name: str, key: str, value: Any, draw: Random, folder: Path) -> None:
    _rewrite(folder / name, lambda plain: {**plain, key: value})


def leave_out(name: str, key: str, draw: Random, folder: Path) -> None:
    _rewrite(folder / name, lambda plain: {each: value for each, value in plain.items() if each != key})


def change_rank(key: str, value: Any, draw: Random, folder: Path) -> None:
    _rewrite(folder / "end.json", lambda end: {**end, "ranks": [{**end["ranks"][0], key: value}, *end["ranks"][1:]]})


def rewrite_totals(cell: bytes, draw: Random, folder: Path) -> None:
    """In every rank's rows."""
    _rewrite_rows(folder, lambda rank, row, line: _with_total(line, cell))


def quote_totals(folder: Path) -> None:
    """In every rank's rows, as a spreadsheet may write them."""
    _rewrite_rows(folder, lambda rank, row, line: _with_total(line, b'"' + line.split(b",")[TOTAL] + b'"'))


def empty_total(folder: Path, rank: int, row: int) -> None:
    """One rank's, of one row."""
    _rewrite_rows(folder, lambda *at: _with_total(at[2], b"") if at[:2] == (rank, row) else at[2])


def _with_total(line: bytes, cell: bytes) -> bytes:
    cells = line.split(b",")
    return b",".join([*cells[:TOTAL], cell, *cells[TOTAL + 1 :]])


def _rewrite_rows(folder: Path, changed: Callable[[int, int, bytes], bytes]) -> None:
    """Each rank's step rows, with the checksum that follows."""
    end = json.loads((folder / "end.json").read_text())
    for entry in end["ranks"]:
        file = folder / f"ranks/{entry['rank']:05d}.steps.csv"
        head, *lines = file.read_bytes().splitlines()
        data = b"\n".join([head, *(changed(entry["rank"], row, line) for row, line in enumerate(lines)), b""])
        file.write_bytes(data)
        entry["crc32"] = zlib.crc32(data)
    (folder / "end.json").write_text(json.dumps(end))


def rename(name: str, draw: Random, folder: Path) -> None:
    """An attempt that is not whole under a name that no job has."""
    truncate("launch.json", draw, folder)
    folder.rename(folder.with_name(name))


def _huge(changes: dict[str, Any], draw: Random, folder: Path) -> None:
    """The folder's name agrees."""
    huge = point(**{"nodes": 1, "gpus": 2, **changes})
    (folder / "point.json").write_text(json.dumps({"schema": 1, "id": huge.id, "point": point_to_dict(huge)}))
    folder.rename(folder.with_name(huge.label))


def _rewrite(file: Path, changed: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    file.write_text(json.dumps(changed(json.loads(file.read_text()))))


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
    return write_measured(folder, {each: [30 + each.ranks, 31 + each.ranks] for each in POINTS})


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
    return [row for row in csv.DictReader((report / "runs.csv").read_text().splitlines()) if row["label"] in labels]


def steady_steps(report: Path, label: str) -> int:
    """Of the point's one run."""
    (found,) = (row for row in csv.DictReader((report / "runs.csv").read_text().splitlines()) if row["label"] == label)
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
    for name in ("a", "b"):
        sound_study(place / "runs" / name)
    (place / "runs/a/study.json").write_text("{")
    done = CliRunner().invoke(main, ["analyze", str(place / "runs"), "-o", str(place / "out")])
    assert done.exit_code == FAILED
    assert "a/study.json is damaged" in done.stdout
    assert "6 of 6 runs pass" in done.stdout
