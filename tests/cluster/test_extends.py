"""Profiles that say only what differs from another one."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from hpcddp.cluster.profile import ClusterProfile, NodeType
from hpcddp.cluster.profile_file import load_profile, read_profile
from hpcddp.cluster.profile_names import profile_names
from hpcddp.core.errors import UsageError
from tests.cluster.conftest import own_profile

BASE = """\
schema: 1
name: base
title: The base
sources: {guide: the user guide}
login_hosts: [login.base.org]
node_types:
  fat:
    gpus: {value: 4, grade: A, source: guide}
    physical_cores: {value: 32, grade: A, source: guide}
  thin: {gpus: 1}
default_node_type: fat
slurm:
  submissions_per_s: 2
  gpu_request: gpus-per-node
  qos: [{name: a, max_nodes: 4}, {name: b, max_nodes: 8}]
fabric: {value: {name: Slingshot, gbps_per_node: 200}, grade: A, source: guide}
env: {A: "1", B: "2"}
storage: {data: {path: /data}}
"""


def extended(folder: Path, text: str, base: str = BASE) -> ClusterProfile:
    """The profile `text` over a base beside it."""
    (folder / "base.yaml").write_text(base)
    (folder / "mine.yaml").write_text(f"schema: 1\nname: mine\nextends: base.yaml\n{text}")
    return read_profile(folder / "mine.yaml")


def refused(folder: Path, text: str, base: str = BASE) -> str:
    """The complaint, without the folder."""
    with pytest.raises(UsageError) as caught:
        extended(folder, text, base)
    return str(caught.value).replace(f"{folder}/", "")


@pytest.mark.parametrize("name", profile_names())
def test_nothing_that_differs_is_the_base(name: str) -> None:
    file = own_profile("mine", f"extends: {name}\n")
    base = load_profile(name)
    same = dataclasses.replace(base, name="mine", title="Mine", extends=name, file=str(file))
    assert load_profile("mine") == same


def test_mappings_are_merged_and_lists_replaced(tmp_path: Path) -> None:
    profile = extended(tmp_path, "node_types:\n  fat: {gpus: 8}\n  new: {gpus: 2}\nenv: {B: '3', C: '4'}\n")
    assert profile.title == "The base"
    fat, thin, new = NodeType(gpus=8, physical_cores=32), NodeType(gpus=1), NodeType(gpus=2)
    assert profile.node_types == {"fat": fat, "thin": thin, "new": new}
    assert profile.env == {"A": "1", "B": "3", "C": "4"}
    profile = extended(tmp_path, "slurm: {qos: [{name: c}]}\nlogin_hosts: []\n")
    assert [rule.name for rule in profile.slurm.qos] == ["c"]
    assert profile.login_hosts == ()


def test_facts_follow_their_values(tmp_path: Path) -> None:
    text = "sources: {me: myself}\nnode_types: {fat: {gpus: 8, smt: {value: 2, grade: C, source: me}}}\n"
    profile = extended(tmp_path, text)
    found = {path: fact.source for path, fact in profile.facts.items()}
    assert found == {"node_types.fat.physical_cores": "guide", "node_types.fat.smt": "me", "fabric": "guide"}
    profile = extended(tmp_path, "fabric: {gbps_per_node: 100}\n")
    assert (profile.fabric.name, profile.fabric.gbps_per_node) == ("Slingshot", 100)
    assert "fabric" not in profile.facts


def test_null_takes_away(tmp_path: Path) -> None:
    text = "node_types: {thin: null, fat: {physical_cores: null}}\nenv: {A: null}\n"
    profile = extended(tmp_path, text + "slurm: {submissions_per_s: null, gpu_request: null}\n")
    assert profile.node_types == {"fat": NodeType(gpus=4)}
    assert set(profile.facts) == {"node_types.fat.gpus", "fabric"}
    assert (profile.env, profile.slurm.submissions_per_s, profile.slurm.gpu_request) == ({"B": "2"}, None, "gres")


def test_a_chain(tmp_path: Path) -> None:
    (tmp_path / "root.yaml").write_text(BASE)
    middle = "schema: 1\nname: middle\nextends: ./root.yaml\nenv: {A: '5', D: '6'}\nnode_types: {thin: null}\n"
    profile = extended(tmp_path, "env: {A: '7'}\n", middle)
    assert profile.env == {"A": "7", "B": "2", "D": "6"}
    assert set(profile.node_types) == {"fat"}


def test_a_circle_is_refused_with_the_chain(tmp_path: Path) -> None:
    base = "schema: 1\nname: base\ntitle: x\nextends: mine.yaml\n"
    assert refused(tmp_path, "", base) == ("base.yaml:4:1: `extends` goes in a circle: mine.yaml -> base.yaml -> mine.yaml")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("node_types: {fat: {gpu: 4}}\n", "mine.yaml:4:20: 4 is a whole number; text is expected"),
        ("slurm:\n  qos:\n  - {name: a}\n  - {name: b, maxnodes: 1}\n", "mine.yaml:7:15: unknown key `maxnodes`"),
        ("sources: {guide: another}\n", "mine.yaml:4:11: source `guide` is a different one in base.yaml, whose facts name it"),
        ("node_types: {fat: {smt: {value: 2, grade: A, source: guid}}}\n", "mine.yaml:4:46: source `guid` is not among"),
        ("env: []\n", "mine.yaml:4:1: [] is a list; a mapping is expected"),
        ("fabric: {value: {gbps_per_node: x}, grade: A, source: guide}\n", "mine.yaml:4:1: 'x' is text; a number is expected"),
    ],
)
def test_a_mistake_of_its_own_has_its_own_line(tmp_path: Path, text: str, complaint: str) -> None:
    assert refused(tmp_path, text).startswith(complaint)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("thin: {gpus: 1}", "thin: {gpus: -1}", "base.yaml:10:10: -1 is below the minimum 0"),
        ("max_nodes: 8", "max_nodes: 0", "base.yaml:15:44: 0 is below the minimum 1"),
        ("source: guide}\n  thin", "source: guidd}\n  thin", "base.yaml:9:43: source `guidd` is not among"),
        ("schema: 1\n", "", "base.yaml:1:1: a profile with `schema: 1` is expected"),
        ("schema: 1", "schema: 2", "base.yaml:1:1: this profile is of schema 2, and this hpcddp reads 1"),
        ("env: {A", "evn: {A", "base.yaml:17:1: unknown key `evn`; did you mean `env`?"),
        ("default_node_type: fat", "default_node_type: [", "base.yaml:"),
    ],
)
def test_a_mistake_of_the_base_has_the_bases_line(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    assert old in BASE
    own = "node_types: {fat: {gpus: 8}}\nslurm: {max_gpus_per_user: 4}\n"
    assert refused(tmp_path, own, BASE.replace(old, new)).startswith(complaint)


@pytest.mark.parametrize(
    ("base", "complaint"),
    [
        ("rc", "mine.yaml:3:1: no cluster `rc` in clusters/; did you mean `rcc`?"),
        ("nosuch.yaml", "mine.yaml:3:1: no file nosuch.yaml: `extends` is the name of a profile, or a file beside this one"),
        ("../base.yaml", "mine.yaml:3:1: `../base.yaml` is in another folder. Move that profile"),
        ("[rcc]", "mine.yaml:3:1: ['rcc'] is a list; text is expected"),
    ],
)
def test_what_cannot_be_extended(tmp_path: Path, base: str, complaint: str) -> None:
    folder = tmp_path / "below"
    folder.mkdir()
    (tmp_path / "base.yaml").write_text(BASE)
    (folder / "mine.yaml").write_text(f"schema: 1\nname: mine\nextends: {base}\n")
    with pytest.raises(UsageError) as caught:
        read_profile(folder / "mine.yaml")
    assert str(caught.value).replace(f"{folder}/", "").startswith(complaint)


@pytest.mark.parametrize(
    ("name", "complaint"),
    [("", "`name` is missing"), ("name: rcc\n", "`rcc` is also the name of a shipped profile")],
)
def test_it_has_a_name_of_its_own(tmp_path: Path, name: str, complaint: str) -> None:
    """Results of a changed profile do not carry the name of the other one."""
    (tmp_path / "mine.yaml").write_text(f"schema: 1\n{name}extends: rcc\n")
    with pytest.raises(UsageError, match=rf"mine\.yaml:[12]:1: {complaint}"):
        read_profile(tmp_path / "mine.yaml")


def test_a_name_in_the_settings_folder_can_be_extended(tmp_path: Path) -> None:
    own_profile("site", "extends: rcc\nenv: {A: '1'}\n")
    own_profile("mine", "extends: site\nenv: {B: '2'}\n")
    assert load_profile("mine").env == {"A": "1", "B": "2"}
    (tmp_path / "here.yaml").write_text("schema: 1\nname: here\nextends: mine\n")
    assert load_profile(f"{tmp_path}/here.yaml").env == {"A": "1", "B": "2"}


def test_the_bases_template_lies_beside_the_base(tmp_path: Path) -> None:
    """It is found from another folder, and one of the extending profile's own goes before it."""
    folder = own_profile("base", "template: t.sh.j2\n").parent
    (folder / "t.sh.j2").write_text("base's")
    mine = tmp_path / "mine.yaml"
    mine.write_text("schema: 1\nname: mine\nextends: base\n")
    assert read_profile(mine).template == str(folder / "t.sh.j2")
    (tmp_path / "own.j2").write_text("mine")
    mine.write_text("schema: 1\nname: mine\nextends: base\ntemplate: own.j2\n")
    assert read_profile(mine).template == str(tmp_path / "own.j2")
