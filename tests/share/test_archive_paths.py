"""Every file that a job writes is of a kind, or is left out by name: none is taken for somebody else's."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcddp.analysis import analyze
from hpcddp.share.archive_paths import kind_of, why_left_out
from hpcddp.share.bundle import STRANGE, write_bundle
from hpcddp.share.unbundle import opened_study
from tests.analysis.study.test_trained import measured, script
from tests.analysis.synthetic import write_study


@pytest.mark.dear
def test_a_script_s_study_analyzes_the_same(tmp_path: Path) -> None:
    """Its points have no batch in their names, as only the script knows it."""
    study = write_study(tmp_path / "s", [script(1), script(2)])
    for gpus in (1, 2):
        measured(study, script(gpus), 8)
    before = analyze(study.folder, tmp_path / "here")[0].plain
    assert write_bundle(study, tmp_path / "b.tar.gz").strange == ()
    with opened_study(tmp_path / "b.tar.gz") as folder:
        assert analyze(folder, tmp_path / "there")[0].plain == before


def test_what_earlier_versions_wrote_is_known() -> None:
    """Nothing reads it any more; bundles made before hold it and are unpacked."""
    assert kind_of("n01-g4-b32-3fa9c1d2e07b/r1/4711.0/inspector/gpu-a07.example.edu-pid712.log") == "profiles"
    assert kind_of("bench-data/4711/bench-data.json") == "records"


@pytest.mark.parametrize("file", ["4711/torchrun.gpu-a07.json", "4711/3/torchrun.gpu-a07.json"])
def test_what_only_the_cluster_needs_is_left_out_by_name(file: str) -> None:
    assert kind_of(f".jobs/{file}") is None
    assert why_left_out(f".jobs/{file}") != STRANGE
