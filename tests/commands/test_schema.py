"""Schemas, lint, sweeps for a cluster and surveys: what a user's own files are written with and checked by."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from hpcddp.cluster.json_schema import profile_schema
from hpcddp.cluster.profile import ClusterProfile, strip_facts
from hpcddp.cluster.profile_file import load_profile
from hpcddp.cluster.profile_names import profile_names
from hpcddp.cluster.yamlfile import parse_yaml, read_yaml
from hpcddp.core.job_records import NodeSurvey, SurveyRecord
from hpcddp.core.launch_record import NodeFacts
from hpcddp.core.schema import SchemaError, decode
from hpcddp.sweep.file import Sweep
from hpcddp.sweep.groups import read_group
from hpcddp.sweep.sweep_schema import sweep_schema
from tests.commands.conftest import Run, refused
from tests.docs.pages import ROOT

PROFILE, SWEEP = Draft202012Validator(profile_schema()), Draft202012Validator(sweep_schema())
PROFILES, SWEEPS = sorted((ROOT / "clusters").glob("*.yaml")), sorted((ROOT / "jobs").glob("*.yaml"))
DOCUMENTS = [*((file, PROFILE) for file in PROFILES), *((file, SWEEP) for file in SWEEPS)]


@pytest.mark.parametrize(("kind", "schema"), [("profile", PROFILE), ("sweep", SWEEP)])
def test_what_is_printed_is_a_schema(run: Run, kind: str, schema: Draft202012Validator) -> None:
    printed = json.loads(run("schema", kind).stdout)
    assert printed == schema.schema
    Draft202012Validator.check_schema(printed)


@pytest.mark.parametrize(
    ("command", "left_out"),
    [
        (["schema", "profile"], "torch pandas matplotlib numpy"),
        (["schema", "sweep"], "torch pandas matplotlib numpy"),
        (["lint", "job.sh"], "torch pandas matplotlib jinja2 yaml"),
    ],
)
def test_no_heavy_import(tmp_path: Path, command: list[str], left_out: str) -> None:
    """On a login node such a command is over at once."""
    (tmp_path / "job.sh").write_text("#!/bin/bash\n#SBATCH --gpu-per-node=4\n")
    code = "import sys; from hpcddp.cli import main\ntry: main(sys.argv[1:])\nfinally: print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, *command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 4), done.stderr
    assert not {*left_out.split()} & {*done.stdout.splitlines()[-1].split()}


@pytest.mark.parametrize(("file", "schema"), DOCUMENTS, ids=lambda one: getattr(one, "stem", ""))
def test_shipped_documents_are_valid_and_name_their_schema(file: Path, schema: Draft202012Validator) -> None:
    assert list(schema.iter_errors(read_yaml(file))) == []
    (named,) = re.findall(r"^# yaml-language-server: \$schema=(\S+)$", file.read_text(encoding="utf-8"), re.MULTILINE)
    assert named == {"clusters": "profile.schema.json", "jobs": "sweep.schema.json"}[file.parent.name]


def mappings(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of all mappings."""
    if isinstance(data, dict):
        yield path
        for key, item in data.items():
            yield from mappings(item, (*path, key))
    elif isinstance(data, list):
        for i, item in enumerate(data):
            yield from mappings(item, (*path, i))


FREE = (("sources",), ("env",), ("args",), ("node_types",), ("partitions",), ("storage",), ("points",), ("links", "topology"))
"""Ends of paths at which names are the author's."""


def changed(data: Any, path: tuple[Any, ...], value: object) -> Any:
    """A copy with `value` at `path`."""
    data = copy.deepcopy(data)
    place = data
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    return data


@pytest.mark.dear
@given(st.data(), st.sampled_from(DOCUMENTS), st.text("abcdefghijklmnopqrstuvwxyz_", min_size=1))
def test_a_key_that_is_not_there_is_marked(choice: st.DataObject, document: tuple[Path, Draft202012Validator], key: str) -> None:
    data = read_yaml(document[0])
    places = [path for path in mappings(data) if path[-1:] not in FREE and path[-2:] not in FREE]
    place = choice.draw(st.sampled_from(places))
    assert not document[1].is_valid(changed(data, (*place, f"x_{key}"), 1))


VALUES: list[object] = [None, True, 0, 3, -1, 2.5, "x", "1", [], ["x"], {}]


def leaves(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of all values, mappings and lists too."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from leaves(item, (*path, key))


def is_profile(data: Any) -> bool:
    try:
        decode(ClusterProfile, strip_facts(data, (), {}))
    except SchemaError:
        return False
    return True


def is_sweep(data: Any) -> bool:
    try:
        for name, group in decode(Sweep, data).points.items():
            read_group(name, group)
    except SchemaError:
        return False
    return True


@pytest.mark.dear
@given(st.data(), st.sampled_from(PROFILES), st.sampled_from(VALUES))
def test_a_value_is_marked_where_hpcddp_refuses_it(choice: st.DataObject, file: Path, value: object) -> None:
    data = read_yaml(file)
    document = changed(data, choice.draw(st.sampled_from(list(leaves(data)))), value)
    assert PROFILE.is_valid(document) == is_profile(document)


@given(st.data(), st.sampled_from(SWEEPS), st.sampled_from(VALUES))
def test_a_sweeps_value_is_marked_where_hpcddp_refuses_it(choice: st.DataObject, file: Path, value: object) -> None:
    """The same of a sweep, but for what is in a group: values of axes are decoded later, with the point that they make."""
    data = read_yaml(file)
    paths = [path for path in leaves(data) if path[0] != "points" or not path[2:]]
    document = changed(data, choice.draw(st.sampled_from(paths)), value)
    assert SWEEP.is_valid(document) == is_sweep(document)


@pytest.mark.parametrize(
    ("text", "extending", "complete"),
    [
        ("", True, True),
        ("node_types: {fat: {gpus: null}}\n", True, True),
        ("node_types: {fat: null}\nenv: {A: null}\n", True, False),
        ("slurm: {gpu_request: null}\n", True, False),
        ("sources: {me: I}\nfabric: {name: {value: Slingshot, grade: B, source: me}}\n", True, True),
        ("slurm: {qos: [{name: a, max_nodes: {value: 2, grade: A, source: jobs}}]}\n", True, True),
        ("slurm: {account_form: {pattern: '.*_g'}}\n", True, False),
        ("node_types: {fat: {gpu: 4}}\n", False, False),
        ("slurm: {qos: [{max_nodes: x}]}\n", False, False),
        ("nod_types: {}\n", False, False),
        ("template: 1\n", False, False),
    ],
)
def test_a_profile_that_extends(text: str, extending: bool, complete: bool) -> None:
    documents = (parse_yaml(f"schema: 1\nname: mine\n{line}\n{text}", "x") for line in ("extends: rcc", "title: Mine"))
    assert [PROFILE.is_valid(each) for each in documents] == [extending, complete]


def test_a_field_has_its_description_and_default() -> None:
    schema = profile_schema()
    field = schema["$defs"]["SlurmRules.facts"]["properties"]["submissions_per_s"]
    assert field["default"] == 50.0
    assert field["description"].endswith("; `null`: as fast as it answers.")


TEMPLATE = """\
{% extends "base.sh.j2" %}
{% block environment %}
{{ super() }}
export MASTER_ADDR=localhost
{% endblock %}
"""


def test_a_script_that_hpcddp_renders_is_clean(run: Run, tmp_path: Path) -> None:
    assert run("render", "--cluster", "rcc", "--set", "account=a", "-o", "job.sh").exit_code == 0
    result = run("lint", "job.sh")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")


def test_findings_have_file_line_and_reason_and_end_with_4(run: Run, tmp_path: Path) -> None:
    run("render", "--cluster", "rcc", "--set", "account=a", "-o", "job.sh")
    text = (tmp_path / "job.sh").read_text().replace("SUBMITIT_EXECUTOR=slurm", "SUBMITIT_EXECUTOR=local")
    (tmp_path / "job.sh").write_text(text)
    line = next(at for at, each in enumerate(text.splitlines(), start=1) if each.startswith("srun "))
    result = run("lint", "job.sh")
    assert result.exit_code == 4
    reason = "no `export SUBMITIT_EXECUTOR=slurm` above srun: submitit's job side does not find out what it runs in"
    assert result.stdout == f"job.sh:{line}: {reason} [executor]\n"
    found = json.loads(run("lint", "job.sh", "--format", "json").stdout)
    assert found == [{"file": "job.sh", "line": line, "rule": "executor", "text": reason}]


def test_of_a_template_the_line_is_its_own(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.sh.j2").write_text(TEMPLATE)
    result = run("lint", "mine.sh.j2", "--cluster", "rcc")
    assert result.exit_code == 4
    (line,) = result.stdout.splitlines()
    assert line.startswith(f"{tmp_path / 'mine.sh.j2'}:4: MASTER_ADDR: ")
    (tmp_path / "mine.sh.j2").write_text(TEMPLATE.replace("export MASTER_ADDR=localhost\n", ""))
    assert run("lint", "mine.sh.j2", "--cluster", "rcc").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nosuch.sh",), "does not exist"),
        (("job.sh", "--cluster", "rcc"), "--cluster is for a template"),
        (("mine.sh.j2", "--cluster", "local"), "local has no Slurm"),
    ],
)
def test_scripts_that_cannot_be_checked(run: Run, tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    (tmp_path / "job.sh").write_text("#!/bin/bash\n")
    (tmp_path / "mine.sh.j2").write_text(TEMPLATE)
    assert words in refused(run, "lint", *arguments)


def test_without_shellcheck_and_with_another_encoding(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "job.sh").write_bytes(b"#!/bin/bash\n# caf\xe9\n#SBATCH --gpu-per-node=4\n")
    result = run("lint", "job.sh")
    assert (result.exit_code, result.stdout.partition(": ")[0]) == (4, "job.sh:3")
    (tmp_path / "job.sh").write_text("#!/bin/bash\n#SBATCH --gpu-per-node=4\nif true; then\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    result = run("lint", "job.sh")
    assert "shellcheck is not installed here" in result.stderr
    assert "[unknown-option]" in result.stdout
    assert "[SC" not in result.stdout


def test_lists_and_copies(run: Run, tmp_path: Path) -> None:
    assert "rcc-bigmnist" in run("init").stdout.split()
    assert run("init", "rcc-bigmnist").exit_code == 0
    (tmp_path / "rcc-bigmnist.yaml").write_text("mine")
    assert "exists; choose another name" in refused(run, "init", "rcc-bigmnist")
    assert (tmp_path / "rcc-bigmnist.yaml").read_text() == "mine"


def test_a_script_in_the_way_leaves_no_sweep(run: Run, tmp_path: Path) -> None:
    """The next step is one that helps: another name in this folder would not."""
    (tmp_path / "train_lm.py").write_text("mine")
    assert "choose a name in another folder with -o" in refused(run, "init", "own-script", "-o", "b.yaml")
    assert [path.name for path in tmp_path.glob("*.*")] == ["train_lm.py"]
    (tmp_path / "train_lm.py").unlink()
    assert run("init", "own-script", "-o", "b.yaml").exit_code == 0
    assert sorted(path.name for path in tmp_path.glob("*.*")) == ["b.yaml", "train_lm.py"]


@pytest.mark.parametrize("cluster", profile_names())
def test_a_sweep_for_a_cluster_is_planned_unchanged(run: Run, cluster: str, tmp_path: Path) -> None:
    assert run("init", "--cluster", cluster, "-o", "mine.yaml").exit_code == 0
    planned = run("plan", "mine.yaml", "--format", "json")
    assert planned.exit_code == 0, planned.stderr
    profile, text = load_profile(cluster), (tmp_path / "mine.yaml").read_text()
    labels = {row["label"] for row in json.loads(planned.stdout)["points"]}
    most = profile.node_type(None).gpus or 2
    assert {f"n01-g{most}", "n01-g1"} <= {label.partition("-b")[0] for label in labels}
    (tmp_path / "mine.yaml").write_text(re.sub(r"^  # (breakdown|limits):", r"  \1:", text, flags=re.MULTILINE))
    more = run("plan", "mine.yaml", "--format", "json")
    assert more.exit_code == 0, more.stderr
    assert (len(json.loads(more.stdout)["points"]) > len(labels)) == (profile.backend != "local")


def test_a_sweep_has_sizes_of_the_cluster_and_the_workload_given(run: Run, tmp_path: Path) -> None:
    run("init", "--cluster", "rcc")
    text = (tmp_path / "rcc-mnist-cnn.yaml").read_text()
    assert "  in-node: {layout.gpus_per_node: [1, 2, 4]}\n  nodes: {layout.nodes: [1, 2, 4]}\n" in text
    assert "# also a40: 2 nodes of 4 " in text
    assert run("init", "--cluster", "rcc", "resnet18/cifar10").exit_code == 0
    text = (tmp_path / "rcc-resnet18.yaml").read_text()
    assert "model: resnet18 " in text
    assert re.search(r"data: \{name: cifar10\} +# its folder: `root:` here, or `data_roots` in your settings\n", text)


def test_a_profile_of_ones_own(run: Run, tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "config" / "hpcddp" / "clusters", tmp_path / "study"):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "mine.yaml").write_text("schema: 1\nname: mine\nextends: rcc\n")
    for cluster, named in (("./mine.yaml", "../mine.yaml"), ("study/mine.yaml", "./mine.yaml"), ("mine", "mine")):
        target = tmp_path / "study" / f"{cluster.replace('/', '-')}-sweep.yaml"
        assert run("init", "--cluster", cluster, "-o", target).exit_code == 0
        assert f"\ncluster: {named}\n" in target.read_text()
        assert run("plan", target).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rcc-bigmnits"], "did you mean `rcc-bigmnist`"),
        (["--cluster", "rcc", "resnet18"], "resnet18: with --cluster, write MODEL/DATA, such as resnet50/imagenet"),
        (["resnet18/cifar10"], "resnet18/cifar10: MODEL/DATA needs a cluster; add --cluster NAME"),
        (["--cluster", "rc"], "no cluster `rc` in clusters/; did you mean `rcc`?"),
        (["--cluster", "rcc", "resnet5/cifar10"], "no model `resnet5`; did you mean `resnet50`?"),
        (["--cluster", "rcc", "mnist-cnn/cifar10"], "model `mnist-cnn` takes images of 1 channel"),
    ],
)
def test_sweeps_that_cannot_be_made(run: Run, tmp_path: Path, arguments: list[str], message: str) -> None:
    assert message in refused(run, "init", *arguments)
    assert [file for file in tmp_path.iterdir() if file.suffix == ".yaml"] == []


def test_lines_to_paste(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    node = NodeFacts(host="gn01", machine="x86_64", kernel="5.14", cpu="A processor", cpus=8, cpus_usable=8, memory_bytes=2**34)
    found = SurveyRecord(date="2026-05-04", job="4711", nodes=(NodeSurvey(host="gn01", node=node),), problems=("no latency",))
    monkeypatch.setattr("hpcddp.submit.small_jobs.run_survey", lambda *_, **__: found)
    text = "schema: 1\nname: mine\ntitle: Mine\nsources: {}\ndefault_node_type: fat\nnode_types: {fat: {gpus: 4}}\n"
    Path("mine.yaml").write_text(text)
    done = run("clusters", "survey", "mine.yaml", "--yes")
    assert done.exit_code == 0, done.stderr
    fact = 'cpu: {value: A processor, grade: A, source: survey, note: "2026-05-04, gn01"}'
    source = 'sources: {survey: "hpcddp clusters survey of 2026-05-04, job 4711"}'
    assert done.stdout == f"{source}\nnode_types:\n  fat:\n    {fact}\n"
    assert "no latency" in done.stderr
    assert "paste these lines into the profile mine.yaml" in done.stderr
    assert Path("mine.yaml").read_text() == text
