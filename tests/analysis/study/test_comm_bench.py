"""Benchmarks of collectives: their own table, files and figure, and no place among the runs that train."""

from __future__ import annotations

import csv
import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hpcddp.analysis import analyze
from hpcddp.analysis.study.comm_bench import OPS
from hpcddp.analysis.study.load import load_study
from hpcddp.core.comm_record import bus_share, fit_link
from hpcddp.core.point import Point, comm_point
from hpcddp.core.records import SCHEMA, write_json
from hpcddp.core.run_root import Study
from tests.analysis.synthetic import PASSED, point, write_runs, write_study

pytestmark = pytest.mark.usefixtures("undrawn")

SIZES = tuple(4**power for power in range(5, 16))
GB = 10**9


def operation(op: str, ranks: int, latency_s: float, bus_bytes_per_s: float) -> dict[str, Any]:
    """What the worker records of a perfect link of that latency and bus bandwidth."""
    share = bus_share(op, ranks)
    times_s = {size: latency_s + size * share / bus_bytes_per_s for size in SIZES}
    rows = [
        {
            **{"bytes": size, "calls": 8, "time_s": time_s, "time_min_s": time_s, "time_max_s": time_s, "correct": True},
            **{"algbw_bytes_per_s": size / time_s, "busbw_bytes_per_s": size / time_s * share, "wrong_rank": None},
        }
        for size, time_s in times_s.items()
    ]
    return {"sizes": rows, "left_out": [], "not_supported": None, "fit": dataclasses.asdict(fit_link(times_s))}


def write_benchmark(study: Study, bench: Point, ops: Mapping[str, Any], gpu: str = "V100") -> Path:
    """One attempt of a benchmark with those operations."""
    attempt = study.attempt_dir(bench.label, 1, "100", 0)
    who = {"schema": SCHEMA, "point": bench.id, "run": 1}
    launch = {**who, "ranks": bench.ranks, "env_id": "env-1", "gpus": [gpu]}
    write_json(attempt / "launch.json", launch)
    write_json(attempt / "comm.json", {**who, "backend": "nccl", "ranks": bench.ranks, "ops": ops})
    write_json(attempt / "end.json", {"schema": SCHEMA, "state": "done", "reason": None, "gates": PASSED, "ranks": []})
    return attempt


def write_benchmarks(folder: Path) -> Study:
    """1, 2 and 4 nodes of 4 GPUs: 40 GB/s within a node, 10 GB/s across, more latency with every node; with training runs."""
    training = [point(nodes, 4) for nodes in (1, 2, 4)]
    benches = [comm_point(each) for each in training]
    study = write_study(folder, [*training, *benches])
    for each, bench in zip(training, benches, strict=True):
        write_runs(study, each, [100_000_000])
        nodes = bench.layout.nodes
        ops = {
            op: operation(op, bench.ranks, 20e-6 * nodes * (1 + i / 4), (40 if nodes == 1 else 10) * GB * (1 - i / 10))
            for i, op in enumerate(OPS)
        }
        write_benchmark(study, bench, ops)
    return study


def only_bench(folder: Path, nodes: int, **ops: Any) -> Study:
    """As `bench comm` without a sweep leaves it."""
    bench = comm_point(point(nodes, 4))
    study = write_study(folder / "study", [bench])
    write_benchmark(study, bench, ops)
    return study


def rows(file: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(file.read_text(encoding="utf-8").splitlines()))


@pytest.mark.dear
@pytest.mark.usefixtures("drawn")
def test_table_files_and_figure(tmp_path: Path) -> None:
    study = write_benchmarks(tmp_path / "study")
    (result,) = analyze(study.folder)
    report = study.folder / "report"
    assert len(rows(report / "comm.csv")) == 3 * len(OPS) * len(SIZES)
    first = rows(report / "comm_fit.csv")[0]
    assert (first["layout"], first["op"], first["ranks"]) == ("1 node x 4 GPUs", "all_reduce", "4")
    assert float(first["latency_s"]) == pytest.approx(20e-6)
    assert float(first["busbw_bytes_per_s"]) == pytest.approx(40 * GB)
    assert float(first["bandwidth_bytes_per_s"]) == pytest.approx(40 * GB / 1.5)
    assert ["1", "node", "x", "4", "GPUs", "all-reduce", "20.0"] in [line.split()[:7] for line in result.text.splitlines()]
    assert json.loads((report / "report.json").read_text())["collectives"][0]["op"] == "all_reduce"
    assert (report / "figures" / "comm.png").stat().st_size > 1000
    assert {"comm.csv", "comm_fit.csv", "figures/comm.svg"} <= set(result.plain["files"])


def test_they_are_not_training_runs(tmp_path: Path) -> None:
    study = write_benchmarks(tmp_path / "study")
    (result,) = analyze(study.folder)
    assert len(rows(study.folder / "report" / "scaling.csv")) == 3
    assert (result.missing, result.plain["rejected"]) == ((), [])
    assert "checks    6 of 6 runs pass" in result.text
    bench = comm_point(point(2, 4))
    (study.attempt_dir(bench.label, 1, "100", 0) / "comm.json").write_text("{")
    (result,) = analyze(study.folder)
    assert result.plain["rejected"] == [{"run": f"r1 of {bench.label}", "reason": "comm.json is damaged or missing"}]
    assert {row["nodes"] for row in rows(study.folder / "report" / "comm.csv")} == {"1", "4"}


def test_a_study_of_benchmarks_alone(tmp_path: Path) -> None:
    study = only_bench(tmp_path, 2, all_reduce=operation("all_reduce", 8, 30e-6, 10 * GB))
    (result,) = analyze(study.folder)
    assert "2 nodes x 4 GPUs" in result.text
    assert "samples/s" not in result.text


def test_layouts_of_several_node_types_are_told_apart(tmp_path: Path) -> None:
    benches = [comm_point(point(1, 4, node_type=name)) for name in ("v100", "a40")]
    study = write_study(tmp_path / "study", benches)
    for bench, gpu in zip(benches, ("V100", "A40"), strict=True):
        write_benchmark(study, bench, {"broadcast": operation("broadcast", 4, 30e-6, 10 * GB)}, gpu)
    analyze(study.folder)
    layouts = {row["layout"] for row in rows(study.folder / "report" / "comm_fit.csv")}
    assert layouts == {"1 node x 4 GPUs, node type v100", "1 node x 4 GPUs, node type a40"}


def test_what_could_not_be_timed_is_said(tmp_path: Path) -> None:
    lacking = {"sizes": [], "left_out": [], "not_supported": "no such thing", "fit": dataclasses.asdict(fit_link({}))}
    small = operation("broadcast", 4, 30e-6, GB)
    small |= {"sizes": small["sizes"][:3], "fit": dataclasses.asdict(fit_link({2**10: 1e-5}))}
    study = only_bench(tmp_path, 1, reduce_scatter=lacking, broadcast=small)
    (result,) = analyze(study.folder)
    assert "Reduce-scatter was not timed: nccl reports `no such thing`." in result.text
    (row,) = rows(study.folder / "report" / "comm_fit.csv")
    assert (row["op"], row["bandwidth_bytes_per_s"], row["largest_bytes"]) == ("broadcast", "", "16384")


@pytest.mark.dear
@pytest.mark.usefixtures("drawn")
def test_the_figure_has_six_panels_at_most(tmp_path: Path) -> None:
    benches = [comm_point(point(nodes, 4)) for nodes in range(1, 10)]
    study = write_study(tmp_path / "study", benches)
    for bench in benches:
        write_benchmark(study, bench, {"all_reduce": operation("all_reduce", bench.ranks, 30e-6, GB)})
    (result,) = analyze(study.folder)
    assert "note: the figure of collectives shows 6 of 9 layouts" in result.text


@pytest.mark.parametrize(("name", "time_s"), [("time_s", 0.0), ("time_min_s", -1e-6), ("time_max_s", 1e-9), ("time_s", 1e6)])
def test_times_that_cannot_be_reject_the_benchmark(tmp_path: Path, name: str, time_s: float) -> None:
    all_reduce = operation("all_reduce", 4, 20e-6, 40 * GB)
    all_reduce["sizes"][3][name] = time_s
    (run,) = load_study(only_bench(tmp_path, 1, all_reduce=all_reduce)).runs
    assert run.state == "rejected"
    assert (run.reason or "").startswith("comm.json: all_reduce of 65536 bytes") or "below 0" in (run.reason or "")


def test_a_disturbed_benchmark_is_said_to_be_one(tmp_path: Path) -> None:
    """Sizes up to 4 KiB of 3.1 ms where 64 KiB took 0.37: latency is unknown; calls that differ by more than twice are told."""
    slow, unsteady, old = (operation(op, 8, 20e-6, 10 * GB) for op in ("all_reduce", "broadcast", "all_gather"))
    for row in slow["sizes"][:2]:
        row.update(dict.fromkeys(("time_s", "time_min_s", "time_max_s"), 3.1e-3))
    unsteady["sizes"][0] |= {"time_s": 25e-6, "time_max_s": 90e-6}
    old["fit"] |= {"latency_s": 3.1e-3, "bandwidth_bytes_per_s": 1.0}
    study = only_bench(tmp_path, 2, all_reduce=slow, broadcast=unsteady, all_gather=old)
    (result,) = analyze(study.folder)
    fits = {row["op"]: row for row in result.plain["collectives"]}
    assert fits["all_reduce"]["latency_s"] is None
    assert fits["all_reduce"]["busbw_bytes_per_s"] == pytest.approx(10 * GB, rel=0.02)
    assert fits["broadcast"]["latency_s"] == fits["all_gather"]["latency_s"] == pytest.approx(20e-6)
    first, second = (note for note in result.plain["notes"] if "on 2 nodes x 4 GPUs was" in note)
    assert first.startswith("All-reduce on 2 nodes x 4 GPUs was disturbed: 1 KiB took at least 3.10 ms, ")
    assert "exclude 2 such sizes" in first
    assert second.startswith("Broadcast on 2 nodes x 4 GPUs was unsteady: a call of 1 KiB took 0.0201 to 0.0900 ms")
