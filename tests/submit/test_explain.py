"""Of each line of a script the line of a template, and what it prints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpcddp.backends.slurm_job_files import prepare
from hpcddp.cluster.settings import Settings
from hpcddp.script.render import render, render_marked
from hpcddp.submit.choose import choose_points
from hpcddp.submit.explain import ExplainedLine, explain, explain_by_hand, explanation, printed_fields
from hpcddp.submit.options import PointOptions
from tests import check_golden
from tests.given_plan import allocation_plan, batch_of
from tests.script.test_render import JOBS, SUBMITTED, SWEEPS, by_hand, parts
from tests.script.test_shipped_scripts import script_parts

SWEEP = """\
schema: 1
cluster: mine.yaml
workload: {model: resnet18, data: {name: synthetic-cifar10}}
points: {sizes: {layout.nodes: [2], layout.gpus_per_node: [4]}}
measure: {steps: 40, warmup_steps: 5}
slurm: {walltime_min: 20}
"""

PROFILE_TAIL = """
env: {NCCL_NET_GDR_LEVEL: PHB}
template: mine.sh.j2
"""

TEMPLATE = """\
{% extends "base.sh.j2" %}
{% block teardown %}
echo done
{% endblock %}
"""


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[ExplainedLine]:
    """Of a sweep whose profile has a template beside it."""
    folder = tmp_path_factory.mktemp("site")
    rcc = (JOBS.parent / "clusters" / "rcc.yaml").read_text()
    (folder / "mine.yaml").write_text(rcc.replace("env: {}\n", "") + PROFILE_TAIL)
    (folder / "mine.sh.j2").write_text(TEMPLATE)
    (folder / "sweep.yaml").write_text(SWEEP)
    options = PointOptions(settings=("baselines=false",), job_options=("--comment=ours",))
    return explain_by_hand(choose_points(folder / "sweep.yaml", options), Settings(account="abc01", run_root="/scratch/runs"))


ALWAYS = "PYTHONUNBUFFERED=1 SUBMITIT_EXECUTOR=slurm SLURM_EXPORT_ENV=ALL"

FIELDS = {
    "#SBATCH --nodes=2": ["request.nodes"],
    "#SBATCH --time=20": ["request.walltime_min"],
    "#SBATCH --account=abc01": ["request.user.account"],
    "#SBATCH --comment=ours": ["request.options"],
    "#SBATCH --gres=gpu:v100:4": ["gpu_option"],
    f"export OMP_NUM_THREADS=12 {ALWAYS}": ["request.physical_cores_per_rank"],
    "export NCCL_NET_GDR_LEVEL=PHB": ["cluster.env"],
    "checked module load pytorch": ["modules"],
    "export HPCDDP_RUNS=${HPCDDP_RUNS:-/scratch/runs}": ["launch.run_root"],
    "#!/bin/bash": [],
    "#SBATCH --exclusive": [],
}
"""Line of the script -> the fields that it prints."""


@pytest.mark.parametrize("text", FIELDS)
def test_what_a_line_prints_is_named(lines: list[ExplainedLine], text: str) -> None:
    (line,) = (line for line in lines if line.text == text)
    assert list(line.fields) == FIELDS[text]


def test_a_field_is_of_the_line_that_prints_it(tmp_path: Path) -> None:
    template = tmp_path / "a.j2"
    template.write_text(
        "{% if a.is_on %}\n"
        "on {{ a.b | word }} {{ f(a.c) }}\n"
        "{% endif %}\n"
        "{% for x, y in [(a.d, a.e)] %}\n"
        "{{ x }}{{ y.z }}\n"
        "{% endfor %}\n"
        "{% set s = a.g %}\n"
        "{{ s }}"
    )
    assert printed_fields(template) == {2: ["a.b", "a.c"], 5: ["a.d", "a.e", "a.d.z", "a.e.z"], 8: ["a.g"]}


def test_ones_own_template(lines: list[ExplainedLine]) -> None:
    (line,) = (line for line in lines if line.text == "echo done")
    (place,) = line.templates
    assert (Path(place.file).name, place.line, place.block) == ("mine.sh.j2", 3, "teardown")
    assert f"\n{place.file}, block teardown\n   3  echo done\n" in explanation(lines, 200)


def test_the_text_reads_within_its_width(lines: list[ExplainedLine]) -> None:
    text = explanation(lines, 80).split("\n")
    assert max(map(len, text)) == 80
    shown = [line[6:] for line in text[1:] if line[:4].strip().isdigit() and len(line) < 80]
    assert shown == [line.text for line in lines if line.text.strip() and len(line.text) < 74]
    assert text[text.index("   5  #SBATCH --nodes=2") + 1] == "      <- request.nodes"


@pytest.mark.parametrize("cluster", SWEEPS)
@pytest.mark.parametrize("form", ["by-hand", "submitted"])
def test_every_line_of_every_golden_script(cluster: str, form: str) -> None:
    profile, point, request = parts(cluster, 3)
    lines = explain(profile, point, request, by_hand(profile, point) if form == "by-hand" else SUBMITTED)
    check_golden(f"scripts/{cluster}-{form}.sh", "".join(f"{line.text}\n" for line in lines))
    assert all(line.templates for line in lines)
    header = [line for line in lines if line.text.startswith("#SBATCH") and "=" in line.text and "open-mode" not in line.text]
    assert all(line.fields for line in header)
    assert not any(line.fields for line in lines if line.text in ("#!/bin/bash", 'exec "$@"', 'exit "$rc"', ""))


def test_rules_of_a_site_with_masks_and_variables() -> None:
    lines = explain(*script_parts("lumi-g", 4))
    check_golden("scripts/sites/lumi-g-4.sh", "".join(f"{line.text}\n" for line in lines))
    named = {line.text.split("=")[0]: line.fields for line in lines}
    assert named["export NCCL_SOCKET_IFNAME"] == ("rules.exports",)
    assert named["#SBATCH --partition"] == ("request.partition",)


def test_every_line_of_the_golden_script_of_one_allocation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []

    def recorded(*parts: Any) -> str:
        given.append(parts)
        return render(*parts)

    monkeypatch.setattr("hpcddp.submit.one_allocation.render", recorded)
    planned = allocation_plan(tmp_path, "repeat=1", axes="{layout.nodes: [1, 2], measure.resume: [true, false]}")
    prepare(tmp_path / "job", batch_of(planned, Path("/runs/s")))
    lines = render_marked(*given[-1])
    text = "".join(f"{line.text}\n" for line in lines)
    check_golden("scripts/rcc-one-allocation.sh", text.replace(str(tmp_path), "/runs/s/.jobs"))
    files = {Path(place.file).name for line in lines for place in line.places}
    assert files == {"base.sh.j2", "one_allocation.sh.j2"}
    assert all(line.places for line in lines)
