"""What is refused of a profile's variables and of where ranks meet when it is read, with file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcddp.cluster.profile_checks import is_for_debugging
from hpcddp.cluster.profile_file import read_profile
from hpcddp.core.errors import UsageError

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
        ('{name: "A B", value: x, source: guide}', "`A B` is no name of a variable"),
        ("{name: A, source: guide}", "A needs a `value` or a `command`, and not both"),
        ("{name: A, value: x, command: y, source: guide}", "A needs a `value` or a `command`, and not both"),
        ("{name: NCCL_NET, value: x, source: guide}", "NCCL_NET needs a `when`: "),
        ("{name: A, value: x, source: gide}", "source `gide` is not among `sources`; did you mean `guide`?"),
        ("{name: A, value: x, source: guide, when: {node_type: [fet]}}", "no node type `fet`; did you mean `fat`?"),
        ('{name: A, value: x, source: guide, when: {nccl: "2.x"}}', "`2.x` is no condition; `>1`, `<2.21`"),
        ('{name: A, value: x, source: guide, when: {nodes: "=>2"}}', "`=>2` is no condition"),
        ("{name: NCCL_DEBUG, value: INFO, source: guide, when: {nodes: '1'}}", "NCCL_DEBUG: NVIDIA files it under debugging"),
        ("{name: NCCL_P2P_DISABLE, value: 1, source: guide, when: {nodes: '1'}}", "1 is a whole number; text is expected"),
    ],
)
def test_a_rule_that_cannot_be(tmp_path: Path, rule: str, complaint: str) -> None:
    """The line in the file, the key, and what is expected."""
    said = refused(tmp_path, f"env_rules:\n  - {rule}\n")
    assert said.startswith("mine.yaml:8:")
    assert complaint in said


@pytest.mark.parametrize("name", ["NCCL_ALGO", "NCCL_IB_DISABLE", "NCCL_NET_GDR_LEVEL", "NCCL_DEBUG_SUBSYS", "NCCL_NVLS_ENABLE"])
def test_what_nvidia_files_under_debugging(name: str) -> None:
    """And what makes NCCL write."""
    assert is_for_debugging(name)


@pytest.mark.parametrize(
    "name", ["NCCL_NET", "NCCL_CROSS_NIC", "NCCL_SOCKET_IFNAME", "NCCL_IB_GID_INDEX", "FI_CXI_RX_MATCH_MODE"]
)
def test_what_a_site_may_need(name: str) -> None:
    """System configuration in NVIDIA's words, and other libraries' variables."""
    assert not is_for_debugging(name)


def test_a_suffix_of_a_number(tmp_path: Path) -> None:
    """Ranks meet at a name with something behind it, or at a number."""
    said = refused(tmp_path, "rendezvous: {master_suffix: i, master_address: numeric}\n")
    assert "mine.yaml:7:" in said
    assert "`i` goes behind a name, and master_address is numeric; leave one of them out" in said


def test_a_container_where_there_is_no_slurm(tmp_path: Path) -> None:
    """Its ranks are started by `compute.python` alone."""
    said = refused(tmp_path, "backend: local\ncompute:\n  container: {image: x.sif, runtime: apptainer}\n")
    assert "mine.yaml:9:" in said
    assert "write the runtime's command into compute.python" in said
