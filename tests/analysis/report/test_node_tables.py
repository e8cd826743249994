"""The table of how ranks were bound."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcddp.analysis import analyze
from hpcddp.analysis.report.node_tables import KINDS_AT_MOST, bindings
from hpcddp.analysis.study.load import load_study
from hpcddp.core.run_root import Study
from hpcddp.core.schema import encode
from tests.analysis.synthetic import MS, Recorded, point, write_run, write_study
from tests.fake_topology import FakeNode

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


def test_nodes_that_are_bound_alike_are_one_kind(tmp_path: Path) -> None:
    """Of the run with most ranks, a row for each local rank of each kind."""
    assert rows(written(tmp_path, nodes=3, moved=1)) == [
        ["r000 and r001", "0", "0-7", "0", "0", "0-1", "0000:17:00.0", "0", "0"],
        ["r000 and r001", "1", "8-15", "1", "1", "0-1", "0000:27:00.0", "1", "1"],
        ["r002", "0", "1-7", "0", "0", "0-1", "0000:17:00.0", "0", "0"],
        ["r002", "1", "8-15", "1", "1", "0-1", "0000:27:00.0", "1", "1"],
    ]


def test_it_stays_small(tmp_path: Path) -> None:
    """Of many kinds the first are shown, and how many are not."""
    found = bindings(load_study(Study(written(tmp_path, nodes=7, moved=6))).runs)
    assert len(found.rows) == 2 * KINDS_AT_MOST
    assert "3 more kinds of nodes are in its launch.json" in found.note


def test_the_page_has_it_where_it_is_known(tmp_path: Path) -> None:
    """Earlier records have no bindings, and no table."""
    folder = written(tmp_path, nodes=2)
    analyze(folder)
    page = (folder / "report/index.html").read_text(encoding="utf-8")
    assert "Where the ranks were bound" in page
    study = write_study(tmp_path / "earlier", [point(1, 2)])
    write_run(study, point(1, 2), Recorded(step_ns=80 * MS, steps=20))
    assert rows(study.folder) == []
