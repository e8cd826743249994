"""The commands of docs/studies/, and the page on loaders, as written."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests import throttled
from tests.commands.conftest import Run
from tests.docs.studies.small_study import result_of, run_command, run_small
from tests.docs.studies.text import commands, small_commands, small_result, study_pages


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
    assert any("the limit: storage (loaders wait for files" in each for each in bound)
