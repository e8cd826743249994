"""The scripts of shipped profiles and sweeps: reviewed once, their lines in the templates, and what they carry by hand."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hpcddp.cluster.profile import ClusterProfile
from hpcddp.cluster.profile_file import load_profile
from hpcddp.cluster.profile_names import profile_names
from hpcddp.cluster.settings import Settings
from hpcddp.core.errors import UsageError
from hpcddp.core.jobspec import JobSpec, json_lines, spec_from_dict
from hpcddp.core.launch_record import ProfileFacts
from hpcddp.core.point import Point
from hpcddp.core.schema import SchemaError, decode, decode_record, encode
from hpcddp.script.job_request import JobRequest, User
from hpcddp.script.render import ScriptLaunch, render, render_marked
from hpcddp.script.resources import job_request
from hpcddp.script.templating import FOLDER
from hpcddp.submit import scripts_by_hand
from hpcddp.submit.choose import layout_sweep
from hpcddp.submit.options import LayoutOptions, PointOptions
from hpcddp.sweep.expand import expand
from hpcddp.sweep.file import read_sweep
from tests import check_golden
from tests.script.test_render import JOBS, SUBMITTED, SWEEPS, by_hand, parts, shellcheck

SITES = [name for name in profile_names() if load_profile(name).backend == "slurm"]
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


def launched_by_hand(profile: ClusterProfile, point: Point) -> ScriptLaunch:
    return scripts_by_hand.by_hand(profile, point, Settings(), JOBS)


@pytest.mark.parametrize("sweep", sorted(JOBS.glob("*.yaml")), ids=lambda file: file.stem)
def test_a_script_has_its_point_and_no_more_than_differs(sweep: Path) -> None:
    source = read_sweep(sweep)
    profile = load_profile(source.sweep.cluster or "local")
    for point in (planned.point for planned in expand(source, profile)):
        text = launched_by_hand(profile, point).spec or ""
        assert max(map(len, text.splitlines())) <= 100
        spec = spec_from_dict(json.loads(text))
        assert (spec.point, spec.point.id) == (point, point.id)
        assert json.loads(text) == encode(spec, keep_defaults=False)


ODD: tuple[Any, ...] = (True, False, 7, 0.25, "odd 'é\"\n", ["7"], [7], {"A b": "=7"}, None)


def points_with_one_odd_value() -> list[Point]:
    """Each key of a point with each of the odd values that it takes."""
    found = []

    def vary(plain: dict[str, Any], place: dict[str, Any]) -> None:
        for key, value in list(place.items()):
            if isinstance(value, dict):
                vary(plain, value)
            for odd in ODD:
                place[key] = odd
                try:
                    found.append(decode(Point, plain))
                except SchemaError:
                    continue
            place[key] = value

    full = encode(parts("rcc", 3)[1], keep_later=True)
    vary(full, full)
    return found


def test_a_point_of_odd_values_has_its_id_in_its_script() -> None:
    points = points_with_one_odd_value()
    assert len(points) > 100
    for point in points:
        spec = JobSpec(point=point, study="$HPCDDP_RUNS/adhoc", data_root="a\n" * 99)
        found = spec_from_dict(json.loads(json_lines(encode(spec, keep_defaults=False))))
        assert (found, found.point.id) == (spec, point.id)


@pytest.mark.parametrize("cluster", SITES)
def test_readers_find_in_a_script_what_the_profile_has(cluster: str) -> None:
    """Worker and analysis read a profile as ProfileFacts: they get of the script's what they get of the whole one."""
    profile, point, _, _ = script_parts(cluster, 1)
    expected = decode_record(ProfileFacts, encode(profile))
    for name, node_type in expected.node_types.items():
        of_type = dataclasses.replace(point, layout=dataclasses.replace(point.layout, node_type=name))
        spec = json.loads(launched_by_hand(profile, of_type).spec or "")
        assert decode_record(ProfileFacts, spec["profile"]) == dataclasses.replace(expected, node_types={name: node_type})


@pytest.mark.parametrize("cluster", SITES)
@pytest.mark.parametrize("nodes", [1, 4])
def test_a_script_fits_a_screen(cluster: str, nodes: int) -> None:
    profile, point, request, _ = script_parts(cluster, nodes)
    lines = render(profile, point, request, launched_by_hand(profile, point)).splitlines()
    assert max(map(len, lines)) <= 160
    assert (cluster, nodes) != ("rcc", 1) or len(lines) <= 60
