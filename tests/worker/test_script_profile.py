"""Scripts whose further steps a profiler watches: real ranks over gloo."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from hpcddp.analysis.report.tables import study_tables
from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.verdicts.findings import find
from hpcddp.core.point import Point
from hpcddp.core.records import trace_file
from hpcddp.core.run_root import Study
from tests.worker.test_script_run import PLAIN, attempt_of, outcomes, point

SHARDED = """\
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
for part in (model[0], model[2], model):
    fully_shard(part)
one_loop(model)
dist.destroy_process_group()
"""

TEN_BATCHES = """\
with measure(model, torch.optim.SGD(model.parameters(), lr=0.01), samples_per_step=4) as steps:
    for number, batch in enumerate(steps([torch.randn(4, 8)] * 99)):
        model(batch).sum().backward()
        if number == 15:
            break
"""


def done(folder: Path, what: Point, text: str) -> dict[str, Any]:
    """end.json of a script that ran to its end, all gates passed."""
    ended = outcomes(folder, what, text)
    assert [each.code for each in ended] == [0] * what.ranks, "\n".join(each.output for each in ended)
    end: dict[str, Any] = json.loads((attempt_of(folder, what) / "end.json").read_text())
    assert end["state"] == "done"
    assert all(gate["passed"] for gate in end["gates"])
    assert [rank["rows"] for rank in end["ranks"]] == [12] * what.ranks
    return end


@pytest.mark.dear
def test_what_shards_exchange(tmp_path: Path) -> None:
    """Without DDP there are no buckets, and no part of the step is said to be the exchange; the profiler saw it, and the report
    shows that.
    """
    what = point(2, measure={"comm": "check"})
    found = done(tmp_path, what, SHARDED)["profiled_exchange"]
    assert found["steps"] == 8
    assert 0 < found["exposed_s"] <= found["collectives_s"] <= found["step_s"]
    assert "all_gather" in found["by_operation_s"]
    assert found["step_clock_exposed_s"] is None
    records = load_study(Study(tmp_path / "study"))
    (run,) = records.runs
    assert (run.state, run.exchange, (run.part_ns or {})["comm_exposed"]) == ("counts", None, None)
    (row,) = study_tables(find(records))["profiled exchange"].rows
    assert [cell.text for cell in row][3] == "1"


def test_beside_ddps_buckets(tmp_path: Path) -> None:
    """The step clock's exposed communication of the same steps stands beside the profiler's; a trace of them is left."""
    what = point(2, measure={"comm": "check", "profile_steps": 3, "profile_ranks": (1,)})
    end = done(tmp_path, what, PLAIN)
    found = end["profiled_exchange"]
    assert found["steps"] == 8
    assert found["by_operation_s"].keys() == {"all_reduce"}
    assert found["step_clock_exposed_s"] > 0
    assert [rank["bucket_rows"] for rank in end["ranks"]] == [12, 12]
    attempt = attempt_of(tmp_path, what)
    assert not trace_file(attempt, 0).exists()
    with gzip.open(trace_file(attempt, 1), "rt") as text:
        names = {event.get("name") for event in json.load(text)["traceEvents"]}
    assert len({name for name in names if str(name).startswith("ProfilerStep#")}) == 8


def test_a_loop_that_ends_before_them(tmp_path: Path) -> None:
    """The run counts, and nothing is said of the exchange."""
    what = point(1, measure={"profile_steps": 8})
    assert "profiled_exchange" not in done(tmp_path, what, TEN_BATCHES)
    assert not trace_file(attempt_of(tmp_path, what), 0).exists()
