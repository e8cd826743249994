"""Tables: how ranks were bound, what is said of sharded parameters beside DDP, and what loaders gave."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from hpcddp.analysis import analyze
from hpcddp.analysis.report.node_tables import KINDS_AT_MOST, bindings
from hpcddp.analysis.report.table import terminal_forms
from hpcddp.analysis.report.tables import scaling, study_tables
from hpcddp.analysis.report.terminal import findings_plain
from hpcddp.analysis.report.write import plain_rows, report_frames
from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.util.files import write_plain
from hpcddp.analysis.verdicts.findings import Findings, find
from hpcddp.core.point import Fsdp, Point
from hpcddp.core.run_root import Study
from hpcddp.core.schema import encode
from tests.analysis.synthetic import (
    MS,
    Recorded,
    point,
    predicted,
    write_measured,
    write_prediction,
    write_run,
    write_runs,
    write_study,
)
from tests.analysis.verdicts.test_input import study_of, times
from tests.fake_node import FakeNode

pytestmark = pytest.mark.usefixtures("undrawn")

NODE = FakeNode(sockets=2, cores=8, gpus=(0, 1))


def written(tmp_path: Path, nodes: int, moved: int = 0) -> Path:
    """A run on so many nodes, beside one on a single GPU; `moved` of the nodes are bound unlike any other."""
    files = NODE.write(tmp_path / "node")
    alike = [NODE.binding(files, range(8), 0), NODE.binding(files, range(8, 16), 1)]
    other = [[NODE.binding(files, range(1 + index, 8), 0), alike[1]] for index in range(moved)]
    points = [point(1, 1), point(nodes, 2)]
    study = write_study(tmp_path / "s", points)
    for each in points:
        found = [rank for node in (*[alike] * (nodes - moved), *other) for rank in node][: each.ranks]
        write_run(study, each, Recorded(step_ns=80 * MS, steps=20, launch={"bindings": encode(found)}))
    return study.folder


def rows(folder: Path) -> list[list[str]]:
    return [[cell.text for cell in row] for row in bindings(load_study(Study(folder)).runs).rows]


def test_what_is_no_number_is_unknown_to_scripts() -> None:
    table = pd.DataFrame({"a": pd.array([1, pd.NA], "Int64"), "b": [math.nan, math.inf], "c": ["x", None]})
    assert plain_rows(table) == [{"a": 1, "b": None, "c": "x"}, {"a": None, "b": None, "c": None}]


def test_whole_numbers_have_their_thousands_apart(tmp_path: Path) -> None:
    found = find(load_study(write_measured(tmp_path / "s", [point(1, 4)])))
    points = found.shown.assign(gpus=4096, samples_trained=pd.array([70400], "Int64"))
    (row,) = scaling(points, found.shown_apart, ["gpus", "samples_trained"]).rows
    assert [cell.text for cell in row] == ["4,096", "70,400"]


PREDICTED = ["predicted_samples_per_s", "predicted_low", "predicted_high", "predicted_from"]


def test_what_was_predicted_stands_beside_what_was_measured(tmp_path: Path) -> None:
    """On the page with its band, on the terminal alone, in scaling.csv and report.json in columns."""
    study = write_measured(tmp_path / "s", [point(1, 4), point(2, 4)])
    write_prediction(study, predicted(point(2, 4), 2500.0, anchor=point(1, 4).label))
    found = find(load_study(study))
    table = study_tables(found)["scaling"].in_documents
    shown = {column.name: [row[i].text for row in table.rows] for i, column in enumerate(table.columns)}
    assert (shown["predicted"], shown["band"]) == (["–", "2,500"], ["–", "2,250–2,750"])
    terminal = terminal_forms(study_tables(found)["scaling"])[0]
    assert re.search(r" predicted  +vs", terminal.splitlines()[0])
    assert "2,750" not in terminal
    frame = report_frames(found)["scaling"]()
    assert isinstance(frame, pd.DataFrame)
    assert frame[PREDICTED].iloc[1].tolist() == [2500.0, 2250.0, 2750.0, point(1, 4).label]
    assert findings_plain(found, ())["points"][1]["predicted_high"] == 2750.0


def test_without_a_prediction_there_is_no_column_of_it(tmp_path: Path) -> None:
    found = find(load_study(write_measured(tmp_path / "s", [point(1, 4), point(2, 4)])))
    frame = report_frames(found)["scaling"]()
    assert isinstance(frame, pd.DataFrame)
    assert not {*PREDICTED} & {*frame, *findings_plain(found, ())["points"][0]}
    assert {"predicted", "band"}.isdisjoint(column.name for column in study_tables(found)["scaling"].in_documents.columns)


def test_nodes_that_are_bound_alike_are_one_kind(tmp_path: Path) -> None:
    assert rows(written(tmp_path, nodes=3, moved=1)) == [
        ["r000 and r001", "0", "0-7", "0", "0", "0-1", "0000:17:00.0", "0", "0"],
        ["r000 and r001", "1", "8-15", "1", "1", "0-1", "0000:27:00.0", "1", "1"],
        ["r002", "0", "1-7", "0", "0", "0-1", "0000:17:00.0", "0", "0"],
        ["r002", "1", "8-15", "1", "1", "0-1", "0000:27:00.0", "1", "1"],
    ]


def test_it_stays_small(tmp_path: Path) -> None:
    found = bindings(load_study(Study(written(tmp_path, nodes=7, moved=6))).runs)
    assert len(found.rows) == 2 * KINDS_AT_MOST
    assert "3 more kinds of nodes are in its launch.json" in found.note


def test_the_page_has_it_where_it_is_known(tmp_path: Path) -> None:
    folder = written(tmp_path, nodes=2)
    analyze(folder)
    page = (folder / "report/index.html").read_text(encoding="utf-8")
    assert "CPU binding of ranks" in page
    assert rows(write_measured(tmp_path / "earlier", [point(1, 2)]).folder) == []


WAITS = {"method": "hooks", "all_gather_forward_s": 0.02, "all_gather_backward_s": 0.015, "reduce_scatter_s": 0.005}
MARKED = {"forward": 0.2, "backward": 0.35, "comm_exposed": 0.4}
PLAIN = {"forward": 0.4, "backward": 0.55}


def of(parallel: str, nodes: int, comm: str = "off", **changes: Any) -> Point:
    return point(nodes, 4, parallel=parallel, comm=comm, **changes)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    """One and two full nodes; FSDP takes a third longer, and a fifth of the memory."""
    points = [of(parallel, nodes, comm) for parallel in ("ddp", "fsdp") for nodes in (1, 2) for comm in ("off", "on")]
    study = write_study(tmp_path_factory.mktemp("sharded"), points)
    for each in points:
        sharded = each.sharded
        marked = each.measure.comm == "on"
        write_runs(
            study,
            each,
            [(100 if sharded else 75) * MS + run * 10_000 for run in (1, 2, 3)],
            steps=40,
            shares=MARKED if marked or not sharded else PLAIN,
            of_rank={"peak_memory_bytes": {"allocated": 10**9 if sharded else 5 * 10**9, "reserved": 6 * 10**9}},
            end={"sharded_exchange": WAITS} if marked and sharded else {},
        )
    return find(load_study(study))


@pytest.mark.dear
def test_what_ranks_wait_for(found: Findings) -> None:
    table = study_tables(found)["sharding"]
    assert "Measured by hooks." in table.note
    for row, nodes in zip(table.rows, ("1", "2"), strict=True):
        texts = [cell.text for cell in row]
        assert [texts[0], texts[2], *texts[4:]] == [nodes, "fsdp", "3", "100", "20.0", "15.0", "5.00", "40 %"]


@pytest.mark.dear
def test_memory_stands_beside_ddps(found: Findings, tmp_path: Path) -> None:
    """In the table of what `parallel` changes; in report.json as a plain number."""
    (axis,) = (axis for axis in found.effects if axis.key == "workload.parallel")
    memory = {value.text: value.peak_memory_bytes for value in axis.panels[-1].values}
    assert (memory["ddp"], memory["fsdp"]) == (5 * 10**9, 10**9)
    assert "memory of a rank: GB, at most" in [column.name for column in study_tables(found)[axis.stem].columns]
    write_plain(tmp_path / "report.json", findings_plain(found, ()))
    assert '"peak_memory_bytes": 5000000000' in (tmp_path / "report.json").read_text()


@pytest.mark.dear
def test_advice_is_not_ddps(found: Findings) -> None:
    (verdict,) = (each for each in found.verdicts if each.name == "communication-bound" and "fsdp" in each.where)
    assert not re.search(r"bucket|compression|gradient|DDP", verdict.evidence + verdict.advice)
    assert "ddp" in verdict.advice, "the study has measured that DDP is faster"


def test_advice_that_nothing_was_measured_of(tmp_path: Path) -> None:
    wide = of("fsdp", 2, "on")
    for each, words in (
        (wide, ("parallel=hsdp", "reshard_after_forward=false", "more work between exchanges")),
        (of("hsdp", 2, "on", fsdp=Fsdp(reshard_after_forward=False)), ("more work between exchanges",)),
    ):
        study = write_measured(tmp_path / each.id, [each], steps=40, shares=MARKED, end={"sharded_exchange": WAITS})
        (verdict,) = (found for found in find(load_study(study)).verdicts if found.name == "communication-bound")
        assert all(word in verdict.advice for word in words)
        assert verdict.advice.count("--set") == len(words)


def test_waits_that_were_not_marked_are_not_computation(tmp_path: Path) -> None:
    study = write_study(tmp_path / "s", [of("fsdp", 2)], repeat=3)
    for run in (1, 2, 3):
        recorded = Recorded(step_ns=lambda _, step: (100 if step % 5 else 300) * MS, steps=100, job=str(run), shares=PLAIN)
        write_run(study, of("fsdp", 2), recorded, run)
    verdicts = {verdict.name: verdict for verdict in find(load_study(study)).verdicts}
    assert "where waits for sharded parameters are not marked" in verdicts["stalls"].evidence
    assert verdicts["stalls"].advice.startswith("Mark waits for sharded parameters and gradients with `--set measure.comm=on`")
    assert "burst network" not in verdicts


@pytest.mark.parametrize(("failing", "words"), [("ddp", "Call the model through DDP only"), ("fsdp", "after sharding")])
def test_advice_is_for_the_runs_that_fail(tmp_path: Path, failing: str, words: str) -> None:
    points = [of(parallel, 1) for parallel in ("ddp", "fsdp")]
    study = write_study(tmp_path / "s", points)
    for each in points:
        gate = {"name": "parameters agree", "passed": each.workload.parallel != failing, "evidence": "rank 1 differs"}
        write_run(study, each, Recorded(step_ns=100 * MS, steps=40, gates=[gate]))
    (verdict,) = (each for each in find(load_study(study)).verdicts if each.name == "unsynchronised ranks")
    assert words in verdict.advice


@pytest.mark.dear
def test_loaders_stand_next_to_the_breakdown(tmp_path: Path) -> None:
    study_of(tmp_path, times(4))
    (result,) = analyze(tmp_path / "s")
    page = (tmp_path / "s" / "report" / "index.html").read_text(encoding="utf-8")
    heads = [part.partition("<")[0] for part in page.split("<h2>")[1:]]
    assert heads.index("Loader throughput") == heads.index("Step breakdown") + 1
    (row,) = result.plain["loaders"]
    assert (row["workers"], row["limit"], row["loader_samples_per_s"]) == (4, "loader processes", 330)
    assert "loader processes" in (tmp_path / "s" / "report" / "loaders.csv").read_text(encoding="utf-8")
    text = result.text_in(80)
    assert text.index("Step breakdown") < text.index("Loader throughput")
    table = text.partition("Loader throughput")[2].partition("\n\n")[0]
    assert max(map(len, table.splitlines())) <= 80
