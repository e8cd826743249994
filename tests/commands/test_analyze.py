"""Commands that read records or tables: analyze, audit, compare, export, proposal."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pandas as pd
import pytest

from hpcddp.core.errors import DIFFERS, FAILED, USAGE
from tests.analysis.synthetic import MS, Recorded, point, write_marconi100, write_run, write_runs, write_study
from tests.commands.conftest import Run, files, refused


@pytest.fixture
def _undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures take longer than all else, and have tests of their own."""
    monkeypatch.setattr("hpcddp.analysis.figures.figures.study_drawings", lambda *_: ({}, []))


def shown(value: object) -> str:
    """A cell as CSV has it: unknown and empty are the same there."""
    return "" if pd.isna(value) else str(value)  # type: ignore[call-overload]


@pytest.mark.dear
@pytest.mark.usefixtures("_undrawn")
def test_every_table_is_there_with_its_types(run: Run, tmp_path: Path) -> None:
    write_marconi100(tmp_path / "m100")
    result = run("analyze", "m100", "--to", "csv,parquet")
    assert result.exit_code == 0, result.output
    report = tmp_path / "m100" / "report"
    names = {file.stem for file in report.glob("*.parquet")}
    assert names == {file.stem for file in report.glob("*.csv")} >= {"scaling", "breakdown", "runs"}
    assert {f"{name}.parquet" for name in names} <= set(json.loads((report / "report.json").read_text())["files"])
    for name in names:
        typed, text = pd.read_parquet(report / f"{name}.parquet"), pd.read_csv(report / f"{name}.csv")
        assert list(typed.columns) == list(text.columns)
        for column in text:
            if pd.api.types.is_numeric_dtype(typed[column].dtype) and not pd.api.types.is_bool_dtype(typed[column].dtype):
                found = typed[column].to_numpy(float, na_value=np.nan)
                np.testing.assert_allclose(found, text[column].to_numpy(float), rtol=1e-8, equal_nan=True)
            else:
                assert list(map(shown, typed[column])) == list(map(shown, text[column]))
    scaling = pd.read_parquet(report / "scaling.parquet")
    assert (str(scaling["nodes"].dtype), str(scaling["samples_per_s"].dtype)) == ("Int64", "Float64")
    assert run("analyze", "m100").exit_code == 0  # nothing of an earlier analysis is left
    assert (list(report.glob("*.parquet")), (report / "scaling.csv").is_file()) == ([], True)


def test_files_beside_the_page_are_asked_for(run: Run, tmp_path: Path) -> None:
    """And those of an earlier analysis that are not wanted now are gone."""
    write_marconi100(tmp_path / "m100")
    report = tmp_path / "m100" / "report"

    def suffixes(*options: str) -> dict[str, set[str]]:
        assert run("analyze", "m100", *options).exit_code == 0
        found = {name: {file.suffix for file in (report / name).iterdir() if file.is_file()} for name in (".", "figures")}
        assert {"index.html", "report.json", "scaling.csv"} <= {file.name for file in report.iterdir()}
        return found

    usual = {".": {".html", ".json", ".csv"}, "figures": {".svg", ".png"}}
    assert suffixes() == usual
    assert [file.name for file in report.glob("*.csv")] == ["scaling.csv"]
    assert suffixes("--to", "latex,pdf") == {".": usual["."] | {".tex"}, "figures": usual["figures"] | {".pdf"}}
    assert suffixes("--full") == {".": usual["."] | {".tex", ".md"}, "figures": usual["figures"] | {".pdf"}}
    assert len(list(report.glob("*.csv"))) > 3
    assert suffixes() == usual
    assert [file.name for file in report.glob("*.csv")] == ["scaling.csv"]


COLUMNS = "nodes,ranks,samples_per_s,efficiency,gpu_h_per_epoch"


@pytest.mark.usefixtures("_undrawn")
def test_columns_are_chosen_in_every_output(run: Run, tmp_path: Path) -> None:
    write_marconi100(tmp_path / "m100")
    report = tmp_path / "m100" / "report"
    done = run("analyze", "m100", "--to", "latex,markdown", "--columns", COLUMNS)
    assert done.stdout.splitlines()[2].split("  ")[1:] == ["nodes", "ranks", "samples/s", "vs 1 GPU: efficiency", "GPU h/epoch"]
    assert done.stdout.splitlines()[-5].split() == ["16", "64", "9,217", "39", "%", "2.47"]
    assert "\n| nodes | ranks | samples/s | vs 1 GPU: efficiency | GPU h/epoch |\n" in (report / "report.md").read_text()
    assert "\nnodes & ranks & samples/s & efficiency & GPU h/epoch \\\\\n" in (report / "scaling.tex").read_text()
    assert "GPU h/epoch" in (report / "index.html").read_text()
    full = run("analyze", "m100", "--full", "--columns", "samples_per_s_low,hook,gpu").stdout
    assert "\n  samples/s low   hook   GPU\n" in full


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--columns", "nodes,rank"], "scaling.csv has no column `rank`; did you mean `ranks`?"),
        (["--columns", "effciency"], "scaling.csv has no column `effciency`; did you mean `efficiency`?"),
        (["--to", "csv,latx"], "--to has no format `latx`; did you mean `latex`?"),
    ],
)
def test_what_is_not_there_is_refused_with_what_is_near(run: Run, tmp_path: Path, options: list[str], words: str) -> None:
    write_study(tmp_path / "s", [point(1, 1)])
    assert words in refused(run, "analyze", "s", *options)


def test_full_prints_every_table(run: Run, tmp_path: Path) -> None:
    """Of a recorded study, as recorded/full.txt has them; sentences, verdicts and notes are held where they are made."""
    recorded = Path(__file__).parents[1] / "analysis" / "recorded"
    done = run("analyze", recorded / "version-0.1.0.tar.gz", "--full", "-o", "out")
    blocks = done.stdout.split("\n\n")
    tables = [block for block in blocks if block.startswith("  ") and "VERDICT" not in block]
    assert "\n\n".join(tables) + "\n" == (recorded / "full.txt").read_text(encoding="utf-8")
    assert [len([block for block in blocks if block.startswith(word)]) for word in ("checks ", "note: ", "report: ")] == [1, 1, 1]
    assert done.stdout.count("  VERDICT  ") == len(json.loads((tmp_path / "out/earlier/report.json").read_text())["verdicts"])


def test_without_pyarrow_it_says_what_to_install(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for name in ("a", "b"):
        study = write_study(tmp_path / "runs" / name, [point(1, 1)])
        write_runs(study, point(1, 1), [MS])
    result = run("analyze", "runs", "--to", "parquet")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "pyarrow is not installed here: pip install 'hpcddp[parquet]'" in result.stderr
    assert list(tmp_path.rglob("report")) == []


@pytest.mark.usefixtures("_undrawn")
def test_text_does_nothing_to_a_terminal(run: Run, tmp_path: Path) -> None:
    study = write_study(tmp_path / "s", [point(1, 1)])
    write_runs(study, point(1, 1), [MS], gpu="V\x1b[2J100")
    run("analyze", "s", "--to", "parquet")
    texts = pd.read_parquet(tmp_path / "s" / "report" / "runs.parquet").to_string()
    assert "\x1b" not in texts
    assert r"\x1b[2J100" in texts


PUBLISHED = Path(__file__).parents[1] / "analysis" / "audits"


def test_findings_end_with_4_and_come_heaviest_first(run: Run) -> None:
    done = run("audit", PUBLISHED / "rcc-bigmnist.csv")
    assert done.exit_code == DIFFERS
    assert done.stdout.splitlines()[0].startswith("rcc-bigmnist.csv: 33 things in 54 rows do not add up. First:")
    assert done.stdout.index("gpu types pooled") < done.stdout.index("speedup wrong")
    assert "checked and holds: 5 speedup values" in done.stdout
    done = run("audit", PUBLISHED / "sagemaker.csv")
    assert (done.exit_code, done.stdout.splitlines()[0]) == (0, "sagemaker.csv: nothing wrong found in 3 rows.")


def test_findings_as_json(run: Run) -> None:
    plain = json.loads(run("audit", "--format", "json", PUBLISHED / "rcc-mnist.csv").stdout)
    assert plain["findings"] == [
        {
            "class": "steps_wrong",
            "weight": 2,
            "lines": [3],
            "claimed": "625",
            "follows": "469",
            "sentence": "60,000 samples in batches of 64 on 1x2 are 469 steps, not 625",
            "advice": "Compute steps per epoch as samples over the global batch, rounded up (down if the last is dropped).",
        }
    ]
    assert plain["holds"]["speedup values"] == 7


def test_several_tables_are_told_one_by_one(run: Run, tmp_path: Path) -> None:
    files = (PUBLISHED / "nyu-q1.csv", PUBLISHED / "nyu-q2-q3.csv")
    done = run("audit", *files)
    assert done.stdout.index("nyu-q1.csv: nothing") < done.stdout.index("nyu-q2-q3.csv: ")
    plain = json.loads(run("audit", "--format", "json", *files).stdout)
    assert [table["rows"] for table in plain["tables"]] == [4, 12]
    table = "| GPUs | img/s | speedup |\n|---|---|---|\n| 1 | 100 | 1.0 |\n| 4 | 380 | {} |\n"
    (tmp_path / "page.md").write_text(f"# One\n\n{table.format(3.8)}\ntext\n\n{table.format(3.2)}", encoding="utf-8")
    page = run("audit", "page.md")
    assert page.exit_code == DIFFERS
    assert "page.md:3: nothing wrong found" in page.stdout
    assert "page.md:10: 1 thing in 2 rows does not add up" in page.stdout


def test_cells_do_nothing_to_the_terminal(run: Run, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("nodes,gpu_type,\x1b[2Jcolour,time\n1,V\u202e / \x1b[31mA,red,9\n", encoding="utf-8")
    done = run("audit", "t.csv")
    assert r"V\u202e / \x1b[31mA is 31MA and V in one run" in " ".join(done.stdout.split())
    (tmp_path / "bad.csv").write_text("nodes,time\n1,\x1b[2Jlong\n", encoding="utf-8")
    refused = run("audit", "bad.csv")
    assert r"`\x1b[2Jlong` is not a time" in refused.stderr
    assert "\x1b" not in done.stdout + done.stderr + refused.stderr
    (tmp_path / "t.tsv").write_text("nodes\ttime\n1\tlong\n", encoding="utf-8")
    done = run("audit", "t.tsv")
    assert done.exit_code == USAGE
    assert done.stderr.startswith("t.tsv:2: time: `long` is not a time")


def studies(folder: Path, slower: float) -> None:
    """`old` and `new`, six runs each of two sizes; new takes `slower` times as long at two nodes."""
    for name, factor in (("old", 1.0), ("new", slower)):
        study = write_study(folder / name, [point(1, 1), point(2, 1)], repeat=6)
        for each in (point(1, 1), point(2, 1)):
            times = factor if each.layout.nodes > 1 else 1.0
            write_runs(study, each, [round((100 + run) * times * MS) for run in range(6)])


@pytest.mark.parametrize(("slower", "threshold", "code"), [(1.0, 5, 0), (1.2, 5, 4), (1.2, 30, 0), (0.5, 5, 0)])
def test_a_regression_ends_with_4(run: Run, tmp_path: Path, slower: float, threshold: int, code: int) -> None:
    studies(tmp_path, slower)
    result = run("compare", "old", "new", "--threshold", threshold)
    assert (result.exit_code, result.stderr) == (code, "")
    assert result.stdout.startswith("A  old (marconi100, 2023-11-14): old\nB  new (marconi100, 2023-11-14): new\nB trains ")


@pytest.mark.dear
def test_json_and_files_hold_the_same(run: Run, tmp_path: Path) -> None:
    studies(tmp_path, 1.2)
    before = files(tmp_path)
    result = run("compare", "old", "new", "--format", "json")
    assert files(tmp_path) == before
    run("compare", "old", "new", "-o", "out", "--junit", "ci.xml")
    assert json.loads((tmp_path / "out/compare.json").read_bytes()) == json.loads(result.stdout)
    assert sorted(file.suffix for file in (tmp_path / "out").glob("compare.*")) == [".json", ".pdf", ".png", ".svg"]
    assert ET.parse(tmp_path / "ci.xml").getroot().get("failures") == "1"


def test_a_point_without_runs_in_b_is_incomplete(run: Run, tmp_path: Path) -> None:
    studies(tmp_path, 1.0)
    study = write_study(tmp_path / "part", [point(1, 1), point(2, 1)], repeat=1)
    write_run(study, point(1, 1), Recorded(step_ns=102 * MS))
    result = run("compare", "old", "part")
    assert (result.exit_code, "only in A" in result.stdout) == (3, True)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["old", "nowhere"], "'nowhere' does not exist"),
        (["old", "config"], "config contains no study"),
        (["old", "."], ". contains 2 studies (new, old); give one of them"),
        (["old", "new", "--threshold", "-1"], "-1"),
        (["old"], "give two studies, or one study with --by KEY"),
        (["old", "new", "--by", "workload.model"], "give two studies, or one study with --by KEY"),
        (["old", "--by", "workload.model"], "old: no points differ in `workload.model` alone"),
    ],
)
def test_what_cannot_be_compared_is_a_mistake(run: Run, tmp_path: Path, arguments: list[str], says: str) -> None:
    studies(tmp_path, 1.0)
    (tmp_path / "config").mkdir()
    assert says in refused(run, "compare", *arguments)


def test_a_figure_of_both_that_raises_costs_itself(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*_: object) -> None:
        raise RuntimeError("planted")

    for name in ("a", "b"):
        write_runs(write_study(tmp_path / name, [point(1, 1)]), point(1, 1), [MS])
    monkeypatch.setattr("hpcddp.analysis.comparison.figure.compare_figure", wrong)
    result = run("compare", "a", "b", "-o", "out")
    assert (result.exit_code, "B trains 1.000 times as fast as A" in result.stdout) == (3, True)
    assert "failed: out/compare.png, .svg and .pdf: RuntimeError: planted (" in " ".join(result.stderr.split())
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["compare.json"]


def write_two(folder: Path) -> None:
    for name in ("a", "b"):
        study = write_study(folder / "jobs" / name, [point(1, 1)], repeat=2)
        write_run(study, point(1, 1), Recorded(step_ns=MS))


def test_every_study_is_written_and_the_next_command_named(run: Run, tmp_path: Path) -> None:
    write_two(tmp_path)
    done = run("export", "jobs", "--to", "tensorboard", "-o", "out")
    assert (done.exit_code, done.stdout) == (0, "2 runs in out: tensorboard --logdir out\n")
    assert done.stderr == "! omitted: 2 runs that are not done\n"
    assert len(list((tmp_path / "out").glob(f"[ab]/{point(1, 1).label}/r1/events.out.tfevents.*"))) == 2


def test_a_run_of_which_nobody_knows_what_it_did_is_left_out(run: Run, tmp_path: Path) -> None:
    points = [point(1, 1), point(1, 2)]
    study = write_study(tmp_path / "s", points, repeat=1)
    for each in points:
        write_run(study, each, Recorded(step_ns=MS))
    study.point_file(points[0].label).write_text("{")
    done = run("export", "s", "--to", "tensorboard", "-o", "out")
    assert (done.exit_code, done.stdout) == (0, "1 run in out: tensorboard --logdir out\n")
    assert done.stderr == "! omitted: 1 run whose point.json is damaged or missing; `hpcddp analyze` lists each\n"
    write_runs(write_study(tmp_path / "b", [point(1, 1)]), point(1, 1), [MS])
    run("bundle", "b")
    assert run("export", "b.tar.gz", "--to", "tensorboard", "-o", "more").exit_code == 0
    assert list((tmp_path / "more/b").rglob("events.out.tfevents.*"))


@pytest.mark.parametrize(
    ("folder", "output", "says"),
    [
        ("jobs", "jobs", "jobs is not empty. Give a new folder"),
        ("config", "out", "contains no study"),
        ("waiting", "out", "has no finished training run yet. Show their state with `hpcddp status waiting`"),
    ],
)
def test_what_cannot_be_exported(run: Run, tmp_path: Path, folder: str, output: str, says: str) -> None:
    write_two(tmp_path)
    write_study(tmp_path / "waiting", [point(1, 1)])
    (tmp_path / "config").mkdir()
    assert says in refused(run, "export", folder, "--to", "tensorboard", "-o", output)
    assert not (tmp_path / "out").exists()


MODULES = {"tensorboard": "tensorboard.compat.proto.event_pb2", "wandb": "wandb"}


@pytest.mark.parametrize("target", MODULES)
def test_a_missing_library_ends_with_1(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    write_two(tmp_path)
    module = MODULES[target]
    monkeypatch.setitem(sys.modules, module, None)
    done = run("export", "jobs", "--to", target, "-o", "out")
    words = f"{module} is not installed here: pip install 'hpcddp[{target}]'"
    assert (done.exit_code, done.stderr.splitlines()[-1]) == (FAILED, words)


@pytest.mark.dear
def test_the_page_goes_to_stdout(run: Run, tmp_path: Path) -> None:
    write_marconi100(tmp_path / "m100")
    before = files(tmp_path)
    result = run("proposal", "m100", "--epochs", "90")
    assert (result.exit_code, result.stderr, files(tmp_path) == before) == (0, "", True)
    assert result.stdout.startswith("# Scaling and resources: m100\n")


def test_a_terminal_acts_on_nothing_in_a_name(run: Run, tmp_path: Path) -> None:
    study = write_study(tmp_path / "s", [point(1, 1)])
    write_runs(study, point(1, 1), [MS], gpu="V\x1b[2J100")
    stdout = run("proposal", "s").stdout
    assert "\x1b" not in stdout
    assert r"V\\x1b\[2J100" in stdout  # Markdown for V\x1b[2J100


@pytest.mark.dear
@pytest.mark.parametrize(("format_", "file", "ending"), [("markdown", "proposal.md", "png"), ("latex", "proposal.tex", "pdf")])
def test_a_folder_holds_page_and_figures(run: Run, tmp_path: Path, format_: str, file: str, ending: str) -> None:
    write_marconi100(tmp_path / "m100")
    result = run("proposal", "m100", "--format", format_, "-o", "out", "--style", "paper")
    assert (result.exit_code, result.stdout) == (0, f"out/{file}\n")
    text = (tmp_path / "out" / file).read_text()
    for name in (f"scaling.{ending}", f"efficiency.{ending}"):
        assert name in text
        assert (tmp_path / "out" / name).is_file()


@pytest.mark.dear
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["empty"], "no run of full training passed all checks"),
        (["m100", "--runs", "3"], "--runs counts trainings of --epochs N epochs"),
        (["m100", "--nodes", "3"], "Measured: 1, 2, 4, 8, 16"),
        (["config"], "contains no study"),
    ],
)
def test_what_has_no_page(run: Run, tmp_path: Path, arguments: list[str], says: str) -> None:
    write_marconi100(tmp_path / "m100")
    write_study(tmp_path / "empty", [point(1, 1)])
    (tmp_path / "config").mkdir()
    assert says in refused(run, "proposal", *arguments)


@pytest.mark.dear
def test_a_figure_that_raises_costs_itself(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*_: object, **__: object) -> None:
        raise RuntimeError("planted")

    study = write_study(tmp_path / "s", [point(1, 1), point(1, 2), point(1, 4)])
    for each in (point(1, 1), point(1, 2), point(1, 4)):
        write_runs(study, each, [MS])
    monkeypatch.setattr("hpcddp.analysis.figures.scaling.efficiency_figure", wrong)
    result = run("proposal", "s", "-o", "out")
    assert (result.exit_code, "efficiency.png" in (tmp_path / "out/proposal.md").read_text()) == (3, False)
    assert {file.name for file in (tmp_path / "out").iterdir()} == {"proposal.md", "scaling.png", "scaling.svg", "scaling.pdf"}
    assert "failed: the figure `efficiency`: RuntimeError: planted (" in " ".join(result.stderr.split())
