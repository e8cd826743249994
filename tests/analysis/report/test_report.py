"""The report's texts: nothing of the records is markup, in HTML, Markdown or LaTeX."""

from __future__ import annotations

import math
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from hpcddp.analysis import analyze
from hpcddp.analysis.figures.distribution import rank_map_figure
from hpcddp.analysis.report.page import prose
from hpcddp.analysis.report.provenance import provenance
from hpcddp.analysis.report.step_tables import exchange_table
from hpcddp.analysis.report.table import Cell, Column, Table, key_columns, terminal_forms
from hpcddp.analysis.report.tables import laws, scaling
from hpcddp.analysis.report.write import latex_table, latex_text, markdown_prose, markdown_table, markdown_text, plain_rows
from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.study.series import Apart, full_names
from hpcddp.analysis.study.trained import trained
from hpcddp.analysis.verdicts.findings import find
from hpcddp.core.point import comm_point
from hpcddp.core.run_root import Study
from tests.analysis.study.test_comm_bench import operation, write_benchmark
from tests.analysis.synthetic import (
    FAILED,
    MS,
    Bucket,
    Recorded,
    point,
    write_marconi100,
    write_measured,
    write_run,
    write_runs,
    write_study,
)

pytestmark = pytest.mark.usefixtures("undrawn")

EXPOSED = {"backward": 0.5, "comm_exposed": 0.2}
BUCKET = Bucket(size_bytes=1000, ready_ns=1 * MS, done_ns=2 * MS)

TABLE = Table(
    "t",
    "Title",
    "Note",
    [Column("name", numeric=False), Column("a", "both"), Column("b", "both")],
    [[Cell("x_1 & <b>|", "x"), Cell("50 %", 0.5), Cell("–", None)]],
)


class Elements(HTMLParser):
    """Every start tag with its attributes, in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def named(self, *names: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.found if name in names]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a study that is called, ran on and failed with markup."""
    return write_hostile(tmp_path_factory.mktemp("hostile"))


def test_code_in_prose() -> None:
    assert prose("say `<a>` twice") == "say <code>&lt;a&gt;</code> twice"
    assert prose("one ` alone, two `` together") == "one ` alone, two `` together"
    assert prose("39 %") == "39\u00a0%"


def test_markdown_table() -> None:
    assert markdown_table(TABLE).splitlines() == [
        "| name | both: a | both: b |",
        "| :--- | ---: | ---: |",
        r"| x\_1 \& \<b\>\| | 50 % | – |",
    ]
    assert markdown_text("a\nb") == "a b"
    assert markdown_prose("a_b `c_d` `e``<f>`") == r"a\_b `c_d` \`e\`\`\<f\>\`"


def test_latex_table() -> None:
    assert latex_table(TABLE, {"batch": ["32 samples", "64 samples"], "GPU": ["A_1"]}).splitlines() == [
        "% Title",
        r"\begin{tabular}{lrr}",
        r"\hline",
        r" & \multicolumn{2}{c}{both} \\",
        r"name & a & b \\",
        r"\hline",
        r"x\_1 \& \textless{}b\textgreater{}\textbar{} & 50\,\% & -- \\",
        r"\hline",
        r"\end{tabular}",
        r"\par{\footnotesize Note Trained: batch varies: 32, 64 samples; GPU A\_1.\par}",
    ]
    interval = Table("t", "T", "Of `n` runs.", [Column("n"), Column("95 %")], [[Cell("6", 6), Cell("1–2", 1)]])
    *_, heads, _, _, _, _, below, _ = latex_table(interval, {}).split("\n")
    assert heads == r"n & 95 \% CI \\"
    assert below.startswith(r"\par{\footnotesize Of \texttt{n} runs. 95\,\% CI: confidence interval of the median")
    assert latex_text(r"\input{~^$#}") == r"\textbackslash{}input\{\textasciitilde{}\textasciicircum{}\$\#\}"


def test_a_plain_row_has_no_number_that_json_lacks() -> None:
    """NaN, infinite and NA are None; other numbers, texts and truths stay."""
    table = pd.DataFrame({"a": [1.5, math.nan, math.inf], "b": pd.array([1, None, 3], "Int64"), "c": ["x", "y", "z"]})
    rows = [{"a": 1.5, "b": 1, "c": "x"}, {"a": None, "b": None, "c": "y"}, {"a": None, "b": 3, "c": "z"}]
    assert plain_rows(table) == rows


def test_true_and_false_are_words() -> None:
    apart: Apart = {"a": {"compile": True, "workers": 2, "tf32": None}, "b": {"compile": False, "workers": 16, "tf32": True}}
    columns, rows = zip(
        *((column, [cell({"series": key}).value for key in apart]) for column, cell in key_columns(apart)), strict=True
    )
    assert [column.numeric for column in columns] == [False, True, False]
    assert list(rows) == [["on", "off"], [2, 16], ["default", "on"]]


@pytest.mark.parametrize(("gpus", "heads"), [(1, ["vs 1 GPU"]), (4, ["vs 1 GPU", "vs 1 node of 4"])])
def test_a_node_of_one_gpu_is_no_baseline_of_its_own(tmp_path: Path, gpus: int, heads: list[str]) -> None:
    points = [point(1, 1), point(1, gpus), point(2, gpus)][gpus == 1 :]
    found = find(load_study(write_measured(tmp_path / "s", points)))
    groups = [column.group for column in scaling(found.shown, found.shown_apart).columns]
    assert [head for head in dict.fromkeys(groups) if head.startswith("vs")] == heads
    head = terminal_forms(scaling(found.shown, found.shown_apart))[0].splitlines()[0]
    assert re.findall(r"vs 1 GPU|vs 1 node of \d", head) == heads


@pytest.mark.dear
def test_laws_are_off_by_as_much_in_words_as_in_the_table(tmp_path: Path) -> None:
    found = find(load_study(write_marconi100(tmp_path / "s")))
    table = laws(found.laws, full_names(found.apart))
    off = {f"off by {row[-1].value:.1f} %" for row in table.rows}
    assert table.columns[-1].head == "off by, %"
    assert found.implied
    assert all(any(each in sentence for each in off) for sentence in found.implied)


@pytest.mark.dear
def test_the_page_asks_for_nothing(hostile: Path) -> None:
    text = (hostile / "index.html").read_text()
    elements = Elements(text)
    assert not any(re.match(r"\s*(https?:)?//", value or "") for _, found in elements.found for value in found.values())
    assert not elements.named("link", "iframe", "object", "embed", "form", "base", "a")
    (policy,) = [meta["content"] for meta in elements.named("meta") if meta.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy


@pytest.mark.dear
def test_names_and_reasons_are_no_markup(hostile: Path) -> None:
    text = (hostile / "index.html").read_text()
    assert EVIL not in text
    assert text.count("&lt;img src=x") > 10
    elements = Elements(text)
    assert not any(name.startswith("on") for _, found in elements.found for name in found)
    assert len(elements.named("script")) == 1
    assert not elements.named("img")
    markdown = (hostile / "report.md").read_text()
    assert "<img" not in re.sub(r"`[^`]*`", "", re.sub(r"\\.", "", markdown))


def test_everything_has_a_name_for_who_does_not_see_it(hostile: Path) -> None:
    elements = Elements((hostile / "index.html").read_text())
    assert {head.get("scope") for head in elements.named("th")} == {"col", "colgroup"}
    assert all(each.get("aria-label") or each.get("aria-hidden") for each in elements.named("svg", "table"))
    assert all(each.get("aria-label") for _, each in elements.found if "data-tip" in each)
    assert len(elements.named("h1")) == 1
    assert elements.named("html") == [{"lang": "en"}]


@pytest.mark.dear
def test_the_sentence_comes_first_then_what_is_wrong(tmp_path: Path) -> None:
    study = write_marconi100(tmp_path / "m100", repeat=2)
    write_run(study, point(1, 2, work="epoch"), Recorded(step_ns=9 * MS, gates=FAILED, job="900"), 3)
    (result,) = analyze(tmp_path)
    order = [result.plain["sentences"][0][:20], "rejected", "How it scales", "What stands behind this", "How this was measured"]
    for name in ("index.html", "report.md"):
        text = (tmp_path / "m100/report" / name).read_text()
        places = [text.index(each, max(0, text.find("<h1"))) for each in order]
        assert places == sorted(places), name


@pytest.mark.usefixtures("drawn")
def test_a_benchmark_has_a_headline_too(tmp_path: Path) -> None:
    bench = comm_point(point(2, 4))
    study = write_study(tmp_path / "bench-comm", [bench])
    write_benchmark(study, bench, {"all_reduce": operation("all_reduce", 8, 30e-6, 10e9)})
    analyze(tmp_path)
    text = (tmp_path / "bench-comm/report/index.html").read_text()
    assert re.search(r"<h1>2 nodes x 4 GPUs: an all-reduce of 1 GiB reaches [\d.]+ GB/s of bus bandwidth.</h1>", text)
    assert ">2 nodes x 4 GPUs</text>" in text


def test_tables_of_an_earlier_analysis_go(tmp_path: Path) -> None:
    layout = point(1, 2, comm="on")
    study = write_study(tmp_path / "s", [layout])
    attempt = write_run(study, layout, Recorded(step_ns=8 * MS, shares=EXPOSED, buckets=[BUCKET]))
    analyze(tmp_path)
    report = tmp_path / "s/report"
    assert (report / "exchange.tex").is_file()
    (report / "thesis.tex").touch()
    (attempt / "end.json").unlink()
    write_runs(study, point(1, 2), [8 * MS])
    (study.folder / point(1, 2).label / "point.json").write_bytes(study.point_file(layout.label).read_bytes())
    analyze(tmp_path)
    assert not (report / "exchange.tex").exists()
    assert (report / "thesis.tex").exists()


def test_a_single_ranks_gradients_go_nowhere(tmp_path: Path) -> None:
    points = [point(1, ranks, comm="on") for ranks in (1, 2)]
    found = find(load_study(write_measured(tmp_path / "s", points, [8], shares=EXPOSED, buckets=[BUCKET])))
    assert [row[0].text + "x" + row[1].text for row in exchange_table(found.shown, found.shown_apart).rows] == ["1x2"]


def test_a_straggler_is_visible_on_the_page(tmp_path: Path) -> None:
    where = point(1, 4, comm="on")
    study = write_study(tmp_path / "s", [where])
    slow = {2: {"backward": 0.6, "comm_exposed": 0.1}}
    write_run(study, where, Recorded(step_ns=100 * MS, steps=40, shares=EXPOSED, shares_of_rank=slow))
    figure = rank_map_figure(find(load_study(study)).detail.ranks)
    cells = np.asarray(figure.axes[0].collections[0].get_array())
    assert [row.tolist() for row in cells] == [[0] * 8, [0] * 8, [10] * 8, [0] * 8]
    assert figure.marks[2].values["beyond the median rank"] == "+10.0 % of the step"


@pytest.mark.parametrize(
    "damage",
    [b"", b"[1]", b'{"gates": 3, "hosts": 4, "versions": [], "gpus": "x"}', b"[" * 200_000, b'{"hosts": ["\\ud800"]}'],
    ids=["empty", "array", "types", "deep", "surrogate"],
)
def test_what_stands_behind_damaged_records_is_left_out(tmp_path: Path, damage: bytes) -> None:
    study = write_measured(tmp_path / "s", [point(1, 1)], [1, 1])
    records = load_study(Study(tmp_path / "s"))
    attempt = study.attempts(point(1, 1).label, 1)[0]
    (attempt / "nodes").mkdir()
    for file in (attempt / "launch.json", attempt / "nodes/r000.json"):
        file.write_bytes(damage)
    assert provenance(study, records.runs).facts["launched by"] == ["slurm"]
    analyze(tmp_path)
    assert "V100" in (tmp_path / "s/report/index.html").read_text()


def test_hosts_versions_and_gates_stand_behind_the_numbers(tmp_path: Path) -> None:
    study = write_study(tmp_path / "s", [point(2, 1)], repeat=2)
    write_run(study, point(2, 1), Recorded(step_ns=MS, launch={"git_commit": "abc"}), 1)
    write_run(study, point(2, 1), Recorded(step_ns=MS, gates=FAILED, launch={"git_commit": "def"}), 2)
    runs = load_study(study).runs
    found = provenance(study, runs)
    assert found.facts["hosts (2)"] == ["r000, r001"]
    assert trained(runs)["software"] == ["torch 2.7.1"]
    assert found.facts["code"] == ["git abc (1×)", "git def (1×)"]
    assert trained(runs)["date"] == ["2023-11-14"]
    assert [(gate.name, gate.passed, gate.runs) for gate in found.gates] == [("parameters agree", 2, 2), ("equal steps", 0, 1)]
    assert found.gates[1].evidence == "rank 1 made 4 of 6 steps"
    assert found.gates_of[f"r2 of {point(2, 1).label}"] == "1 of 2"


EVIL = """"'><img src=x onerror=window.ran=1></title></style></script><script>window.ran=1</script>`<b>`$\\input{x}"""


def write_hostile(folder: Path) -> Path:
    """The folder of its report."""
    sizes = [point(1, 1, node_type=EVIL), point(1, 4, node_type=EVIL), point(2, 4, node_type=EVIL), point(1, 4, model=EVIL)]
    study = write_study(folder / "s", sizes, repeat=2, name=EVIL)
    gates = [{"name": EVIL, "passed": False, "evidence": EVIL}]
    launch = {
        **{"hosts": [EVIL], "versions": {EVIL: EVIL}, "clock": EVIL, "git_commit": EVIL, "communication": EVIL},
        **{"backend": EVIL, "launcher": EVIL, "data": {"name": EVIL}, "tf32": {EVIL: EVIL}},
    }
    odd: dict[str, Any] = {
        "gpu": EVIL,
        "env_id": EVIL,
        "launch": launch,
        "shares": {"forward": 0.25, "backward": 0.5, "other": 0.25},
    }
    for each in sizes:
        attempt = write_run(study, each, Recorded(step_ns=8 * MS, **odd, protocol={"stopped_by": EVIL}))
        (attempt / "nodes").mkdir()
        (attempt / "nodes/r000.json").write_text('{"cpu": "<img src=x onerror=window.ran=1>", "cpus": 4}')
        write_run(study, each, Recorded(step_ns=40 * MS, **odd, gates=gates, job="200"), 2)
    write_run(study, sizes[0], Recorded(step_ns=MS, state="failed", reason=EVIL, job="300"), 3)
    analyze(folder)
    return folder / "s/report"
