"""What is kept of a study: taken as long as nothing has changed, otherwise as if it were not there."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import hpcddp
from hpcddp.analysis import How, analyze
from hpcddp.analysis.study import load
from hpcddp.analysis.study.load import Loaded, StudyRecords, load_study
from hpcddp.analysis.util import cache
from hpcddp.analysis.util.codec import from_plain, to_plain
from hpcddp.analysis.util.parallel import map_in_parallel
from hpcddp.core.records import steps_file
from hpcddp.core.run_root import Study
from tests.analysis.synthetic import MS, Bucket, Recorded, point, write_run, write_study

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
    """To the last bit, its tables too, with what is odd about its records."""
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
    """And found not to match its checksum."""
    times(study)
    file = steps_file(study.attempt_dir(POINT.label, 1, "101", 0), 0)
    change_at_same_time(file)
    os.utime(file, ns=(0, 0))
    assert "does not match its checksum" in str(load_study(study).runs[0].reason)


def test_a_new_attempt_is_read(study: Study) -> None:
    """The newest that is done counts."""
    first = times(study)
    recorded = Recorded(step_ns=4 * MS, job="900")
    write_run(study, POINT, recorded)
    assert times(study) == [4 * MS]
    assert first != times(study)


def test_other_code_reads_again(study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A space more in a file of the package; a folder that some editor leaves in it is no code."""
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


@pytest.mark.parametrize(
    "damage",
    [b"", b"{", b"null", b"[1]", b'{"key": 1}', b"\x80\x04K\x01.", b"\xff" * 64, b"[" * 100_000],
    ids=["empty", "torn", "null", "list", "other", "pickle", "bytes", "deep"],
)
def test_what_is_damaged_is_as_if_it_were_not_there(study: Study, damage: bytes) -> None:
    """Read again, kept again."""
    first = results(load_study(study))
    (file,) = cache_files(study)
    complete = file.read_bytes()
    file.write_bytes(damage)
    assert results(load_study(study)) == first
    assert file.read_bytes() == complete


@pytest.mark.parametrize("was", [b'"state":"counts"', b'"step_ns":', b'"dtype":"int64"', b'"rhythm":', b'[{"label"'])
def test_what_is_not_a_run_is_not_taken_for_one(study: Study, was: bytes) -> None:
    """With the right key, but another value, name or type."""
    first = results(load_study(study))
    (file,) = cache_files(study)
    assert was in file.read_bytes()
    file.write_bytes(file.read_bytes().replace(was, was[:-2] + b'x"' if was.endswith(b'"') else was.replace(b'"', b'"x', 1), 1))
    assert results(load_study(study)) == first


def test_a_number_beyond_all_is_not_taken_for_one(study: Study) -> None:
    """In a table of whole numbers."""
    first = results(load_study(study))
    (file,) = cache_files(study)
    damaged, count = re.subn(r'("dtype":"int64","shape":\[\d+\],"values":\[)\d+', rf"\g<1>{'9' * 30}", file.read_text(), count=1)
    assert count == 1
    file.write_text(damaged)
    assert results(load_study(study)) == first


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
    """And taken from there."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (study.folder / ".analysis").write_text("a file")
    first = times(study)
    change_at_same_time(steps_file(study.attempt_dir(POINT.label, 1, "101", 0), 0))
    assert times(study) == first
    assert list((tmp_path / "cache" / "hpcddp" / "analysis").glob("*/*.json"))


def test_nothing_is_kept_where_nothing_can_be_written(study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read each time."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "cache").write_text("a file")
    (study.folder / ".analysis").write_text("a file")
    assert times(study) == times(study)


@pytest.mark.dear
@pytest.mark.parametrize(("out", "report"), [(None, "report"), (".", "s"), ("here", "here/s")])
def test_a_second_analysis_says_the_same_and_draws_nothing(study: Study, out: str | None, report: str) -> None:
    """The report's files stay those that were written, in the study too."""
    where = None if out is None else study.folder / out
    (first,) = analyze(study.folder, where)
    files = {file: file.stat() for file in (study.folder / report).rglob("*")}
    assert analyze(study.folder, where) == [first]
    assert files
    assert {file: file.stat().st_mtime_ns for file in files} == {file: found.st_mtime_ns for file, found in files.items()}


@pytest.mark.dear
@pytest.mark.parametrize("change", ["run", "figure", "overlay"])
def test_the_report_is_written_again_when_it_would_be_another_one(study: Study, change: str) -> None:
    """A new run, a lost figure, something else to draw."""
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
    """No type but those of a run; objects are never made of text."""
    with pytest.raises(ValueError, match="is not what was cached"):
        from_plain(Loaded, [{"label": "x"}, []])
    with pytest.raises(TypeError):
        to_plain(object())
