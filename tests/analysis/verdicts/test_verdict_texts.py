"""What verdicts say, and when they are silent."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from hpcddp.analysis import analyze
from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.util.wording import WIDE
from hpcddp.analysis.verdicts.context import Verdict, listed, run_numbers, where
from hpcddp.analysis.verdicts.findings import find
from hpcddp.analysis.verdicts.straggler import culprit
from hpcddp.analysis.verdicts.verdicts import verdict_lines
from tests.analysis.synthetic import MS, Recorded, point, write_run, write_runs, write_study
from tests.analysis.verdict_studies import PROFILE, Model, write

pytestmark = pytest.mark.usefixtures("undrawn")

STARVED = Model(
    seed=1,
    layouts=[(1, 1), (1, 2), (1, 4)],
    changes={"loader_workers_per_rank": 16, "physical_cores_per_rank": 2},
    cpus_per_rank=8,
    job_share=0.06,
    data_wait=0.6,
    hook=False,
)


def verdicts(model: Model, folder: Path) -> dict[str, Verdict]:
    return {verdict.name: verdict for verdict in find(load_study(write(model, folder / "s"))).verdicts}


def test_the_marconi100_request_is_told_as_it_was(tmp_path: Path) -> None:
    """Two cores, 8 CPUs as Slurm counts them, for 16 workers: 8 cores are there for each rank. One advice for both verdicts."""
    found = verdicts(STARVED, tmp_path)
    starved, bound = found["CPU starvation"], found["input-bound"]
    assert starved.evidence == (
        "a rank has 2 physical cores (8 CPUs as Slurm counts: 4 per core) and needs 17; its CPUs are busy 96 % of the time "
        "(runs r1-r3)"
    )
    assert starved.advice == bound.advice
    assert bound.advice == "ask for 8 physical cores per rank, not 2: `--set layout.physical_cores_per_rank=8`"
    assert bound.where == "at every point"
    assert bound.numbers["wait_share_high"] == pytest.approx(0.6, abs=0.01)
    assert "\n".join(verdict_lines([starved, bound])).count("--set") == 1


def test_waiting_for_data_and_lacking_cores_have_one_advice(tmp_path: Path) -> None:
    """All points wait for data, but on the full node there are as few cores as workers: one verdict must not ask for more workers
    while the other asks for fewer.
    """
    points = {point(1, gpus, loader_workers_per_rank=10): cores for gpus, cores in ((1, 32), (2, 16), (4, 8))}
    study = write_study(tmp_path / "s", list(points))
    for each, cores in points.items():
        node = {"host": "r000", "cpu_busy_share": 0.97, "cpu_job_share": 0.96, "cpu_foreign_share": 0.01}
        launch = {"profile": PROFILE, "cpus_of_ranks": [4 * cores] * each.ranks}
        recorded = Recorded(
            step_ns=80 * MS, steps=20, shares={"data_wait": 0.4}, launch=launch, end={"telemetry": {"nodes": [node]}}
        )
        write_run(study, each, recorded)
    found = {verdict.name: verdict for verdict in find(load_study(study)).verdicts}
    assert found["CPU starvation"].where == "at 1x4"
    assert found["input-bound"].where == "at every point"
    assert found["input-bound"].advice == found["CPU starvation"].advice
    assert found["CPU starvation"].advice.endswith("`--set workload.loader_workers_per_rank=7`")


def test_workers_are_advised_that_the_widest_point_has_cores_for(tmp_path: Path) -> None:
    """One GPU alone has 32 cores, four have 8 each: 7 workers and the rank."""
    points = {point(1, gpus): cores for gpus, cores in ((1, 32), (4, 8))}
    study = write_study(tmp_path / "s", list(points))
    for each, cores in points.items():
        launch = {"profile": PROFILE, "cpus_of_ranks": [4 * cores] * each.ranks}
        write_run(study, each, Recorded(step_ns=80 * MS, steps=20, shares={"data_wait": 0.4}, launch=launch))
    (bound,) = [verdict for verdict in find(load_study(study)).verdicts if verdict.name == "input-bound"]
    assert bound.advice == "a rank has 8 physical cores and 2 loader workers: `--set workload.loader_workers_per_rank=7`"


def test_as_many_cores_as_processes_are_no_starvation(tmp_path: Path) -> None:
    """Eight cores with four threads each run 17 processes that leave half of them idle: the loader waits for something else."""
    model = dataclasses.replace(STARVED, cpus_per_rank=32, job_share=0.12, changes={"loader_workers_per_rank": 16})
    assert set(verdicts(model, tmp_path)) == {"input-bound"}


def test_limits_must_confirm_that_data_is_waited_for(tmp_path: Path) -> None:
    """A batch that is there already makes this trainer no faster: it does not wait for data, whatever the clock says."""
    for name, resident_ms in (("slow", 64), ("fast", 30)):
        points = {point(1, 1): 64, point(1, 1, input="synthetic"): resident_ms}
        study = write_study(tmp_path / name, list(points))
        for each, step_ms in points.items():
            write_run(study, each, Recorded(step_ns=step_ms * MS, steps=20, shares={"data_wait": 0.5, "forward": 0.5}))
        found = [verdict for verdict in find(load_study(study)).verdicts if verdict.name == "input-bound"]
        assert [verdict.numbers.get("trainer") for verdict in found] == ([] if name == "slow" else [pytest.approx(32 / 0.03)])


def ranks(hosts: str, last: list[float], peer_wait_s: list[float]) -> pd.DataFrame:
    """Ranks of one run as culprit sees them; a host per letter."""
    of_run: dict[str, Any] = {"label": "n02", "run": 1, "step_ns": 1e8, "nodes": len(set(hosts))}
    return pd.DataFrame({"rank": range(len(hosts)), "host": list(hosts), "last": last, "peer_wait_s": peer_wait_s}).assign(
        **of_run
    )


def test_a_slow_host_is_found_though_none_of_its_ranks_is_always_last() -> None:
    """Its two ranks share the last place, and the others wait for both."""
    found = culprit(ranks("aabb", [0.02, 0.03, 0.5, 0.45], [0.01, 0.01, 0.001, 0.001]))
    assert found
    assert found.who == "b"
    assert (found.last, found.wait_s) == pytest.approx((0.95, 0.01))


def test_a_rank_that_is_always_last_by_little_is_no_straggler() -> None:
    """Someone is last: it must cost 2 % of the step."""
    assert culprit(ranks("aa", [0.0, 1.0], [0.0019, 0.0])) is None
    found = culprit(ranks("aa", [0.0, 1.0], [0.0021, 0.0]))
    assert found
    assert found.who == "rank 1 on a"
    assert culprit(ranks("a", [1.0], [0.0])) is None


def test_two_kinds_of_steps_by_hand(tmp_path: Path) -> None:
    """Ten of 100 ns after ten of 50 ns: all of the variance lies between them, all slow ones come later."""
    study = write_study(tmp_path / "s", [point(1, 1)])
    write_run(study, point(1, 1), Recorded(step_ns=lambda rank, step: 50 if step <= 10 else 100, steps=20))
    found = load_study(study).runs[0].rhythm
    assert found is not None
    assert (found.fast_ns, found.slow_ns, found.slow_share, found.slow_later) == (50, 100, 0.5, 1.0)
    assert found.apart == pytest.approx(1)
    write_run(study, point(1, 1), Recorded(step_ns=50, steps=20, job="101"))
    assert load_study(study).runs[0].rhythm is None


def test_what_is_to_be_copied_is_not_broken() -> None:
    """Lines are as wide as a terminal; a command in backticks stays in one."""
    command = "`--set layout.physical_cores_per_rank=8 --set workload.loader_workers_per_rank=7`"
    long = Verdict(name="n", where="w", evidence="e " * 99, advice="do it " * 15 + command, numbers={}, runs=(), weight=1)
    lines = verdict_lines([long])
    assert max(map(len, lines)) <= WIDE
    assert any(command in line for line in lines)


def test_of_many_alike_two_are_told() -> None:
    """The rest is counted, with one advice for all."""
    alike = [
        Verdict(name="n", where=f"at {number}", evidence="e", advice="do it", numbers={}, runs=(), weight=1)
        for number in range(5)
    ]
    assert verdict_lines(alike) == [
        "  VERDICT  n at 0: e",
        "  VERDICT  n at 1: e",
        "           and 3 more of this name: see report.json",
        "           do it",
    ]


def test_verdicts_stand_before_the_table_and_in_report_json(tmp_path: Path) -> None:
    """All of them, with their numbers and runs."""
    write(STARVED, tmp_path / "s")
    (result,) = analyze(tmp_path)
    assert result.text.index("VERDICT  CPU starvation at every point") < result.text.index("gates ")
    rows: list[dict[str, Any]] = json.loads((tmp_path / "s/report/report.json").read_bytes())["verdicts"]
    assert [(verdict["name"], len(verdict["runs"])) for verdict in rows] == [("CPU starvation", 9), ("input-bound", 9)]
    assert rows[0]["numbers"] == {"busy_share": pytest.approx(0.96), "cores": 2.0, "needed": 17}


def test_the_sentence_says_why(tmp_path: Path) -> None:
    """Where efficiency is below 90 % and something is known to hold the largest point back; else it stays as short as it was."""
    for name, wait, end in (
        ("waits", 0.6, "for 60 % of the step, one GPU for 60 %), held back most by waiting for data"),
        ("unknown", 0.0, "(50 % efficiency)"),
    ):
        points = {point(1, 1): 16, point(1, 2): 32}
        study = write_study(tmp_path / name, list(points))
        for each, step_ms in points.items():
            write_run(study, each, Recorded(step_ns=step_ms * MS, steps=20, shares={"data_wait": wait, "forward": 0.3}))
        assert find(load_study(study)).sentences[0].partition(";")[0].endswith(end)


def test_places_and_runs_in_words(tmp_path: Path) -> None:
    """Short, and not longer with many."""
    study = write_study(tmp_path / "s", [point(1, 1), point(1, 2), point(2, 2), point(4, 2)], repeat=6)
    for each in (point(1, 1), point(1, 2), point(2, 2), point(4, 2)):
        write_runs(study, each, [MS] * 6)
    records = load_study(study)
    series = find(records).shown
    rows = [row for _, row in series.iterrows()]
    assert where(rows, series, "") == "at every point"
    assert where(rows[1:], series, "batch/GPU 64") == "at every point from 1x2 on (batch/GPU 64)"
    assert where(rows[:2], series, "") == "at 1x1 and 1x2"
    assert listed(list("abcdefg")) == "a, b, c, d and 3 more"
    assert run_numbers([run for run in records.runs if run.run in (1, 2, 3, 5)]) == "runs r1-r3, r5"
    assert run_numbers(records.runs[:1]) == "run r1"
