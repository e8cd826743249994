"""Pictures of terminals hold the text that was printed, in the columns in which it was printed.

`python -m tests.docs.test_pictures STUDY` draws what `plan`, `analyze`, `status` and the page show; `make pictures` calls it.

STUDY is the demo's, without names of its machine. A terminal's screen becomes an SVG of its text. `status` shows a study in the
middle of its work: its points are those of a shipped sweep, the states of their runs are made up.
"""

from __future__ import annotations

import base64
import io
import json
import shutil
import subprocess
import sys
import tempfile
from html import escape
from pathlib import Path
from xml.etree import ElementTree

from PIL import Image

from hpcddp.core.hours import Hours
from hpcddp.study.status import RunState
from hpcddp.study.study_status import StudyStatus, status_text
from hpcddp.study.used_hours import StudyHours
from tests.chromium import chromium
from tests.docs.pages import ROOT

FIGURES = ROOT / "docs" / "figures"
COLUMNS, LINES = 80, 24
CELL, LINE, EDGE = 7.8, 18, 16
"""Of a character, a line and the margin, in pixels."""

COLORS = 64
"""Of the page's picture: a third of the bytes, and no difference that shows."""

SWEEP, DATA = "rcc-bigmnist.yaml", ("--set", "workload.data.root=/scratch/bigmnist")

STYLE = (
    "rect { fill: #f6f8fa; stroke: #d0d7de } text { font: 13px ui-monospace, Menlo, Consolas, monospace; fill: #1f2328 } "
    ".typed { font-weight: bold } "
    "@media (prefers-color-scheme: dark) { rect { fill: #0d1117; stroke: #30363d } text { fill: #e6edf3 } }"
)


def terminal_svg(command: str, output: str) -> str:
    """The command after a prompt, and what it printed; a column is as wide with any font."""
    lines = [f"$ {command}", *output.rstrip("\n").splitlines()]
    columns = max(COLUMNS, *map(len, lines))
    width, height = round(columns * CELL + 2 * EDGE), len(lines) * LINE + 2 * EDGE
    texts = "\n".join(_text(line, number) for number, line in enumerate(lines) if line.strip())
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">\n'
        f"<title>{escape(command)}</title>\n<style>{STYLE}</style>\n"
        f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="6"/>\n{texts}\n</svg>\n'
    )


def _text(line: str, number: int) -> str:
    text = line.strip()
    x, y = EDGE + CELL * (len(line) - len(line.lstrip())), EDGE + LINE * number + 13
    typed = "" if number else ' class="typed"'
    return f'<text{typed} x="{x:.1f}" y="{y}" xml:space="preserve" textLength="{CELL * len(text):.1f}">{escape(text)}</text>'


def printed(*arguments: str, folder: Path) -> str:
    """What `hpcddp` prints on a terminal of 80 columns."""
    command = [sys.executable, "-m", "hpcddp", *arguments]
    variables = {"PATH": "/usr/bin:/bin", "COLUMNS": str(COLUMNS), "LINES": str(LINES), "HOME": str(folder)}
    return subprocess.run(command, cwd=folder, env=variables, text=True, check=True, stdout=subprocess.PIPE).stdout


def half_done(folder: Path) -> str:
    """`status --watch` of the sweep while its largest points wait for nodes; one run lost its node."""
    points = json.loads(printed("plan", SWEEP, *DATA, "--format", "json", folder=folder))["points"]
    labels = [str(point["label"]) for point in sorted(points, key=lambda point: point["nodes"])]
    done, working, waiting = labels[:-8], labels[-8:-6], labels[-6:]
    runs = range(1, 7)
    ended = [(label, run) for label in done for run in runs] + [(label, run) for label in working for run in (1, 2)]
    states = [RunState(label=label, run=run, phase="done") for label, run in ended]
    lost = {"detail": "gn03 failed (NODE_FAIL)", "next_step": "submit it again; to exclude gn03: --set slurm.exclude=gn03"}
    states += [RunState(label=working[0], run=3, phase="failed", job="48233", **lost)]  # type: ignore[arg-type]
    for number, label in enumerate(working):
        progress = {"steps_done": 1400 - 700 * number, "steps_total": 2100, "samples_per_s": 61_480, "left_s": 95 + 90 * number}
        states += [RunState(label=label, run=4, phase="running", job=str(48234 + number), **progress)]  # type: ignore[arg-type]
    reason = {"detail": "jobs of higher priority come first (Priority)"}
    states += [RunState(label=label, run=run, phase="queued", **reason) for label in working for run in (5, 6)]  # type: ignore[arg-type]
    reason = {"detail": "required nodes are busy (Resources)", "start": "2026-05-18T14:20:00"}
    states += [RunState(label=label, run=run, phase="queued", **reason) for label in waiting for run in runs]  # type: ignore[arg-type]
    hours = StudyHours(used=Hours(node=3.4, gpu=9.1), to_come=Hours(node=11.2, gpu=44.8))
    status = StudyStatus(name=Path(SWEEP).stem, path=folder / SWEEP, states=states, hours=hours)
    return status_text([status], LINES - 2).replace(f"{folder}/", "")


def draw(study: Path) -> None:
    """Writes docs/figures anew."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(ROOT / "jobs" / SWEEP, folder)
        bundle = f"{study.name}.tar.gz"
        printed("bundle", str(study), "--pseudonymise", "--yes", "-o", bundle, folder=folder)
        analyzed = printed("analyze", bundle, "-o", "report", folder=folder)
        screens = {
            "plan": (f"hpcddp plan {SWEEP}", printed("plan", SWEEP, *DATA, folder=folder)),
            "analyze": (f"hpcddp analyze {bundle} -o report", analyzed),
            "status": (f"hpcddp status {SWEEP} --watch", half_done(folder)),
        }
        for screen, (command, output) in screens.items():
            (FIGURES / f"{screen}.svg").write_text(terminal_svg(command, output), encoding="utf-8")
        with chromium(folder / "browser") as page:
            page.shape(1280, 900)
            page.open(folder / "report" / study.name / "index.html")
            screen_png = Image.open(io.BytesIO(base64.b64decode(page.picture(beyond=False))))
            screen_png.convert("RGB").quantize(COLORS).save(FIGURES / "page.png", optimize=True)


SVG = "{http://www.w3.org/2000/svg}"


def test_a_picture_holds_what_was_printed() -> None:
    lines = ["  a < b  &  c", "", "x" * 90]
    root = ElementTree.fromstring(terminal_svg("hpcddp plan", "\n".join(lines)))
    texts = root.findall(f"{SVG}text")
    assert [text.text for text in texts] == ["$ hpcddp plan", "a < b  &  c", "x" * 90]
    assert [float(text.attrib["x"]) for text in texts] == [EDGE, EDGE + 2 * CELL, EDGE]
    assert [float(text.attrib["y"]) for text in texts] == sorted({float(text.attrib["y"]) for text in texts})
    assert float(root.attrib["width"]) >= 90 * CELL


if __name__ == "__main__":
    draw(Path(sys.argv[1]).resolve())
