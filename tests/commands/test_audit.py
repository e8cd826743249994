from __future__ import annotations

import json
from pathlib import Path

from hpcddp.core.errors import DIFFERS, USAGE

from .conftest import Run

PUBLISHED = Path(__file__).parents[1] / "analysis" / "audits"


def test_findings_end_with_4_and_come_heaviest_first(run: Run) -> None:
    """One sentence, then classes by weight, then what holds."""
    done = run("audit", PUBLISHED / "rcc-bigmnist.csv")
    assert done.exit_code == DIFFERS
    assert done.stdout.splitlines()[0].startswith("rcc-bigmnist.csv: 33 things in 54 rows do not add up. First:")
    assert done.stdout.index("gpu types pooled") < done.stdout.index("speedup wrong")
    assert "checked and holds: 5 speedup values" in done.stdout


def test_nothing_found_ends_with_0(run: Run) -> None:
    done = run("audit", PUBLISHED / "sagemaker.csv")
    assert (done.exit_code, done.stdout.splitlines()[0]) == (0, "sagemaker.csv: nothing wrong found in 3 rows.")


def test_json(run: Run) -> None:
    """Class, lines, claim, what follows, sentence and advice of each finding."""
    plain = json.loads(run("audit", "--format", "json", PUBLISHED / "rcc-mnist.csv").stdout)
    assert plain["findings"] == [
        {
            "class": "steps_wrong",
            "weight": 2,
            "lines": [3],
            "claimed": "625",
            "follows": "469",
            "sentence": "60,000 samples in batches of 64 on 1x2 are 469 steps, not 625",
            "advice": "steps per epoch are samples over the global batch, rounded up (down where the last batch is dropped)",
        }
    ]
    assert plain["holds"]["speedup values"] == 7


def test_several_tables_are_told_one_by_one(run: Run, tmp_path: Path) -> None:
    """Of several files, and of one page, where each is named by its first line; JSON has `tables`."""
    files = (PUBLISHED / "nyu-q1.csv", PUBLISHED / "nyu-q2-q3.csv")
    done = run("audit", *files)
    assert done.stdout.index("nyu-q1.csv: nothing") < done.stdout.index("nyu-q2-q3.csv: ")
    plain = json.loads(run("audit", "--format", "json", *files).stdout)
    assert [table["rows"] for table in plain["tables"]] == [4, 12]
    table = "| GPUs | img/s | speedup |\n|---|---|---|\n| 1 | 100 | 1.0 |\n| 4 | 380 | {} |\n"
    (tmp_path / "page.md").write_text(f"# One\n\n{table.format(3.8)}\ntext\n\n{table.format(3.2)}", encoding="utf-8")
    page = run("audit", "page.md")
    assert page.exit_code == DIFFERS
    assert "page.md:3: nothing wrong found" in page.stdout
    assert "page.md:10: 1 thing in 2 rows does not add up" in page.stdout


def test_bad_input_is_named_with_its_line(run: Run, tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text("nodes\ttime\n1\tlong\n", encoding="utf-8")
    done = run("audit", "t.tsv")
    assert done.exit_code == USAGE
    assert done.stderr.startswith("t.tsv:2: time: `long` is not a time")


def test_cells_do_nothing_to_the_terminal(run: Run, tmp_path: Path) -> None:
    """Escape sequences and marks that turn text around are shown, in findings, remarks and complaints."""
    (tmp_path / "t.csv").write_text("nodes,gpu_type,\x1b[2Jcolour,time\n1,V\u202e / \x1b[31mA,red,9\n", encoding="utf-8")
    done = run("audit", "t.csv")
    assert r"V\u202e / \x1b[31mA is 31MA and V in one run" in " ".join(done.stdout.split())
    (tmp_path / "bad.csv").write_text("nodes,time\n1,\x1b[2Jlong\n", encoding="utf-8")
    refused = run("audit", "bad.csv")
    assert r"`\x1b[2Jlong` is not a time" in refused.stderr
    assert "\x1b" not in done.stdout + done.stderr + refused.stderr
