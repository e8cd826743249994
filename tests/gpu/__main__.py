"""Everything that touches CUDA, on the GPUs of this machine: `python -m tests.gpu`, which is what `make gpu` runs.

Needs torch, torchvision and pytest; a test that lacks something else is skipped and says what. Without a GPU it says so and ends
with 0. `--stand-in`: on the stand-in of standin.py. `--page RESULTS` prints docs/gpu.md. Further arguments go to pytest.
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.gpu.device import add_options, read_results, start

HERE = Path(__file__).parent


def main() -> int:
    """Of the first part that fails, pytest's or the benchmark's exit code; both run."""
    # The benchmark comes last: it takes longest, and a machine may be there for minutes only.
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    parser.add_argument("--page", type=Path, metavar="RESULTS", help="print docs/gpu.md as such a file makes it, and run nothing")
    chosen, for_pytest = parser.parse_known_args()
    if chosen.page:
        print(page(read_results(chosen.page)), end="")
        return 0
    if not start(chosen):
        return 0
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # another project's might begin CUDA here, before the ranks are forked
    where = [] if any(argument.startswith("tests/") for argument in for_pytest) else [str(HERE)]
    parts = [["-m", "pytest", *PYTEST, *for_pytest, *where]]
    if not for_pytest:
        parts.append(["-m", "tests.bench.gpu_step", *(["--stand-in"] if chosen.stand_in else [])])
    codes = [subprocess.run([sys.executable, *part], check=False).returncode for part in parts]
    return next((code for code in codes if code), 0)


PYTEST = (
    *("-p", "no:cacheprovider", "-W", "default", "--continue-on-collection-errors", f"--confcutdir={HERE}", "--durations=5"),
    *("-m", "gpu or not soak"),
)
"""Without the fixtures of other tests and what they need; what another torch warns of is shown, and fails nothing."""


HEAD = """# On a GPU

How hpcddp is tested on GPUs, and what the tests found.

    make gpu                               # on the GPUs of this machine, some minutes; without one it says so
    make gpu RESULTS=docs/gpu.jsonl        # and the lines of JSON that this page is made from go there
    python -m tests.gpu                    # the same with the torch, torchvision and pytest that are there already
    python -m tests.bench.gpu_step         # its last part: what measuring costs a step of ResNet-50, and how fast it trains
    python -m tests.gpu --stand-in         # without a GPU: the tests themselves, as `make test` runs them
    python -m tests.gpu --page docs/gpu.jsonl > docs/gpu.md

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


if __name__ == "__main__":
    sys.exit(main())
