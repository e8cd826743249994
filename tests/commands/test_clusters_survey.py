"""`hpcddp clusters survey`, with what the job would have found at hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcddp.core.job_records import NodeSurvey, SurveyRecord
from hpcddp.core.launch_record import NodeFacts
from tests.commands.conftest import Run


def test_lines_to_paste(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """On stdout, the rest on stderr; no file is changed."""
    node = NodeFacts(host="gn01", machine="x86_64", kernel="5.14", cpu="A processor", cpus=8, cpus_usable=8, memory_bytes=2**34)
    found = SurveyRecord(date="2026-05-04", job="4711", nodes=(NodeSurvey(host="gn01", node=node),), problems=("no latency",))
    monkeypatch.setattr("hpcddp.submit.small_jobs.run_survey", lambda *_, **__: found)
    text = "schema: 1\nname: mine\ntitle: Mine\nsources: {}\ndefault_node_type: fat\nnode_types: {fat: {gpus: 4}}\n"
    Path("mine.yaml").write_text(text)
    done = run("clusters", "survey", "mine.yaml", "--yes")
    assert done.exit_code == 0, done.stderr
    assert done.stdout == (
        'sources: {survey: "hpcddp clusters survey of 2026-05-04, job 4711"}\n'
        "node_types:\n"
        "  fat:\n"
        '    cpu: {value: A processor, grade: A, source: survey, note: "2026-05-04, gn01"}\n'
    )
    assert "no latency" in done.stderr
    assert "paste these lines into the profile mine.yaml" in done.stderr
    assert Path("mine.yaml").read_text() == text
