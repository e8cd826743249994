"""`hpcddp bundle`, and what other commands make of its file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands.conftest import Run
from tests.given_study import write_given


def test_a_study_goes_into_one_file(run: Run, tmp_path: Path) -> None:
    """STUDY.tar.gz here; what is in it on stdout, what is not on stderr."""
    write_given(tmp_path / "scaling")
    result = run("bundle", "scaling")
    assert (result.exit_code, (tmp_path / "scaling.tar.gz").is_file()) == (0, True)
    assert result.stdout.startswith("scaling.tar.gz: ")
    assert "33 files (1 logs, 12 nodes, 18 records, 2 scripts)" in result.stdout
    assert result.stderr.splitlines() == [
        "! left out: 3 files that a study is analyzed without "
        "(1 links, 1 submitit's pickles, 1 the snapshot of the code that ran)",
        "! left out: 1 file, files that hpcddp did not write: notes.txt",
    ]


def test_a_normal_study_gets_one_remark(run: Run, tmp_path: Path) -> None:
    """All that is left out by rule in one line; pseudonymised, too."""
    (write_given(tmp_path / "scaling").folder / "notes.txt").unlink()
    for more in ([], ["--pseudonymise", "-o", "p.tar.gz"]):
        assert run("bundle", "scaling", *more).stderr.count("!") == 1


@pytest.mark.dear
def test_a_bundle_is_analyzed_as_a_study(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Same text but for the report's place, which is the cache or -o; the same exit code."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_given(tmp_path / "scaling")
    run("bundle", "scaling", "--pseudonymise")
    there, here = run("analyze", "scaling.tar.gz"), run("analyze", "scaling")
    assert (there.exit_code, here.exit_code) == (3, 3)
    assert there.stdout.splitlines()[:4] == here.stdout.splitlines()[:4]
    (report,) = (tmp_path / "cache/hpcddp/reports").glob("scaling.tar.gz-*/scaling/report.json")
    assert str(report.parent) in there.stdout
    assert run("analyze", "scaling.tar.gz", "-o", "out").exit_code == 3
    assert (tmp_path / "out/scaling/report.json").read_bytes() == report.read_bytes()


def test_a_bundle_compares_with_its_study(run: Run, tmp_path: Path) -> None:
    """Nothing is slower than itself."""
    write_given(tmp_path / "scaling")
    run("bundle", "scaling")
    result = run("compare", "scaling.tar.gz", "scaling")
    assert (result.exit_code, "B trains 1.000 times as fast as A" in result.stdout) == (0, True)


def test_a_file_that_is_there_is_not_replaced(run: Run, tmp_path: Path) -> None:
    """Exit code 2; --force replaces it."""
    write_given(tmp_path / "scaling")
    (tmp_path / "scaling.tar.gz").touch()
    assert run("bundle", "scaling").exit_code == 2
    assert run("bundle", "scaling", "--force").exit_code == 0


@pytest.mark.parametrize("command", ["analyze", "compare"])
def test_another_file_is_a_mistake(run: Run, tmp_path: Path, command: str) -> None:
    """Exit code 2, with the file's name."""
    (tmp_path / "notes.txt").write_text("hello")
    result = run(command, *["notes.txt"] * (2 if command == "compare" else 1))
    assert (result.exit_code, "notes.txt: not a bundle" in result.stderr) == (2, True)


def test_a_file_name_is_inert_in_a_remark(run: Run, tmp_path: Path) -> None:
    """Of a file that somebody left in the study: nothing of it turns the terminal's text around."""
    (write_given(tmp_path / "scaling").folder / "notes.txt").rename(tmp_path / "scaling/a\u202ecod.exe")
    stderr = run("bundle", "scaling").stderr
    assert ("\u202e" in stderr, "a\\u202ecod.exe" in stderr) == (False, True)
