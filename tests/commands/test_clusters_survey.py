"""`hpcddp clusters survey`, with what the job would have found at hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcddp.cluster.profile_file import load_profile
from hpcddp.core.launch_record import NodeFacts
from hpcddp.core.survey_record import NodeSurvey, SurveyRecord
from tests.commands.conftest import Run


def test_a_profile_in_the_settings_folder_is_filled_in(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files there are named as their profiles are, but the new text is read before it takes the place of the old."""
    node = NodeFacts(host="gn01", machine="x86_64", kernel="5.14", cpu="A processor", cpus=8, cpus_usable=8, memory_bytes=2**34)
    found = SurveyRecord(date="2026-05-04", job="4711", nodes=(NodeSurvey(host="gn01", node=node),))
    monkeypatch.setattr("hpcddp.submit.survey.run_survey", lambda *_: found)
    file = tmp_path / "config" / "hpcddp" / "clusters" / "mine.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("schema: 1\nname: mine\ntitle: Mine\nsources: {}\ndefault_node_type: fat\nnode_types: {fat: {gpus: 4}}\n")
    done = run("clusters", "survey", file, "--yes")
    assert done.exit_code == 0, done.stderr
    assert load_profile("mine").node_types["fat"].cpu == "A processor"
    assert list(file.parent.iterdir()) == [file]
