"""What is kept of a study: taken as long as nothing has changed, otherwise as if it were not there."""

from __future__ import annotations

import os
import re
import shutil
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import hpcddp
from hpcddp.analysis import How, analyze
from hpcddp.analysis.report import pipeline
from hpcddp.analysis.study import load
from hpcddp.analysis.study.load import Loaded, StudyRecords, load_study
from hpcddp.analysis.util import cache
from hpcddp.analysis.util.cache import from_plain, to_plain
from hpcddp.analysis.util.parallel import map_in_parallel, run_jobs
from hpcddp.core.records import steps_file
from hpcddp.core.run_root import Study
from tests.analysis.synthetic import MS, Bucket, Recorded, point, write_run, write_runs, write_study

POINT = point(1, 2)
BUCKETS = [
    Bucket(size_bytes=4_000_000, ready_ns=3 * MS, done_ns=5 * MS),
    Bucket(size_bytes=1_000, ready_ns=4 * MS, done_ns=6 * MS),
]
SHARES = {"forward": 0.25, "backward": 0.5, "comm_exposed": 0.125, "optimizer": 1 / 16}


@pytest.fixture
def study(tmp_path: Path) -> Study:
    """One point of two ranks with one run."""
    study = write_study(tmp_path / "s", [POINT])
    write(study, 1)
    return study


def write(study: Study, run: int, step_ns: int = 8 * MS) -> Path:
    recorded = Recorded(
        step_ns=lambda rank, step: step_ns + 1000 * rank + step, steps=40, buckets=BUCKETS, shares=SHARES, job=str(100 + run)
    )
    return write_run(study, POINT, recorded, run)


def times(study: Study) -> list[float | None]:
    return [run.step_ns for run in load_study(study).runs]


def change_at_same_time(file: Path) -> None:
    """Other bytes, the same size and time."""
    before = file.stat()
    file.write_bytes(file.read_bytes().replace(b"8", b"9"))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def results(records: StudyRecords) -> object:
    return to_plain(records.runs), records.warnings


def cache_files(study: Study) -> list[Path]:
    return sorted((study.folder / ".analysis").iterdir())


def test_a_run_is_the_same_from_records_and_from_what_is_kept(study: Study) -> None:
    with steps_file(study.attempt_dir(POINT.label, 1, "101", 0), 0).open("ab") as file:
        file.write(b"41,0,17")
    first, second = load_study(study), load_study(study)
    assert first.warnings
    assert second.warnings == first.warnings
    assert results(second) == results(first)
    for one, other in zip(first.runs, second.runs, strict=True):
        assert one.exchange is not None
        assert other.exchange is not None
        for name in ("ranks", "buckets"):
            assert getattr(one.exchange, name).dtypes.tolist() == getattr(other.exchange, name).dtypes.tolist()
            assert getattr(one.exchange, name).equals(getattr(other.exchange, name))
        assert one.point == other.point


def test_a_new_run_is_all_that_is_read(study: Study) -> None:
    """What nobody could see to have changed in the old one is not read again."""
    first = times(study)
    change_at_same_time(steps_file(study.attempt_dir(POINT.label, 1, "101", 0), 0))
    write(study, 2, 4 * MS)
    assert times(study)[0] == first[0]
    assert times(study)[1] is not None


def test_what_is_kept_is_not_given_to_who_reads(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process would be sent it only to send it back."""
    given: list[object] = []

    def recording(work: Any, of: Any, processes: bool, meanwhile: Any) -> Any:
        given[:] = of
        return map_in_parallel(work, of, processes, meanwhile)

    monkeypatch.setattr(load, "map_in_parallel", recording)
    times(study)
    write(study, 2)
    assert len(times(study)) == 2
    assert given == [(POINT.label, 2)]


def test_a_file_of_another_time_is_read_again(study: Study) -> None:
    times(study)
    file = steps_file(study.attempt_dir(POINT.label, 1, "101", 0), 0)
    change_at_same_time(file)
    os.utime(file, ns=(0, 0))
    assert "does not match its checksum" in str(load_study(study).runs[0].reason)


def test_other_code_reads_again(study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = Path(hpcddp.__file__).parent
    shutil.copytree(package / "analysis", tmp_path / "hpcddp/analysis", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(hpcddp, "__file__", str(tmp_path / "hpcddp/__init__.py"))
    monkeypatch.setattr(cache, "code_key", cache.code_key.__wrapped__)
    first = times(study)
    change_at_same_time(steps_file(study.attempt_dir(POINT.label, 1, "101", 0), 0))
    (tmp_path / "hpcddp/analysis/records/.checkpoints").mkdir()
    assert times(study) == first
    with (tmp_path / "hpcddp/analysis/records/steps.py").open("a") as file:
        file.write(" ")
    assert "does not match its checksum" in str(load_study(study).runs[0].reason)


def other(was: bytes) -> Callable[[bytes], bytes]:
    """Another value, name or type, under the right key."""
    return lambda data: data.replace(was, was[:-2] + b'x"' if was.endswith(b'"') else was.replace(b'"', b'"x', 1), 1)


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "torn": lambda _: b"{",
    "null": lambda _: b"null",
    "list": lambda _: b"[1]",
    "key": lambda _: b'{"key": 1}',
    "pickle": lambda _: b"\x80\x04K\x01.",
    "bytes": lambda _: b"\xff" * 64,
    "deep": lambda _: b"[" * 100_000,
    **{str(was): other(was) for was in (b'"state":"counts"', b'"step_ns":', b'"dtype":"int64"', b'"rhythm":', b'[{"label"')},
    "number beyond all": lambda data: re.sub(
        rb'("dtype":"int64","shape":\[\d+\],"values":\[)\d+', rb"\g<1>" + b"9" * 30, data, count=1
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_damaged_is_as_if_it_were_not_there(study: Study, damage: str) -> None:
    first = results(load_study(study))
    (file,) = cache_files(study)
    complete = file.read_bytes()
    damaged = DAMAGES[damage](complete)
    assert damaged != complete
    file.write_bytes(damaged)
    assert results(load_study(study)) == first
    assert file.read_bytes() == complete


def test_a_link_among_the_records_is_followed_each_time(study: Study, tmp_path: Path) -> None:
    """It may lead to other bytes without having changed."""
    file = steps_file(study.attempt_dir(POINT.label, 1, "101", 0), 0)
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    times(study)
    change_at_same_time(tmp_path / "elsewhere")
    assert "does not match its checksum" in str(load_study(study).runs[0].reason)


def test_what_cannot_be_kept_beside_the_study_is_kept_in_the_users_cache(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nowhere where nothing can be written: it is read each time."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (study.folder / ".analysis").write_text("a file")
    first = times(study)
    change_at_same_time(steps_file(study.attempt_dir(POINT.label, 1, "101", 0), 0))
    assert times(study) == first
    assert list((tmp_path / "cache" / "hpcddp" / "analysis").glob("*/*.json"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    (tmp_path / "other").write_text("a file")
    assert "does not match its checksum" in str(load_study(study).runs[0].reason)


@pytest.mark.dear
@pytest.mark.parametrize(("out", "report"), [(None, "report"), (".", "s"), ("here", "here/s")])
def test_a_second_analysis_says_the_same_and_draws_nothing(study: Study, out: str | None, report: str) -> None:
    where = None if out is None else study.folder / out
    (first,) = analyze(study.folder, where)
    files = {file: file.stat() for file in (study.folder / report).rglob("*")}
    assert analyze(study.folder, where) == [first]
    assert files
    assert {file: file.stat().st_mtime_ns for file in files} == {file: found.st_mtime_ns for file, found in files.items()}


@pytest.mark.dear
@pytest.mark.parametrize("change", ["run", "figure", "overlay"])
def test_the_report_is_written_again_when_it_would_be_another_one(study: Study, change: str) -> None:
    (first,) = analyze(study.folder)
    page = study.folder / "report" / "index.html"
    figure = min((study.folder / "report" / "figures").iterdir())
    written = page.stat().st_mtime_ns
    if change == "run":
        write(study, 2)
    if change == "figure":
        figure.unlink()
    (second,) = analyze(study.folder, how=How(overlay=("marconi100",) if change == "overlay" else ()))
    assert page.stat().st_mtime_ns > written
    assert figure.exists()
    assert (second.plain["runs"] != first.plain["runs"]) == (change == "run")


def test_only_what_is_kept_can_be_made_of_a_file() -> None:
    with pytest.raises(ValueError, match="is not what was cached"):
        from_plain(Loaded, [{"label": "x"}, []])
    with pytest.raises(TypeError):
        to_plain(object())


@pytest.mark.parametrize("processes", [True, False])
def test_results_are_in_the_order_of_what_was_given(processes: bool) -> None:
    """Of a function that could not be sent to a process; an error is that of the work."""
    offset = 7
    assert map_in_parallel(lambda number: number + offset, range(20), processes) == list(range(7, 27))
    with pytest.raises(ZeroDivisionError, match="by zero"):
        map_in_parallel(lambda number: 1 // number, [1, 0], processes)


def test_where_a_process_is_killed_the_work_is_done_here() -> None:
    """As by Slurm, for its memory."""
    here = os.getpid()
    assert map_in_parallel(lambda number: number if os.getpid() == here else os._exit(9), [1, 2, 3], True) == [1, 2, 3]


def test_there_are_processes() -> None:
    others = set(map_in_parallel(lambda _: os.getpid(), range(10), True))
    assert len(others) <= 2
    assert os.getpid() not in others


@pytest.mark.parametrize("processes", [True, False])
def test_jobs_are_done_in_processes_or_here(processes: bool) -> None:
    """What they make is in their order; threads would change what they share, as matplotlib's settings."""
    jobs = [lambda place=place: (place, os.getpid(), threading.current_thread() is threading.main_thread()) for place in range(5)]
    places, owners, in_main = zip(*run_jobs(jobs, processes), strict=True)
    assert list(places) == list(range(5))
    assert (os.getpid() in owners) is not processes
    assert all(in_main)


def test_what_is_to_be_done_meanwhile_is_done_here() -> None:
    done: list[int] = []
    map_in_parallel(str, range(3), True, lambda: done.append(os.getpid()))
    map_in_parallel(str, range(3), False, lambda: done.append(0))
    assert done == [os.getpid()]


@pytest.mark.dear
def test_a_report_is_the_same_whether_processes_make_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the last byte: they do where much is to be read."""
    points = [point(nodes, 2) for nodes in (1, 2)]
    study = write_study(tmp_path / "s", points)
    for each_point in points:
        write_runs(study, each_point, [8 * MS])
    forked: list[bool] = []

    def recording(jobs: Sequence[Callable[[], Any]], processes: bool) -> list[Any]:
        forked.append(processes)
        return run_jobs(jobs, processes)

    monkeypatch.setattr(pipeline, "run_jobs", recording)
    for much in (False, True):
        monkeypatch.setattr(load, "is_large", lambda files, size, much=much: much)
        analyze(study.folder, tmp_path / str(much))
    assert forked == [False, True]
    apart, here = (
        {file.relative_to(folder): file.read_bytes() for file in (folder / "s").rglob("*") if file.is_file()}
        for folder in (tmp_path / "True", tmp_path / "False")
    )
    assert apart == here
    assert Path("s/figures/scaling.pdf") in apart
