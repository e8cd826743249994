"""A proposal says what the configuration does, where enough runs say so."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcddp.analysis.proposal.blocks import Heading, Items
from hpcddp.analysis.proposal.effects import what_changes_it
from hpcddp.analysis.proposal.proposal import propose
from tests.analysis.synthetic import MS, point, write_runs, write_study


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
