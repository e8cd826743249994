"""A bundle of trainings analyzes as the study does: rows of epochs, accuracies, times to them."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcddp.analysis import analyze
from hpcddp.share.bundle import pack
from hpcddp.share.unbundle import opened_study
from tests.analysis.study.test_time_to_accuracy import sized, trainings


@pytest.mark.dear
@pytest.mark.parametrize("pseudonymise", [False, True])
def test_a_bundle_has_every_epoch(tmp_path: Path, pseudonymise: bool) -> None:
    """With or without names of hosts and people: without its epochs.csv the run would be rejected."""
    study = trainings(tmp_path / "s", {sized(1): [((50, 90), 10.0)] * 2, sized(2): [((60, 91), 6.0)] * 2})
    before = analyze(study.folder, tmp_path / "here")[0].plain
    pack(study, tmp_path / "b.tar.gz", pseudonymise=pseudonymise)
    with opened_study(tmp_path / "b.tar.gz") as folder:
        after = analyze(folder, tmp_path / "there")[0].plain
    assert (len(before["epochs"]), before["runs"]["pass"]) == (8, 4)
    for of in ("epochs", "to_accuracy", "sentences", "runs"):
        assert before[of] == after[of]
