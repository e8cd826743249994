"""The QOS of a profile become Slurm's: a second cluster, with nodes that the profile only counts."""

from __future__ import annotations

import pytest

from tests.twin.twin import Twin

pytestmark = pytest.mark.soak

JOB = "#!/bin/bash\n#SBATCH --account=proj --partition=m100_usr_prod --gres=gpu:4 --exclusive --mem=230000 --ntasks-per-node=4\n"


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("--nodes=16 --time=24:00:00", None),
        ("--nodes=17", "QOSMaxNodePerJobLimit"),
        ("--nodes=17 --qos=m100_qos_bprod", None),
        ("--nodes=16 --qos=m100_qos_bprod", "QOSMinNode"),
        ("--nodes=2 --qos=m100_qos_dbg --time=2:00:00", None),
        ("--nodes=2 --qos=m100_qos_dbg --time=3:00:00", "QOSMaxWallDurationPerJobLimit"),
        ("--nodes=1 --cpus-per-task=32", None),
        ("--nodes=1 --cpus-per-task=33", "Requested node configuration is not available"),
    ],
)
def test_each_qos_has_its_limits(marconi100_twin: Twin, option: str, says: str | None) -> None:
    """Nodes and time are held to the QOS asked for, and a node has its logical CPUs."""
    taken, message = marconi100_twin.test_only(f"{JOB}#SBATCH {option}\n")
    assert taken == (says is None)
    assert says is None or says in message
