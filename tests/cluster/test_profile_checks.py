"""What is refused of a profile when it is read, with file and line."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hpcddp.cluster.profile import ClusterProfile
from hpcddp.cluster.profile_checks import is_for_debugging
from hpcddp.cluster.profile_file import read_profile
from hpcddp.cluster.slurm_rules import Partition, Qos
from hpcddp.core.errors import UsageError
from hpcddp.core.schema import decode

TEXT = """\
schema: 1
name: mine
title: A cluster
sources: {guide: the user guide}
default_node_type: fat
node_types:
  fat:
    gpus: 2
    partition: main
    links:
      topology:
        GPU0: [X, NV4, SYS]
        GPU1: [NV4, X, PIX]
        mlx5_0: [SYS, PIX, X]
    account_form: {pattern: '.*@fat', sentence: fat accounts end in @fat}
  thin: {gpus: 0}
slurm:
  partition: main
  partitions:
    main: {node_types: [fat], default: true, max_nodes: 8, qos: [prod]}
    rest: {node_types: [thin], min_nodes: 4, max_nodes: 8}
  qos:
    - {name: prod, partition: main, node_types: [fat], max_nodes: 8}
    - {min_nodes: 4, max_nodes: 6, partition: rest}
env_rules:
  - {name: A, value: b, source: guide}
"""


def read(tmp_path: Path, text: str) -> ClusterProfile:
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    return read_profile(file)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("[fat], def", "[fatt], def", "20:12: no node type `fatt` in this profile; did you mean `fat`?"),
        ("qos: [prod]", "qos: [prodd]", "23:20: no job fits this rule: partition main allows QOS prodd; prod is expected there"),
        ("[thin], min", "[thin], default: true, min", "21:32: `main` is already the default partition. Exactly one is expected."),
        ("4, max_nodes: 8", "9, max_nodes: 8", "21:32: min_nodes is 9, above max_nodes: at most 8 is expected"),
        ("  partition: main\n  partitions", "  partition: man\n  partitions", "18:3: no partition `man` in slurm.partitions"),
        ("main\n    links", "mein\n    links", "9:5: no partition `mein` in slurm.partitions; did you"),
        ("main\n    links", "rest\n    links", "9:5: partition rest has nodes of type thin; fat is exp"),
        ("partition: rest}", "partition: reste}", "24:36: no partition `reste` in slurm.partitions; did you mean `rest`?"),
        ("prod, partition: main", "prod, partition: rest", "23:37: no job fits this rule: partition rest has nodes of type thin"),
        ("- {min", "- {name: x, partition: main}\n    - {min", "24:17: no job fits this rule: partition main allows"),
        ("4, max_nodes: 6", "7, max_nodes: 6", "24:8: min_nodes is 7, above max_nodes: at most 6 is expected"),
        ("min_nodes: 4, max_nodes: 6", "min_nodes: 9", "24:8: no job fits this rule: partition rest allows at most 8 nodes"),
        ("min_nodes: 4, max_nodes: 6", "max_nodes: 3", "24:8: no job fits this rule: partition rest needs at least 4 nodes"),
        ("[fat], max_nodes: 8}", "[fit]}", "23:37: no node type `fit` in this profile; did you mean `fat`?"),
        ("'.*@fat'", "'*@fat'", "15:20: '*@fat' is not a regular expression of Python: nothing to repeat at position 0"),
        ("gpus: 2", "gpus: 1", "11:7: 2 rows for GPUs, but a node has 1"),
        ("[X, NV4, SYS]", "[X, NV4]", "12:9: 2 words in row GPU0, but 3 rows"),
        ("[NV4, X, PIX]", "[NVL, X, PIX]", "13:9: `NVL` is not an entry of `nvidia-smi topo -m`: X, NV3, PIX, PXB, PHB, NODE"),
        ("[SYS, PIX, X]", "[X, PIX, SYS]", "14:9: row mlx5_0 must have X at entry 3"),
        ("b, source: guide", "b, source: guild", "26:25: source `guild` is not among `sources`; did you mean `guide`?"),
        ("schema: 1", "schema: 2\nqueues: {}", "1:1: this profile is of schema 2, and this hpcddp reads 1: upgrade"),
    ],
)
def test_refused_with_its_place(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    assert TEXT.count(old) == 1
    with pytest.raises(UsageError) as caught:
        read(tmp_path, TEXT.replace(old, new))
    assert str(caught.value).startswith(f"{tmp_path}/mine.yaml:{complaint}")


def test_a_partition_may_take_qos_without_a_rule(tmp_path: Path) -> None:
    """Such as the one of jobs that ask for none, which has a name in Slurm (`normal`) and none in the rules."""
    assert read(tmp_path, TEXT.replace("qos: [prod]", "qos: [normal, prod]")).slurm.partitions["main"].qos == ("normal", "prod")


def test_no_rule_at_all(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"mine.yaml:5:3: `qos` has no rule, so no job could be submitted"):
        read(tmp_path, "schema: 1\nname: mine\ntitle: A cluster\nslurm:\n  qos: []\n")


def booleans(cls: Any) -> Iterator[tuple[type, str]]:
    """The fields of yes or no in a profile, except of its default workload, which is no fact."""
    hints = typing.get_type_hints(cls, include_extras=True)
    for field in dataclasses.fields(cls):
        kinds = [
            hints[field.name],
            *(inner for arg in typing.get_args(hints[field.name]) for inner in (arg, *typing.get_args(arg))),
        ]
        if bool in kinds:
            yield cls, field.name
        for kind in kinds:
            if dataclasses.is_dataclass(kind) and field.name not in ("default_workload", "conflicts"):
                yield from booleans(kind)


@pytest.mark.parametrize(("cls", "key"), sorted(set(booleans(ClusterProfile)), key=str))
def test_yes_or_no_may_be_null(cls: type, key: str) -> None:
    assert getattr(decode(cls, {key: None}), key) is None


def test_all_booleans_are_found() -> None:
    found = {key for _, key in booleans(ClusterProfile)}
    assert {"exclusive_needs_all_gpus", "account_required", "always_exclusive", "automatic", "default"} <= found
    assert (decode(Qos, {"automatic": None}), decode(Partition, {"default": None}).default) == (Qos(), None)


PROFILE = """\
schema: 1
name: mine
title: Mine
sources: {guide: the user guide}
node_types: {fat: {gpus: 4}}
default_node_type: fat
"""


def refused(folder: Path, text: str) -> str:
    """The complaint, without the folder."""
    file = folder / "mine.yaml"
    file.write_text(PROFILE + text)
    with pytest.raises(UsageError) as caught:
        read_profile(file)
    return str(caught.value).replace(f"{folder}/", "")


@pytest.mark.parametrize(
    ("rule", "complaint"),
    [
        ('{name: "A B", value: x, source: guide}', "`A B` is not a variable name"),
        ("{name: A, source: guide}", "A needs either a `value` or a `command`"),
        ("{name: A, value: x, command: y, source: guide}", "A needs either a `value` or a `command`"),
        ("{name: NCCL_NET, value: x, source: guide}", "NCCL_NET needs a `when`: "),
        ("{name: A, value: x, source: gide}", "source `gide` is not among `sources`; did you mean `guide`?"),
        ("{name: A, value: x, source: guide, when: {node_type: [fet]}}", "no node type `fet`; did you mean `fat`?"),
        ('{name: A, value: x, source: guide, when: {nccl: "2.x"}}', "`2.x` is not a condition. Write `>1`, `<2.21`"),
        ('{name: A, value: x, source: guide, when: {nodes: "=>2"}}', "`=>2` is not a condition"),
        ("{name: NCCL_DEBUG, value: INFO, source: guide, when: {nodes: '1'}}", "NCCL_DEBUG is a debugging variable"),
        ("{name: NCCL_P2P_DISABLE, value: 1, source: guide, when: {nodes: '1'}}", "1 is a whole number; text is expected"),
    ],
)
def test_a_rule_that_cannot_be(tmp_path: Path, rule: str, complaint: str) -> None:
    said = refused(tmp_path, f"env_rules:\n  - {rule}\n")
    assert said.startswith("mine.yaml:8:")
    assert complaint in said


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["NCCL_ALGO", "NCCL_IB_DISABLE", "NCCL_NET_GDR_LEVEL", "NCCL_DEBUG_SUBSYS", "NCCL_NVLS_ENABLE"], True),
        (["NCCL_NET", "NCCL_CROSS_NIC", "NCCL_SOCKET_IFNAME", "NCCL_IB_GID_INDEX", "FI_CXI_RX_MATCH_MODE"], False),
    ],
)
def test_what_nvidia_files_under_debugging(names: list[str], found: bool) -> None:
    assert {is_for_debugging(name) for name in names} == {found}


@pytest.mark.parametrize(
    ("text", "line", "complaint"),
    [
        ("rendezvous: {master_suffix: i, master_address: numeric}\n", 7, "`i` extends a host name"),
        ("backend: local\ncompute:\n  container: {image: x.sif, runtime: apptainer}\n", 9, "Write the container runtime's"),
    ],
)
def test_environments_that_cannot_be(tmp_path: Path, text: str, line: int, complaint: str) -> None:
    said = refused(tmp_path, text)
    assert (said.startswith(f"mine.yaml:{line}:"), complaint in said) == (True, True), said
