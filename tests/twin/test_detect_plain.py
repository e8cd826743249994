"""`hpcddp clusters detect` on a site without accounting, whose slurm.conf is written by hand: no accounts, no QOS."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcddp.cluster.profile_file import read_profile
from hpcddp.detect.check import check_cluster
from hpcddp.detect.detect import detect_cluster
from tests.twin.by_hand import COMMON, HandMade, slurm_by_hand
from tests.twin.twin import Twins

PLAIN = (
    COMMON
    + """
ClusterName=plain
AccountingStorageType=accounting_storage/none
GresTypes=gpu
NodeName=n[1-3] State=CLOUD CPUs=16 RealMemory=64000 Gres=gpu:1
PartitionName=all Default=YES Nodes=ALL
"""
)

PLAIN_GRES = "NodeName=n[1-3] Name=gpu File={folder}/dev/gpu0\n"


@pytest.fixture(scope="module")
def plain(twins: Twins, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HandMade]:
    """Three nodes in one partition; one is down."""
    twins.close()
    with slurm_by_hand(tmp_path_factory.mktemp("plain"), PLAIN, PLAIN_GRES) as slurm, pytest.MonkeyPatch.context() as patch:
        for name, value in slurm.env.items():
            patch.setenv(name, value)
        slurm.run("scontrol", "update", "NodeName=n3", "State=DOWN", "Reason=power")
        yield slurm


def test_what_slurm_says(plain: HandMade, tmp_path: Path) -> None:
    """Nothing is required; sacctmgr's refusal is no news, and the node that is down is."""
    found, file = detect_cluster(None), tmp_path / "mine.yaml"
    file.write_text(found.text, encoding="utf-8")
    profile = read_profile(file)
    assert list(found.remarks) == ["nodes: 1 down: n3 (power)"]
    (kind,) = profile.node_types.values()
    assert (kind.count, kind.names, kind.gpus, kind.gres_type, kind.memory_mb) == (3, "n[1-3]", 1, None, 64000)
    assert (kind.physical_cores, kind.smt) == (16, 1)
    rules = profile.slurm
    assert (rules.partition, rules.account_required, rules.gpu_request) == ("all", False, "gres")
    assert [(rule.name, rule.max_walltime_min, rule.max_nodes) for rule in rules.qos] == [(None, None, None)]
    assert "Accounting is off" in str(profile.note)
    assert check_cluster(profile).of("differs") == []
    command = [sys.executable, "-m", "hpcddp", "render", "--cluster", str(file), "--nodes", "2"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    taken, message = plain.test_only(done.stdout)
    assert taken, message
