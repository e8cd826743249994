"""docs/gpu.md from results: `python -m tests.gpu.page docs/gpu.jsonl > docs/gpu.md`."""

from __future__ import annotations

import importlib
import inspect
import itertools
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.gpu.device import read_results

HERE = Path(__file__).parent

HEAD = """# On a GPU

How hpcddp is tested on GPUs, and what the tests found.

    make gpu                               # on the GPUs of this machine, some minutes; without one it says so
    make gpu RESULTS=docs/gpu.jsonl        # and the lines of JSON that this page is made from go there
    python -m tests.gpu                    # the same with the torch, torchvision and pytest that are there already
    python -m tests.bench.gpu_step         # its last part: what measuring costs a step of ResNet-50, and how fast it trains
    python -m tests.gpu --stand-in         # without a GPU: the tests themselves, as `make test` runs them
    python -m tests.gpu.page docs/gpu.jsonl > docs/gpu.md

Ranks are as many as GPUs, of NVIDIA's or AMD's. A figure outside its bounds fails its test, one beyond its aim does not.
What lacks something is skipped, and says what. The mark of each test in `tests/gpu/` names the files that it covers, and what a
stand-in cannot show.
"""

NEVER = "Not run on a GPU yet. All of these tests pass on the stand-in.\n"


def page(results: list[dict[str, Any]]) -> str:
    return "\n".join([HEAD, "## Results\n", *(_machines(results) or [NEVER])])


def _machines(results: list[dict[str, Any]]) -> list[str]:
    def where(line: dict[str, Any]) -> tuple[str, str, str]:
        names = [gpu["name"] for gpu in line["gpus"]]
        gpus = ", ".join(f"{len(list(same))} x {name}" for name, same in itertools.groupby(names))
        versions = ", ".join(f"{name} {version}" for name, version in sorted(line["versions"].items()) if version)
        return f"{gpus}, {line['date']}", f"{line['machine']}; driver {line['driver']}; {versions}", f"commit {line['commit']}"

    return [part for place, lines in itertools.groupby(results, where) for part in _machine(place, list(lines))]


def _machine(place: tuple[str, str, str], lines: list[dict[str, Any]]) -> Iterator[str]:
    yield f"### {place[0]}\n\n{place[1]}; {place[2]}\n"
    yield "| test | outcome | figures |\n|---|---|---|"
    for line in lines:
        figures = "<br>".join(_figure(name, figure) for name, figure in line["figures"].items())
        outcome = line["outcome"] + (f": {line['reason']}" if line["reason"] else "")
        yield f"| {_cell(line['test'])} | {_cell(outcome)} | {figures} |"
    yield ""


def _figure(name: str, figure: dict[str, float]) -> str:
    words = {"least": "at least", "most": "at most", "aim": "aim"}
    limits = " and ".join(f"{said} {figure[word]:g}" for word, said in words.items() if word in figure)
    interval = f" ({figure['low']:.3g} to {figure['high']:.3g})" if "low" in figure else ""
    return f"{name} {figure['value']:.5g}{interval}" + (f" ({limits})" if limits else "")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def gpu_tests() -> Iterator[tuple[str, Any]]:
    """File and function of every test here that is marked."""
    for file in sorted(HERE.glob("test_*.py")):
        module = importlib.import_module(f"tests.gpu.{file.stem}")
        for name, test in inspect.getmembers(module, inspect.isfunction):
            if name.startswith("test_") and any(mark.name == "gpu" for mark in getattr(test, "pytestmark", ())):
                yield file.stem, test


def main(files: Iterable[str]) -> None:
    print(page([line for file in files for line in read_results(Path(file))]), end="")


if __name__ == "__main__":
    main(sys.argv[1:])
