"""Where each line of a script comes from: what is named, if changed, changes that line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpcddp.backends.slurm_job_files import prepare
from hpcddp.cluster.settings import Settings, config_file, load_settings
from hpcddp.core.schema import encode
from hpcddp.script.dependencies import Input
from hpcddp.script.job_request import User
from hpcddp.script.render import render, render_marked
from hpcddp.script.resources import job_request
from hpcddp.submit.choose import ChosenPoints, choose_points, layout_sweep
from hpcddp.submit.explain import (
    ExplainedLine,
    Origin,
    ScriptParts,
    explain,
    explain_by_hand,
    profile_input,
    sweep_input,
    sweep_places,
)
from hpcddp.submit.explain_text import explanation
from hpcddp.submit.options import LayoutOptions, PointOptions
from hpcddp.submit.scripts_by_hand import scripts_by_hand
from hpcddp.sweep.expand import expand, resolve
from hpcddp.sweep.file import read_sweep
from tests import golden
from tests.given_one_allocation import batch_of, submission_plan
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

CONFIG = "account: abc01\nrun_root: /scratch/runs\n"


def filled(folder: Path, patch: pytest.MonkeyPatch) -> Path:
    """A sweep, a profile that it names with a template beside it, and settings."""
    for name in ("SBATCH_ACCOUNT", "SBATCH_RESERVATION"):
        patch.delenv(name, raising=False)
    patch.setenv("XDG_CONFIG_HOME", str(folder))
    rcc = (JOBS.parent / "clusters" / "rcc.yaml").read_text()
    (folder / "mine.yaml").write_text(rcc.replace("env: {}\n", "") + PROFILE_TAIL)
    (folder / "mine.sh.j2").write_text(TEMPLATE)
    (folder / "sweep.yaml").write_text(SWEEP)
    config_file().parent.mkdir()
    config_file().write_text(CONFIG)
    return folder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return filled(tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def unedited(tmp_path_factory: pytest.TempPathFactory) -> list[ExplainedLine]:
    """The lines of the script that the files as they are make."""
    with pytest.MonkeyPatch.context() as patch:
        return explained(filled(tmp_path_factory.mktemp("unedited"), patch))


def chosen(folder: Path, *settings: str) -> tuple[ChosenPoints, Settings]:
    options = PointOptions(settings=("baselines=false", *settings), job_options=("--comment=ours",))
    return choose_points(folder / "sweep.yaml", options), load_settings()[0]


def script(folder: Path, *settings: str) -> list[str]:
    (text,) = scripts_by_hand(*chosen(folder, *settings)).values()
    return text.split("\n")[:-1]


def explained(folder: Path, *settings: str) -> list[ExplainedLine]:
    return explain_by_hand(*chosen(folder, *settings), None)


def replaced(name: str, old: str, new: str) -> Callable[[Path], None]:
    """An edit by hand of a file of the folder."""

    def edit(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new, 1))

    return edit


KINDS: dict[str, tuple[str, dict[str, Any], Callable[[Path], None]]] = {
    "a fact of the profile": (
        "#SBATCH --gres=gpu:v100:4",
        {"key": "node_types.v100.gres_type", "value": "v100", "grade": "A", "source": "jobs"},
        replaced("mine.yaml", "gres_type:      {value: v100,", "gres_type:      {value: volta,"),
    ),
    "a fact that a number is computed from": (
        "#SBATCH --cpus-per-task=12",
        {"key": "node_types.v100.physical_cores", "value": 48},
        replaced("mine.yaml", "physical_cores: {value: 48,", "physical_cores: {value: 44,"),
    ),
    "a list of the profile": (
        "checked module load pytorch",
        {"key": "compute.modules", "value": ["pytorch"], "grade": "A"},
        replaced("mine.yaml", "modules: {value: [pytorch],", "modules: {value: [pytorch/2.4],"),
    ),
    "a value without a source": (
        "export NCCL_NET_GDR_LEVEL=PHB",
        {"key": "env.NCCL_NET_GDR_LEVEL", "value": "PHB", "grade": None},
        replaced("mine.yaml", "NCCL_NET_GDR_LEVEL: PHB", "NCCL_NET_GDR_LEVEL: SYS"),
    ),
    "a key of the sweep": (
        "#SBATCH --time=20",
        {"key": "slurm.walltime_min", "value": 20, "place": "sweep.yaml:6"},
        replaced("sweep.yaml", "walltime_min: 20", "walltime_min: 21"),
    ),
    "an axis of a group": (
        "#SBATCH --nodes=2",
        {"key": "layout.nodes", "value": 2, "place": "group sizes"},
        replaced("sweep.yaml", "layout.nodes: [2]", "layout.nodes: [3]"),
    ),
    "a default of the sweep": (
        "#SBATCH --exclusive",
        {"key": "layout.exclusive", "value": True, "place": "default"},
        replaced("sweep.yaml", "slurm:", "layout: {exclusive: false}\nslurm:"),
    ),
    "a setting": (
        "#SBATCH --account=abc01",
        {"input": "settings", "key": "account", "value": "abc01"},
        replaced("hpcddp/config.yaml", "abc01", "abc02"),
    ),
    "a folder of the settings": (
        '[ -n "${HPCDDP_RUNS:-}" ] || HPCDDP_RUNS=/scratch/runs',
        {"input": "settings", "key": "run_root", "value": "/scratch/runs"},
        replaced("hpcddp/config.yaml", "/scratch/runs", "/scratch/other"),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_named_changes_the_line(folder: Path, unedited: list[ExplainedLine], kind: str) -> None:
    """One value of each kind, edited where the user would."""
    text, expected, edit = KINDS[kind]
    (line,) = (line for line in unedited if line.text == text)
    (origin,) = (origin for origin in line.origins if origin.key == expected["key"])
    assert {key: getattr(origin, key) for key in expected} == expected
    assert text in script(folder)
    edit(folder)
    assert text not in script(folder)


@pytest.mark.dear
def test_the_command_line(folder: Path) -> None:
    """What `--set` and `-J` give is of the command line."""
    lines = {line.text: line.origins for line in explained(folder, "slurm.walltime_min=33")}
    (time,) = lines["#SBATCH --time=33"]
    (comment,) = lines["#SBATCH --comment=ours"]
    assert (time.key, time.place) == ("slurm.walltime_min", "command line")
    assert (comment.key, comment.value, comment.place) == ("slurm.options", ["--comment=ours"], "command line")


@pytest.mark.dear
def test_a_variable_above_the_settings(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SBATCH_ACCOUNT is the place of the account that it names."""
    assert account(folder).place == str(config_file())
    monkeypatch.setenv("SBATCH_ACCOUNT", "xyz")
    assert (account(folder).value, account(folder).place) == ("xyz", "SBATCH_ACCOUNT")


def account(folder: Path) -> Origin:
    (line,) = (line for line in explained(folder) if line.text.startswith("#SBATCH --account"))
    (origin,) = line.origins
    return origin


def test_ones_own_template(unedited: list[ExplainedLine]) -> None:
    """A line of a block that a site overrides names the site's file."""
    (line,) = (line for line in unedited if line.text == "echo done")
    (place,) = line.templates
    assert (Path(place.file).name, place.line, place.block) == ("mine.sh.j2", 3, "teardown")
    assert f"\n{place.file}, block teardown\n   3  echo done\n" in explanation(unedited, 200)


def test_the_text_reads_within_its_width(unedited: list[ExplainedLine]) -> None:
    """Each line of the script is there, cut where it is too long; many values of a record are counted."""
    text = explanation(unedited, 80).split("\n")
    assert max(map(len, text)) == 80
    assert [line[6:] for line in text if line[:4].strip().isdigit() and len(line) < 80] == [
        line.text for line in unedited if line.text.strip() and len(line.text) < 74
    ]
    assert "      <- node_types.v100.gres_type: v100 [A, jobs]" in text
    assert any("values of the sweep: work, workload (" in line for line in text)


@pytest.mark.parametrize("cluster", SWEEPS)
@pytest.mark.parametrize("form", ["by-hand", "submitted"])
def test_every_line_of_every_golden_script(cluster: str, form: str) -> None:
    """It is there, with its line of a template and its values; where nothing decides, nothing is named."""
    lines = explained_golden(cluster, form)
    golden.check(f"scripts/{cluster}-{form}.sh", "".join(f"{line.text}\n" for line in lines))
    assert all(line.templates for line in lines)
    header = [line for line in lines if line.text.startswith("#SBATCH") and "open-mode" not in line.text]
    assert all(line.origins for line in header)
    fixed = (
        "#!/bin/bash",
        "#SBATCH --open-mode=append",
        "export SUBMITIT_EXECUTOR=slurm",
        "export MASTER_ADDR",
        'exit "$rc"',
        "",
    )
    assert not any(line.origins for line in lines if line.text in fixed)


def explained_golden(cluster: str, form: str) -> list[ExplainedLine]:
    """The script of tests/script/test_render.py."""
    profile, point, _ = parts(cluster, 3)
    source = read_sweep(JOBS / f"{SWEEPS[cluster]}.yaml")
    planned = next(each for each in expand(source, profile) if each.point.id == point.id)
    assert planned.sweep is not None
    inputs = {
        "profile": profile_input(profile),
        "sweep": sweep_input(planned.sweep, profile),
        "settings": Input(cls=Settings, plain={"account": "proj"}),
    }

    def of_records(records: Any) -> ScriptParts:
        used, sweep = records["profile"], records["sweep"]
        point = resolve(sweep, used)
        request = job_request(used, point, sweep.slurm, User(account=records["settings"].account))
        return used, point, request, by_hand(used, point) if form == "by-hand" else SUBMITTED

    return explain(of_records, inputs, profile, {"sweep": sweep_places(source, planned), "settings": str})


def test_rules_of_a_site_with_masks_and_variables() -> None:
    """Of LUMI-G on four nodes: masks, variables with their source, and what its nodes have."""
    profile, point, _, launch = script_parts("lumi-g", 4)
    source = layout_sweep(profile, LayoutOptions(nodes=4), PointOptions(), lambda _: encode(profile.default_workload), "site")

    def of_records(records: Any) -> ScriptParts:
        used = records["profile"]
        request = job_request(used, point, source.sweep.slurm, User(account="project_465000001"))
        return used, point, request, launch

    lines = explain(of_records, {"profile": profile_input(profile)}, profile, {})
    golden.check("scripts/sites/lumi-g-4.sh", "".join(f"{line.text}\n" for line in lines))
    named = {line.text.split("=")[0]: {origin.key for origin in line.origins} for line in lines}
    assert named["export NCCL_SOCKET_IFNAME"] >= {"env_rules.0.value", "env_rules.0.when.nodes"}
    assert "slurm.qos.0.partition" in named["#SBATCH --partition"]
    assert "sources.oellm" in named["# source: github.com/OpenEuroLLM/oellm-autoexp@c6d0cc0, config/slurm/lumi.yaml"]
    assert any("node_types.mi250x.cpu_masks" in keys for keys in named.values())


def test_every_line_of_the_golden_script_of_one_allocation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has its place in one of three templates."""
    given: list[ScriptParts] = []

    def recorded(*parts: Any) -> str:
        given.append(parts)
        return render(*parts)

    monkeypatch.setattr("hpcddp.submit.one_allocation.render", recorded)
    planned = submission_plan(tmp_path, "repeat=1", axes="{layout.nodes: [1, 2], measure.resume: [true, false]}")
    prepare(tmp_path / "job", batch_of(planned, Path("/runs/s")))
    lines = render_marked(*given[-1])
    golden.check(
        "scripts/rcc-one-allocation.sh", "".join(f"{line.text}\n" for line in lines).replace(str(tmp_path), "/runs/s/.jobs")
    )
    files = {Path(place.file).name for line in lines for place in line.places}
    assert files == {"base.sh.j2", "one_allocation.sh.j2", "in_step.j2"}
    assert all(line.places for line in lines)
