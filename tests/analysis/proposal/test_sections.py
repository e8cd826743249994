"""Accuracies of a proposal: exact counts by size and what each takes to the target; and what the configuration does."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcddp.analysis.proposal.blocks import Heading, Items, Text
from hpcddp.analysis.proposal.page import unknown_lines
from hpcddp.analysis.proposal.proposal import propose
from hpcddp.analysis.proposal.sections import accuracy_blocks, what_changes_it
from hpcddp.analysis.report.table import Table
from tests.analysis.study.test_accuracy import training as sized
from tests.analysis.study.test_accuracy import trainings
from tests.analysis.synthetic import MS, Recorded, point, write_run, write_runs, write_study


def rows(table: Table) -> list[list[str]]:
    return [[cell.text for cell in row] for row in table.rows]


def test_accuracy_and_what_it_takes(tmp_path: Path) -> None:
    """One GPU needs 20 s, four 12 s; that convergence was not measured is not said then."""
    given = {1: ((50, 90), 10.0), 4: ((50, 80, 95), 4.0)}
    study = trainings(tmp_path / "s", {sized(gpus, target_accuracy=0.9): [each] * 2 for gpus, each in given.items()})
    found = propose(study)
    blocks = accuracy_blocks(found)
    counts, times = (block for block in blocks if isinstance(block, Table))
    assert rows(counts)[1] == ["1 x 4", "2", "95.00 % (950 of 1,000)", "95.00–95.00", "768"]
    assert rows(times) == [
        ["1 x 1", "2 of 2", "2", "20.0 s", "0.00556", "1.00", "1.00"],
        ["1 x 4", "2 of 2", "3", "12.0 s", "0.00333", "1.67", "10.0"],
    ]
    assert any(isinstance(block, Text) and "90.00 % accuracy takes 20.0 s" in block.text for block in blocks)
    assert not any("convergence was not measured" in line for line in unknown_lines(found))


def test_without_an_evaluation_there_is_no_such_block(tmp_path: Path) -> None:
    """The page is as it was."""
    study = write_study(tmp_path / "s", [point(1, 1)])
    write_run(study, point(1, 1), Recorded(step_ns=MS))
    assert accuracy_blocks(propose(study)) == []


@pytest.mark.parametrize("runs", [1, 3])
def test_keys_that_were_varied_have_a_sentence(tmp_path: Path, runs: int) -> None:
    """Of three runs each; one run each says nothing that an application could rest on."""
    points = {point(1, 4, precision=precision): ms for precision, ms in (("fp32", 100), ("bf16", 50))}
    study = write_study(tmp_path / "s", list(points), runs)
    for each, ms in points.items():
        write_runs(study, each, [ms * MS + run * MS // 4 for run in range(runs)])
    blocks = what_changes_it(propose(study))
    if runs == 1:
        assert blocks == []
        return
    heading, items = blocks
    assert heading == Heading("Effect of each parameter")
    assert isinstance(items, Items)
    assert items.texts[0].startswith("At 1x4, precision bf16 is 2.00 times (95 % 1.98")
