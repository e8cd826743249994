"""What the GPU tests themselves are held to: nothing that touches CUDA is left out, and the page is what the results say."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gpu.page import gpu_tests, page
from tests.gpu.results import FILE_VARIABLE, Figures, append_result, read_results

ROOT = Path(__file__).parent.parent.parent

NAMES_CUDA = re.compile(r"\bcuda\b|\bnccl\b|pynvml|\bnvml\b", re.IGNORECASE)

MACHINE = {"machine": "a processor", "driver": "580.1", "versions": {"torch": "2.11"}, "commit": "0123abc", "date": "2026-11-23"}
"""Of a line of results, beside the GPUs."""


def touching() -> set[str]:
    """Files whose code names CUDA, NCCL or NVML: comments and docstrings do not count."""
    files = [file for folder in ("worker", "data") for file in (ROOT / "hpcddp" / folder).rglob("*.py")]
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
    """docs/gpu.md is what docs/gpu.jsonl and the tests' marks give."""
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


def test_without_a_gpu_it_says_so(tmp_path: Path) -> None:
    """And that is no failure."""
    command = [sys.executable, "-m", "tests.gpu", "--results", str(tmp_path / "results.jsonl")]
    done = subprocess.run(command, cwd=ROOT, env={"CUDA_VISIBLE_DEVICES": ""}, capture_output=True, text=True, check=True)
    assert done.stdout == "skipped: no GPU\n"
    assert not (tmp_path / "results.jsonl").exists()
