"""The scripts of the profiles that come with hpcddp, reviewed once, and where their lines stand in the templates."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcddp.cluster.profile import ClusterProfile
from hpcddp.cluster.profile_file import load_profile
from hpcddp.cluster.profile_names import profile_names
from hpcddp.core.errors import UsageError
from hpcddp.core.point import Point
from hpcddp.core.schema import encode
from hpcddp.script.job_request import JobRequest, User
from hpcddp.script.render import ScriptLaunch, render, render_marked
from hpcddp.script.resources import job_request
from hpcddp.script.templating import FOLDER
from hpcddp.submit.choose import layout_sweep
from hpcddp.submit.options import LayoutOptions, PointOptions
from hpcddp.sweep.expand import expand
from tests import check_golden
from tests.script.test_render import SUBMITTED, SWEEPS, by_hand, parts, shellcheck

SITES = [name for name in profile_names() if name != "local"]
ACCOUNTS = {"lumi-g": "project_465000001", "jean-zay": "abc@h100", "deltaai": "abcd-dtai-gh"}
"""Where accounts have a form."""

LAUNCH = dataclasses.replace(SUBMITTED, output="/runs/%j_%t.out", error="/runs/%j_%t.err")
Parts = tuple[ClusterProfile, Point, JobRequest, ScriptLaunch]


def script(name: str, nodes: int, node_type: str | None = None, settings: tuple[str, ...] = ()) -> tuple[JobRequest, str]:
    parts = script_parts(name, nodes, node_type, settings)
    return parts[2], render(*parts)


def script_parts(name: str, nodes: int, node_type: str | None = None, settings: tuple[str, ...] = ()) -> Parts:
    profile = load_profile(name)
    layout, options = LayoutOptions(nodes=nodes, node_type=node_type), PointOptions(settings=settings)
    source = layout_sweep(profile, layout, options, lambda profile: encode(profile.default_workload), "site")
    (planned,) = expand(source, profile)
    user = User(account=source.sweep.account or ACCOUNTS.get(name, "proj"))
    return profile, planned.point, job_request(profile, planned.point, source.sweep.slurm, user), LAUNCH


@pytest.mark.parametrize("name", SITES)
@pytest.mark.parametrize("nodes", [1, 4])
def test_script_of_site(name: str, nodes: int) -> None:
    _, text = script(name, nodes)
    check_golden(f"scripts/sites/{name}-{nodes}.sh", text)
    assert shellcheck(text) == ""


@pytest.mark.parametrize("name", SITES)
def test_ranks_have_the_whole_node(name: str) -> None:
    profile, (request, _) = load_profile(name), script(name, 1)
    node = profile.node_type(None)
    assert node.gpus == request.ranks_per_node
    assert request.physical_cores_per_rank == (node.physical_cores or 0) // request.ranks_per_node > 0


JEAN_ZAY = {
    "v100-16g": ("gpu:4", "--constraint=v100-16g", "cpus-per-task=10", "@v100", "qos_gpu-dev"),
    "v100-8": ("gpu:8", "--partition=gpu_p2", "cpus-per-task=3", "@v100", "qos_gpu-dev"),
    "a100": ("gpu:8", "--constraint=a100", "cpus-per-task=8", "@a100", "qos_gpu_a100-dev"),
    "h100": ("gpu:4", "--constraint=h100", "cpus-per-task=24", "@h100", "qos_gpu_h100-dev"),
}


@pytest.mark.parametrize(("node_type", "words"), JEAN_ZAY.items())
def test_node_types_have_rules_of_their_own(node_type: str, words: tuple[str, ...]) -> None:
    _, text = script("jean-zay", 2, node_type, (f"account=abc{words[3]}", "slurm.intent=debug"))
    assert all(word in text for word in words)
    arch = [f"arch/{node_type}"] if node_type in ("a100", "h100") else []
    assert re.findall(r"^checked module load (.*)", text, re.MULTILINE) == [*arch, "pytorch-gpu/py3/2.8.0"]


def test_what_a_site_rejects_is_not_headers_for() -> None:
    headers = {name: "\n".join(line for line in script(name, 2)[1].splitlines() if line.startswith("#SBATCH")) for name in SITES}
    assert not any(words in headers["vista"] for words in ("--gres", "--gpus", "--mem", "--nodelist"))
    assert "--mem" not in headers["marenostrum5-acc"]
    assert "--qos=acc_ehpc" in headers["marenostrum5-acc"]
    assert "--gpus" not in headers["alps"] + headers["jupiter"]
    assert "--mem=460800M" in headers["alps"]


def golden_parts() -> Iterator[Parts]:
    for cluster in SWEEPS:
        profile, point, request = parts(cluster, 3)
        yield profile, point, request, by_hand(profile, point)
        yield profile, point, request, SUBMITTED
    yield from (script_parts(name, nodes) for name in SITES for nodes in (1, 4))


@pytest.mark.parametrize("of_golden", [*golden_parts()])
def test_marks_change_no_byte_and_every_line_has_a_place(of_golden: Parts) -> None:
    lines = render_marked(*of_golden)
    assert "".join(f"{line.text}\n" for line in lines) == render(*of_golden)
    assert all(line.places for line in lines)


def edited(template: str, at: int) -> str:
    """A template with an `@` at the end of the literal text of its line `at`, from 1."""
    lines = template.split("\n")
    text, backslash = lines[at - 1].removesuffix("\\"), lines[at - 1].endswith("\\")
    end = "{% endmacro %}"
    lines[at - 1] = f"{text.removesuffix(end)}@{end * text.endswith(end)}{chr(92) * backslash}"
    return "\n".join(lines)


@pytest.mark.dear
def test_a_line_of_a_template_that_is_named_changes_the_line(tmp_path: Path) -> None:
    for file in FOLDER.glob("*.j2"):
        (tmp_path / file.name).write_text(file.read_text())
    profile, point, request = parts("rcc", 3)
    mine = dataclasses.replace(profile, template=str(tmp_path / "base.sh.j2"))
    launch = by_hand(mine, point)
    named: dict[tuple[str, int], list[str]] = {}
    for line in render_marked(mine, point, request, launch):
        for place in line.places:
            named.setdefault((place.file, place.line), []).append(line.text)
    assert len(named) > 30
    for (name, at), texts in named.items():
        file, text = Path(name), Path(name).read_text()
        file.write_text(edited(text, at))
        try:
            lines = render(mine, point, request, launch).split("\n")
            assert not all(text in lines for text in texts if text) or not any(texts), (name, at)  # a value may have many lines
        except UsageError:  # a tag, or a value's name, is what the `@` broke: it is this line that is used
            pass
        file.write_text(text)


def test_the_block_of_ones_own_template(tmp_path: Path) -> None:
    template = tmp_path / "mine.sh.j2"
    template.write_text('{% extends "base.sh.j2" %}\n{% block teardown %}\n{{ super() }}echo bye\n{% endblock %}\n')
    profile, point, request = parts("rcc")
    lines = render_marked(dataclasses.replace(profile, template=str(template)), point, request, SUBMITTED)
    (bye,) = (line for line in lines if line.text == "echo bye")
    assert [(place.file, place.line, place.block) for place in bye.places] == [(str(template), 3, "teardown")]
    assert lines[2].places[0].file == str(FOLDER / "base.sh.j2")
