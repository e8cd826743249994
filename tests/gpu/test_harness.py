"""What the GPU tests and the benchmark of a step are held to: nothing that touches CUDA is left out."""

from __future__ import annotations

import importlib
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hpcddp.core.catalog import check_workload
from hpcddp.core.point_rules import check_point
from tests.bench import gpu_step
from tests.bench.gpu_step import HOST_BOUND_US, LINES, as_result, best, best_line, compared, summary
from tests.gpu import test_faults, test_probe
from tests.gpu.__main__ import page
from tests.gpu.device import COUNT_VARIABLE, FACTS_VARIABLE, FILE_VARIABLE, Figures, append_result, is_real, read_results
from tests.gpu.ranks import gpu_point
from tests.gpu.test_training import WAYS

ROOT = Path(__file__).parent.parent.parent

NAMES_CUDA = re.compile(r"\bcuda\b|\bnccl\b|pynvml|\bnvml\b|amdsmi", re.IGNORECASE)

MACHINE = {"machine": "a processor", "driver": "580.1", "versions": {"torch": "2.11"}, "commit": "0123abc", "date": "2026-11-23"}
"""Of a line of results, beside the GPUs."""


def touching() -> set[str]:
    """Files whose code names CUDA, NCCL, NVML or AMD SMI: comments and docstrings do not count."""
    files = [file for folder in ("worker", "data", "probe") for file in (ROOT / "hpcddp" / folder).rglob("*.py")]
    return {str(file.relative_to(ROOT)) for file in files if NAMES_CUDA.search(_code(file))}


def _code(file: Path) -> str:
    text = re.sub(r'"""(?:[^"\\]|\\.|"(?!""))*"""', "", file.read_text(encoding="utf-8"))
    return "\n".join(line.partition("#")[0] for line in text.splitlines())


def gpu_tests() -> Iterator[tuple[str, Any]]:
    """File and function of every test here that is marked."""
    for file in sorted(Path(__file__).parent.glob("test_*.py")):
        module = importlib.import_module(f"tests.gpu.{file.stem}")
        for name, test in inspect.getmembers(module, inspect.isfunction):
            if name.startswith("test_") and any(mark.name == "gpu" for mark in getattr(test, "pytestmark", ())):
                yield file.stem, test


def test_every_file_that_touches_cuda_has_a_test() -> None:
    named = {file for _, test in gpu_tests() for mark in test.pytestmark if mark.name == "gpu" for file in mark.kwargs["files"]}
    assert touching() - named == set()
    assert [file for file in named if not (ROOT / file).is_file()] == []


def test_the_page_is_made_of_the_results() -> None:
    assert (ROOT / "docs" / "gpu.md").read_text(encoding="utf-8") == page(read_results(ROOT / "docs" / "gpu.jsonl"))


def test_a_result_has_its_place_on_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GPU, outcome, figures with their bounds; a line of a stand-in is none."""
    file = tmp_path / "results.jsonl"
    monkeypatch.setenv(FILE_VARIABLE, str(file))
    append_result({"test": "test_a.py::test_b", "outcome": "passed", "reason": None, "figures": {}})
    assert json.loads(file.read_text())["stand_in"]
    assert read_results(file) == []
    line = {"test": "test_a.py::test_b", "outcome": "failed", "reason": "a | b", "gpus": [{"name": "H200"}] * 2}
    found = page([{**line, **MACHINE, "figures": {"closure_percent": {"value": 0.25, "most": 1.0}}}])
    assert "### 2 x H200, 2026-11-23" in found
    assert "| test_a.py::test_b | failed: a \\| b | closure_percent 0.25 (at most 1) |" in found


def test_a_bound_holds_on_a_gpu_only(monkeypatch: pytest.MonkeyPatch) -> None:
    Figures().add("closure_percent", 7.0, most=1.0)
    with pytest.raises(AssertionError, match="is nan"):
        Figures().add("closure_percent", float("nan"))
    monkeypatch.setattr("tests.gpu.device.is_real", lambda: True)
    with pytest.raises(AssertionError, match="closure_percent is 7, and should be at most 1"):
        Figures().add("closure_percent", 7.0, most=1.0)


@pytest.fixture(autouse=True)
def no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where there are some: what is said here of the stand-in holds everywhere."""
    for name in (COUNT_VARIABLE, FACTS_VARIABLE, FILE_VARIABLE):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def four_gpus(no_gpus: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the tests see them; there are none."""
    monkeypatch.setenv(COUNT_VARIABLE, "4")
    monkeypatch.setenv(FACTS_VARIABLE, json.dumps({"gpus": [{"name": "H200", "memory_bytes": 141 * 2**30}] * 4}))


@pytest.mark.usefixtures("four_gpus")
def test_what_runs_on_a_gpu_may_run() -> None:
    ways = [gpu_point(1 if "parallel" in changes else None, **changes) for changes in WAYS.values()]
    steps = [gpu_step.point(loop, compiled) for loop, compiled in gpu_step.LINES]
    for point in (*ways, *steps):
        check_point(point)
        check_workload(point.workload)
    assert {point.ranks for point in ways} == {1, 4}
    assert {point.workload.batch_per_gpu for point in steps} == {2, 128, 256}
    document = pytest.importorskip("yaml", reason="needs PyYAML").safe_load(test_probe.sweep())
    assert document["points"] == {"ranks": {"layout.gpus_per_node": [1, 4]}}
    assert document["workload"]["model"] == "resnet18"
    compile(test_faults.TAKE_THE_REST, "TAKE_THE_REST", "exec")


@pytest.mark.dear
def test_without_a_gpu_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = [sys.executable, "-m", "tests.gpu", "--results", str(tmp_path / "results.jsonl")]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "skipped: no GPU\n"
    assert not (tmp_path / "results.jsonl").exists()


@pytest.mark.skipif(is_real(), reason="python -m tests.bench.gpu_step runs all of it")
@pytest.mark.parametrize("loop", ["fused", "on", "best"])
def test_both_loops_train_in_alternating_blocks(loop: str) -> None:
    row = compared(loop, loop == "best")
    assert row["blocks"] == 3
    assert row["bare_ms"] > 0
    assert row["flops_per_sample"] > 0
    assert row["buckets"] == (2 if loop == "on" else 0)


def rows(**changes: tuple[float, float]) -> list[dict[str, Any]]:
    """Lines whose loops take nothing more; `changes`: the interval of a loop that is not compiled, in percent."""
    found = []
    for loop, compiled in LINES:
        low, high = changes.get(loop.replace(" ", "_"), (0.0, 0.0)) if not compiled or loop == "best" else (0.0, 0.0)
        middle = (low + high) / 2
        times = {"bare_ms": 50.0, "added_us": middle * 500, "added_percent": middle, "low_percent": low, "high_percent": high}
        known = {"batch": 128, "blocks": 12, "buckets": 5 * loop.endswith("on"), "flops_per_sample": 24_000_000_000}
        found.append({"loop": loop, "compiled": compiled, **known, **times})
    return found


@pytest.mark.parametrize(
    ("intervals", "holds", "of_on"),
    [
        ({"on": (0.5, 1.9)}, True, True),
        ({"on": (2.1, 2.5)}, False, False),
        ({"on": (1.0, 3.0)}, True, None),  # what lies across it is not resolved, and fails nothing
        ({"equal": (5.0, 6.0), "fused": (-9.0, -8.0)}, True, True),  # loops by hand are not judged
        ({"best": (2.0, 3.0)}, True, True),  # 97 % of the best loop: 3.09 % more
        ({"best": (3.2, 4.0)}, False, True),
        ({"host_off": (0.3, 0.4)}, False, True),  # of 50 ms: host time has a bound of its own, in microseconds
    ],
)
def test_a_bound_is_judged_by_the_interval(intervals: dict[str, tuple[float, float]], holds: bool, of_on: bool | None) -> None:
    result = summary(rows(**intervals))
    (row,) = (row for row in result["steps"] if row["loop"] == "on" and not row["compiled"])
    assert (result["holds"], row["holds"]) == (holds, of_on)


def test_host_time_and_what_the_hook_adds_are_said() -> None:
    """In microseconds, of a step of 50 ms; beyond an aim nothing fails."""
    result = summary(rows(host_off=(0.1, 0.1), host_on=(0.3, 0.3)))
    assert (result["holds"], result["host_us"], result["hook_us"]) == (True, 50.0, 100.0)
    assert (result["host_aim_us"], result["hook_aim_us"]) == (20.0, 50.0)
    assert as_result(result)["figures"]["hook_us"] == {"value": 100.0, "aim": 50.0}


def test_resnet_50_is_beside_the_best_loop_the_peak_and_mlperf() -> None:
    lines = rows(best=(1.9, 2.1))
    found = best(lines, "NVIDIA H200")
    assert found["images_per_s"] == pytest.approx(128 / 51 * 1e3, abs=0.1)
    assert found["share_of_best_loop_percent"] == pytest.approx(100 / 1.02, abs=0.01)
    assert found["share_of_peak_percent"] == pytest.approx(100 * 128 / 0.051 * 24e9 / 989.5e12, abs=0.01)
    assert found["share_of_mlperf_percent"] == pytest.approx(100 * 128 / 0.051 / 7950, abs=0.01)
    lines[0]["bare_ms"] = 40.0
    assert best(lines, "NVIDIA H200")["share_of_best_loop_percent"] == pytest.approx(100 * 40 / 51, abs=0.01)
    assert best(lines, "another")["share_of_peak_percent"] is None
    assert "98.04 % of the best loop by hand, 6.09 % of the card's peak in bf16, 31.57 % of MLPerf's 7950" in best_line(found)


def test_its_result_is_a_line_as_a_tests() -> None:
    figures = as_result(summary(rows(on=(0.5, 1.5))))["figures"]
    assert figures["on_added_percent"] == {"value": 1.0, "low": 0.5, "high": 1.5, "most": 2.0}
    assert figures["host_us"]["most"] == HOST_BOUND_US
    assert figures["off_compiled_bare_images_per_s"]["value"] == 2560.0
