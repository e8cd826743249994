"""Whatever a run or a file of the report raises costs that one; it is named with where to report it, and the rest stands."""

from __future__ import annotations

import json
import os
import pwd
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from hpcddp.analysis import StudyResult, analyze
from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.study import comm_bench, readings
from hpcddp.analysis.verdicts import findings, notes, sentence
from hpcddp.analysis.verdicts.verdicts import ALL
from hpcddp.cli import main
from hpcddp.core.errors import INCOMPLETE, UsageError
from hpcddp.core.run_root import Study
from tests.analysis.synthetic import MS, Recorded, point, write_measured, write_run
from tests.machine import fill, small_disk

POINTS = (point(1, 1), point(1, 2), point(2, 2))
BROKEN = POINTS[1].label


def complete_study(folder: Path) -> Study:
    return write_measured(folder, POINTS, [30, 31])


def one(root: Path, out: Path | None = None) -> StudyResult:
    (result,) = analyze(root, out)
    return result


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["analyze", *arguments], env={"COLUMNS": "200"})


def plant(monkeypatch: pytest.MonkeyPatch, where: str, error: BaseException, only: Any = lambda *_: True) -> None:
    """The function raises where `only` holds for its arguments."""
    module, _, name = where.rpartition(".")
    right = getattr(__import__(module, fromlist=[name]), name)

    def wrong(*arguments: Any, **named: Any) -> Any:
        if only(*arguments):
            raise error
        return right(*arguments, **named)

    monkeypatch.setattr(where, wrong)


def is_broken(attempts: Sequence[Path], blank: Run, *_: Any) -> bool:
    return (blank.label, blank.run) == (BROKEN, 2)


@pytest.mark.dear
@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("large", [False, True])
def test_a_run_whose_reading_raises_is_rejected_and_the_rest_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    complete_study(tmp_path / "s")
    monkeypatch.setattr("hpcddp.analysis.study.load.is_large", lambda *_: large)
    with monkeypatch.context() as patched:
        plant(patched, "hpcddp.analysis.study.load.load_run", ZeroDivisionError("by zero\nnow"), is_broken)
        done = invoke(str(tmp_path / "s"))
    (report,) = [json.loads((tmp_path / "s/report/report.json").read_text())]
    assert (done.exit_code, report["runs"]) == (INCOMPLETE, {"done": 6, "pass": 5, "expected": 6})
    assert [each["n"] for each in report["points"]] == [2, 1, 2]
    (failure,) = report["failures"]
    assert failure["of"] == f"r2 of {BROKEN}"
    assert "ZeroDivisionError: by zero now (hpcddp/analysis/study/load.py:" in failure["reason"]
    assert "please report this line" in " ".join(done.stdout.split())
    assert invoke(str(tmp_path / "s")).exit_code == 0


@pytest.mark.dear
@pytest.mark.parametrize(("figure", "large"), [("scaling", False), ("breakdown", True)])
def test_a_figure_that_raises_costs_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, figure: str, large: bool) -> None:
    """The other figures, the page, the tables and what the terminal says are as before; nothing links to it."""
    complete_study(tmp_path / "s")
    monkeypatch.setattr("hpcddp.analysis.study.load.is_large", lambda *_: large)
    before, out = one(tmp_path / "s", tmp_path / "before"), tmp_path / "out/s"
    plant(monkeypatch, f"hpcddp.analysis.figures.figures.{figure}_figure", RuntimeError("planted"))
    done = invoke(str(tmp_path / "s"), "-o", str(tmp_path / "out"))
    names = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    assert done.exit_code == INCOMPLETE
    assert f"failed: figures/{figure}: RuntimeError: planted" in done.stdout
    assert "gates     6 of 6 runs pass" in done.stdout
    assert names == {name for name in [*before.plain["files"], "report.json"] if not name.startswith(f"figures/{figure}.")}
    assert f"figures/{figure}.png" not in (out / "report.md").read_text()
    assert json.loads((out / "report.json").read_text())["points"] == before.plain["points"]
    page = (out / "index.html").read_text()
    assert ("Throughput, samples/s" in page, "Where the step goes, by" in page) == (figure != "scaling", figure != "breakdown")
    assert "Where the step goes" in page


PARTS = {
    "verdicts.findings.fit_study": ("laws of scaling",),
    "verdicts.sentence.sentences": ("the sentences",),
    "verdicts.findings.detail_tables": ("figures of single runs",),
    "report.tables.breakdown": ("the table of the step's parts",),
    "report.write.effect_rows": ("effects.csv",),
    "report.write.csv_text": ("scaling.csv", "breakdown.csv", "runs.csv"),
    "report.provenance._gates": ("what stands behind the numbers",),
    "report.pipeline.report_markdown": ("report.md",),
    **dict.fromkeys(f"report.terminal.{name}" for name in ("verdict_rows", "verdict_lines", "facts_line", "leading_sentences")),
    **dict.fromkeys(
        f"report.terminal.{name}" for name in ("plain_effects", "_states", "terminal_forms", "any_read", "plain_rows")
    ),
}
"""Function -> how what it makes is called where it failed."""


@pytest.mark.dear
@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("part", PARTS)
def test_a_part_of_the_report_that_raises_costs_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    """Sentences, laws, tables on the terminal and in files, provenance: the numbers stand, and the files that are not of it."""
    complete_study(tmp_path / "s")
    plant(monkeypatch, f"hpcddp.analysis.{part}", RuntimeError("planted"))
    result, expected = one(tmp_path), PARTS[part] or ()
    assert (result.failed[: len(expected)], bool(result.failed), result.damaged) == (expected, True, False)
    assert [row["n"] for row in result.plain["points"]] == ([] if part.endswith("plain_rows") else [2, 2, 2])
    assert "failed: " in result.text
    assert {"index.html", "report.md", "scaling.csv"} - {*expected} <= set(result.plain["files"])


HOLDS = ("runs_frame", "scaling_frame", "typed_frame")
"""Tables without which nothing stands, and what makes a table of rows."""

ENDS = ("_frame", "notes", "sentences", "_tables", "axes", "fit_study", "implied", "trained", "_by_input", "decided", "_benches")
"""Of the names of what makes tables, notes and sentences."""


@pytest.mark.usefixtures("undrawn")
def test_all_parts_of_the_findings_may_raise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    complete_study(tmp_path / "s")
    named = [(module, name) for module in (findings, comm_bench, notes, readings, sentence) for name in vars(module)]
    parts = {
        name: module.__name__
        for module, name in named
        if name.endswith(ENDS) and name not in HOLDS and not name.startswith(("_", "no_")) and callable(getattr(module, name))
    }
    raised: list[str] = []

    def is_called(name: str, *_: Any) -> bool:
        raised.append(name)
        return True

    for name, module in parts.items():
        plant(monkeypatch, f"{module}.{name}", RuntimeError(name), partial(is_called, name))
    result = one(tmp_path)
    assert not result.damaged
    assert len(raised) > 25
    failed = [each["reason"].removeprefix("RuntimeError: ").partition(" ")[0] for each in result.plain["failures"]]
    assert failed == raised
    assert [row["n"] for row in result.plain["points"]] == [2, 2, 2]
    assert {"scaling.csv", "runs.csv", "report.md", "index.html"} <= set(result.plain["files"])


@pytest.mark.dear
@pytest.mark.usefixtures("undrawn")
def test_a_verdict_that_raises_costs_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    complete_study(tmp_path / "s")
    before = [each["name"] for each in one(tmp_path).plain["verdicts"]]

    def wrong(case: object) -> list[Any]:
        raise RuntimeError("planted")

    monkeypatch.setattr("hpcddp.analysis.verdicts.verdicts.ALL", {**ALL, "straggler": wrong})
    result = one(tmp_path, tmp_path / "out")
    assert (result.failed, [each["name"] for each in result.plain["verdicts"]]) == (("the verdict `straggler`",), before)
    assert before


@pytest.mark.usefixtures("undrawn")
def test_a_fault_in_all_of_one_study_leaves_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        complete_study(tmp_path / name)
    plant(monkeypatch, "hpcddp.analysis.report.pipeline.find", RuntimeError("planted"), lambda records, *_: records.name == "a")
    done = invoke(str(tmp_path))
    assert done.exit_code == 1
    assert "/a: RuntimeError: planted (" in done.stdout
    assert "gates     6 of 6 runs pass" in done.stdout


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("error", [MemoryError(), KeyboardInterrupt()], ids=lambda error: type(error).__name__)
def test_memory_and_interruptions_are_not_a_runs_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    complete_study(tmp_path / "s")
    plant(monkeypatch, "hpcddp.analysis.study.load.load_run", error, is_broken)
    with pytest.raises(type(error)):
        analyze(tmp_path)


NAME = "V\ud800 \x1b[31m \u202e001 \x9b31m"
"""Half a pair, an escape, what turns text around, and a control of C1."""


@pytest.mark.dear
def test_names_that_terminals_act_on_reach_no_file(tmp_path: Path) -> None:
    """A host and a GPU called so: every figure is drawn, and no text holds what they hold, be it page, Markdown, CSV or JSON."""
    study = complete_study(tmp_path / "s")
    odd = Recorded(step_ns=30 * MS, job="300", gpu=NAME, launch={"hosts": [NAME, "r001"]}, of_rank={"host": NAME}, reason=NAME)
    for each in POINTS:
        write_run(study, each, odd)
    gates = [{"name": "parameters agree", "passed": False, "evidence": f"on {NAME}"}]
    write_run(study, POINTS[0], Recorded(step_ns=30 * MS, job="400", gates=gates), 2)
    result, report = one(tmp_path), tmp_path / "s/report"
    assert result.failed == ()
    assert (report / "figures/scaling.svg").is_file()
    for file in (file for end in ("csv", "html", "md", "tex", "json", "svg") for file in report.rglob(f"*.{end}")):
        assert set(file.read_text(encoding="utf-8")).isdisjoint({"\x1b", "\u202e", "\x9b", "\ud800"}), file.name
    assert json.loads((report / "report.json").read_text()) == result.plain


@pytest.mark.dear
def test_a_full_disk_still_gives_the_tables(tmp_path: Path) -> None:
    with small_disk(tmp_path) as disk:
        study = complete_study(disk / "s")
        fill(disk)
        before = {path for path in disk.rglob("*") if path.is_file()}
        done = invoke(str(study.folder), "-o", str(disk / "out"))
        left = {path for path in disk.rglob("*") if path.is_file()} - before
    assert done.exit_code == INCOMPLETE
    assert "vs 1 GPU" in done.stdout
    assert "gates     6 of 6 runs pass" in done.stdout
    assert "failed: scaling.csv, breakdown.csv, runs.csv and " in done.stdout
    assert "No space left on device; make room, or name another folder with -o" in " ".join(done.stdout.split())
    assert left == set()


@pytest.mark.dear
@pytest.mark.parametrize("folder", ["report", ".analysis"])
@pytest.mark.usefixtures("undrawn")
def test_a_link_that_leads_out_of_the_study_is_not_written_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    study, elsewhere = complete_study(tmp_path / "runs/s"), tmp_path / "elsewhere"
    elsewhere.mkdir()
    (study.folder / folder).symlink_to(elsewhere)
    text = one(study.folder).text
    assert f"{folder} is a link that leads out of s, to {elsewhere}: nothing is written through it" in text
    assert list(elsewhere.iterdir()) == []
    (study.folder / folder).unlink()
    (study.folder / "mine").mkdir()
    (study.folder / folder).symlink_to("mine")
    assert "is a link" not in one(study.folder).text
    assert list((study.folder / "mine").iterdir())


@pytest.mark.usefixtures("undrawn")
def test_a_link_of_another_user_is_not_written_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    study = complete_study(tmp_path / "s")
    (study.folder / "mine").mkdir()
    (study.folder / "report").symlink_to("mine")
    os.lchown(study.folder / "report", pwd.getpwnam("nobody").pw_uid, -1)
    assert "report is a link that another user made: nothing is written through it" in one(study.folder).text
    assert list((study.folder / "mine").iterdir()) == []


@pytest.mark.usefixtures("undrawn")
def test_links_inside_a_report_are_replaced(tmp_path: Path) -> None:
    study, victim, pictures = complete_study(tmp_path / "s"), tmp_path / "victim", tmp_path / "pictures"
    (study.folder / "report").mkdir()
    pictures.mkdir()
    (pictures / "scaling.png").write_text("mine")
    victim.write_text("mine")
    for name in ("scaling.csv", "index.html", "report.json", f".scaling.csv.{os.getpid()}"):
        (study.folder / "report" / name).symlink_to(victim)
    (study.folder / "report/figures").symlink_to(pictures)
    assert one(tmp_path).failed == ()
    assert (victim.read_text(), (pictures / "scaling.png").read_text()) == ("mine", "mine")
    assert not (study.folder / "report/scaling.csv").is_symlink()
    assert not (study.folder / "report/figures").is_symlink()


@pytest.mark.dear
@pytest.mark.usefixtures("undrawn")
def test_a_named_folder_in_which_a_link_leads_out_is_refused(tmp_path: Path) -> None:
    """-o OUT with OUT/STUDY linked elsewhere; OUT itself may be the user's own link."""
    study, elsewhere = complete_study(tmp_path / "runs/s"), tmp_path / "elsewhere"
    for folder in (elsewhere, tmp_path / "real"):
        folder.mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "real")
    assert one(study.folder, tmp_path / "out").failed == ()
    (tmp_path / "planted").mkdir()
    (tmp_path / "planted/s").symlink_to(elsewhere)
    with pytest.raises(UsageError, match=r"planted/s is a link that leads out of planted.*-o"):
        analyze(study.folder, tmp_path / "planted")
    assert list(elsewhere.iterdir()) == []
