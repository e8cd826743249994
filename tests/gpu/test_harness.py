"""What the GPU tests themselves are held to: nothing that touches CUDA is left out, and the page is what the results say."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hpcddp.core.catalog import check_workload
from hpcddp.core.point_rules import check_point
from tests.bench import gpu_step
from tests.gpu import test_memory, test_submit
from tests.gpu.device import COUNT_VARIABLE, FACTS_VARIABLE
from tests.gpu.page import gpu_tests, page
from tests.gpu.ranks import gpu_point
from tests.gpu.results import FILE_VARIABLE, Figures, append_result, read_results
from tests.gpu.test_precision import WAYS

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


def test_every_file_that_touches_cuda_has_a_test() -> None:
    """The marks of the tests name all of them, and only files that are there."""
    named = {file for _, test in gpu_tests() for mark in test.pytestmark if mark.name == "gpu" for file in mark.kwargs["files"]}
    assert touching() - named == set()
    assert [file for file in named if not (ROOT / file).is_file()] == []


def test_the_page_is_made_of_the_results() -> None:
    """docs/gpu.md is what docs/gpu.jsonl gives."""
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
    """A stand-in's time is no GPU's; what is no number is an error everywhere."""
    Figures().add("closure_percent", 7.0, most=1.0)
    with pytest.raises(AssertionError, match="is nan"):
        Figures().add("closure_percent", float("nan"))
    monkeypatch.setattr("tests.gpu.results.is_real", lambda: True)
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
    """The sizes that a stand-in never sees: points and a sweep without a contradiction, code that is Python."""
    ways = [gpu_point(1 if "parallel" in changes else None, **changes) for changes in WAYS.values()]
    steps = [gpu_step.point(loop, compiled) for loop, compiled in gpu_step.LINES]
    for point in (*ways, *steps):
        check_point(point)
        check_workload(point.workload)
    assert {point.ranks for point in ways} == {1, 4}
    assert {point.workload.batch_per_gpu for point in steps} == {2, 128, 256}
    document = pytest.importorskip("yaml", reason="needs PyYAML").safe_load(test_submit.sweep())
    assert document["points"] == {"ranks": {"layout.gpus_per_node": [1, 4]}}
    assert document["workload"]["model"] == "resnet18"
    compile(test_memory.TAKE_THE_REST, "TAKE_THE_REST", "exec")


@pytest.mark.dear
def test_without_a_gpu_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And that is no failure."""
    command = [sys.executable, "-m", "tests.gpu", "--results", str(tmp_path / "results.jsonl")]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "skipped: no GPU\n"
    assert not (tmp_path / "results.jsonl").exists()
