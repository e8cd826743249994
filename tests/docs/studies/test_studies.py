"""The studies' pages: made parts and figures are as the data is, numbers have their line, and commands run as written."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from hpcddp.cli import main
from hpcddp.sweep.shipped import shipped_sweeps
from tests import throttled
from tests.commands.conftest import Run, run
from tests.docs.studies.page import fingerprint
from tests.docs.studies.small_study import result_of, run_command, run_small
from tests.docs.studies.text import (
    BLOCK,
    PAGES,
    ROOT,
    UnsupportedNumberError,
    check_number,
    cited_numbers,
    code_with_numbers,
    commands,
    read_page,
    small_commands,
    small_result,
    study_pages,
    uncited_numbers,
)

__all__ = ["run"]  # a fixture

STUDIES = study_pages()

PARTS = ("## Published", "## What does not hold", "## How this sweep measures it", "## What it finds here, small")


def test_every_study_has_its_page_and_every_page_its_sweep() -> None:
    pages = {sweep.name: sweep.page for sweep in shipped_sweeps() if sweep.page}
    assert pages == {study: f"docs/studies/{study}.md" for study in STUDIES}
    shown = CliRunner().invoke(main, ["studies"]).stdout
    for sweep in shipped_sweeps():
        assert (f"{sweep.name}: {sweep.line}\n    {sweep.page}\n" in shown) == (sweep.page is not None)


@pytest.mark.parametrize("study", STUDIES)
def test_a_page_has_its_parts_and_a_figure_of_its_data(study: str) -> None:
    """The figure's description is a hash of all that is drawn; `make docs` draws it anew."""
    text = read_page(study)
    assert "**Question.**" in text
    assert [heading for heading in PARTS if heading in text] == list(PARTS)
    assert {"published", "audit", "sweep", "measured", "lines"} <= Counter(found[2] for found in BLOCK.finditer(text)).keys()
    assert f"({study}.svg)" in text
    assert fingerprint(study) in (PAGES / f"{study}.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize("study", STUDIES)
def test_every_number_of_the_text_has_its_line(study: str) -> None:
    text = read_page(study)
    assert uncited_numbers(text) == []
    for number, label in cited_numbers(text):
        check_number(study, number, label)
    sweep = (ROOT / "jobs" / f"{study}.yaml").read_text(encoding="utf-8")
    typed = "\n".join(commands(study))
    assert [code for code in code_with_numbers(text) if code not in sweep and code not in typed] == []


@pytest.mark.parametrize(
    ("number", "label", "wrong"),
    [
        ("3,466 s", "p2", "3,467 s"),
        ("24.9", "p2/p23", "24.8"),
        ("39 %", "p2/p23/p23.gpus", "38 %"),
        ("13.86", "marconi100:9", "13.87"),
        ("0:02:19", "marconi100:9", "0:02:20"),
        *((None, label, "2") for label in ("p2/x", "q2")),
    ],
)
def test_a_number_that_does_not_follow_from_its_line_is_refused(number: str | None, label: str, wrong: str) -> None:
    """Marconi100's 24.9 times on 64 GPUs, or 39 % of perfect."""
    if number:
        check_number("rcc-mnist", number, label)
    with pytest.raises(UnsupportedNumberError):
        check_number("rcc-mnist", wrong, label)


def test_numbers_in_names_are_none() -> None:
    """ResNet-18, V100, fp32 and g5.2xlarge say nothing; a count and a time do."""
    assert uncited_numbers("ResNet-18, CIFAR-10, V100, fp32, g5.2xlarge and n01-g4 [of 7][p2] `x: 3`\n    --set x=4\n") == []
    assert uncited_numbers("in 3,466 s, 1.55 times, 39 %") == ["3,466", "1.55", "39"]


@pytest.mark.dear
@pytest.mark.parametrize("study", study_pages())
def test_the_commands_run_as_they_are_written(study: str, tmp_path: Path) -> None:
    """As far as one comes without training: what submits does so with --dry-run."""
    for command in (*commands(study), *small_commands(study)):
        if "hpcddp analyze" not in command:
            done = run_command(f"{command} --dry-run" if re.search("hpcddp (submit|bench)", command) else command, tmp_path)
            assert done.returncode == 0, done


@pytest.mark.soak
@pytest.mark.parametrize("study", study_pages())
def test_the_small_study_gives_the_table_of_the_page(study: str, tmp_path: Path) -> None:
    small = run_small(study, tmp_path)
    assert [each.returncode for each in small] == [0] * len(small), small
    assert re.search(r"overlay \S+: \d+ points? of", small[-1].stdout)
    (gates,) = re.findall(r"gates +(\d+) of (\d+) runs pass", small[-1].stdout)
    assert gates[0] == gates[1]
    found = result_of(tmp_path / study / "report" / "report.json")
    rows, committed = (
        [(row["nodes"], row["ranks"], row["what"]) for row in each["rows"]] for each in (found, small_result(study))
    )
    assert rows == committed


BYTES_PER_S = 1e4

SWEEP = """
schema: 1
cluster: local
device: cpu
workload: {model: resnet18, data: {name: imagenet, root: tars}, batch_per_gpu: 2}
layout: {physical_cores_per_rank: 1}
points: {workers: {measure.input: [full, io], workload.loader_workers_per_rank: [0, 1]}}
measure: {warmup_steps: 2, steps: 8}
slurm: {walltime_min: 5}
"""


@pytest.mark.soak
def test_a_slow_folder_is_named_and_the_fastest_loader(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No loader gives more than the folder, whose rate is what they wait for."""
    throttled.write_tars(tmp_path, 100)
    pictures = [file.stat().st_size for file in tmp_path.glob("loose/train/*/*")]
    for name, value in throttled.variables(tmp_path / "tars", BYTES_PER_S).items():
        monkeypatch.setenv(name, value)
    (tmp_path / "small.yaml").write_text(SWEEP)
    assert run("submit", "small.yaml", "--wait", "-y").exit_code == 0
    (found,) = json.loads(run("analyze", "small", "--format", "json").stdout)["studies"]
    rates = [row["samples_per_s"] for row in found["points"] if row["input"] == "io"]
    assert rates == pytest.approx([BYTES_PER_S * len(pictures) / sum(pictures)] * 2, rel=0.2)
    assert any(each.startswith("Fastest loader") for each in found["sentences"])
    bound = [each["evidence"] for each in found["verdicts"] if each["name"] == "input-bound"]
    assert any("The limit is storage." in each for each in bound)
