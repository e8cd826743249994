"""The twin is a real Slurm with the rules of its profile."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcddp.core.errors import HpcddpError
from tests.backends.fake_slurm import PATIENCE_S
from tests.twin.twin import Twin

JOB = """#!/bin/bash
#SBATCH --job-name=first --account=proj --partition=gpu --gres=gpu:v100:2 --nodes=2 --ntasks-per-node=1 --mem=1000 --comment=a|b
{more}
set -e
. /etc/profile.d/modules.sh
module load {modules}
srun --ntasks=2 bash -c 'echo "$SLURMD_NODENAME $CUDA_VISIBLE_DEVICES $(command -v python3)"'
python3 -c 'import sys; print(sys.executable)'
"""


def script(twin: Twin, more: str = "") -> str:
    """A job of two tasks that loads the profile's modules."""
    return JOB.format(modules=" ".join(twin.profile.compute.modules), more=more)


def test_a_job_sees_its_gpus_its_modules_and_its_python(rcc_twin: Twin, tmp_path: Path) -> None:
    """A job runs to COMPLETED with CUDA_VISIBLE_DEVICES set on each node and the modules' Python first in PATH."""
    sbatch = ["sbatch", "--parsable", "--output=out", "--nodelist=gn[01-02]"]
    number = rcc_twin.run(sbatch, text=script(rcc_twin), cwd=tmp_path).stdout.strip()
    rcc_twin.wait_jobs(PATIENCE_S)
    *tasks, python = (tmp_path / "out").read_text().splitlines()
    wrapper = rcc_twin.folder / "bin" / "python3"
    assert sorted(tasks) == [f"gn01 0,1 {wrapper}", f"gn02 0,1 {wrapper}"]
    assert python == rcc_twin.python
    (job,) = (row for row in rcc_twin.sacct() if row["JobID"] == number)
    assert (job["JobName"], job["State"], job["ExitCode"], job["NodeList"]) == ("first", "COMPLETED", "0:0", "gn[01-02]")
    assert "gres/gpu=4" in job["AllocTRES"]
    assert job["Comment"] == "a|b"


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ("#SBATCH --account=nobody", "Invalid account"),
        ("#SBATCH --account=unset", "AssocGrpSubmitJobsLimit"),
        ("#SBATCH --partition=normal", "invalid partition"),
        ("#SBATCH --qos=night", "Invalid qos"),
        ("#SBATCH --qos=dev", "QOSMaxNodePerJobLimit"),
        ("#SBATCH --time=8-00:00:00", "time limit"),
        ("#SBATCH --gres=gpu:v100:5", "Requested node configuration is not available"),
        ("#SBATCH --nodes=7", "Requested node configuration is not available"),
        ("#SBATCH --nodes=7 --gres=gpu:4", "QOSMaxGRESPerUser"),
        ("#SBATCH --mem=360001", "Requested node configuration is not available"),
    ],
)
def test_what_the_cluster_would_refuse_is_refused(rcc_twin: Twin, more: str, says: str) -> None:
    """A wrong account, partition or QOS, and more than a limit or a node has, are refused at submission."""
    assert rcc_twin.test_only(script(rcc_twin))[0]
    taken, message = rcc_twin.test_only(script(rcc_twin, more))
    assert not taken
    assert says.lower() in message.lower()


def test_a_job_names_its_account_where_the_cluster_wants_it(rcc_twin: Twin) -> None:
    """Without --account nothing is submitted, as on the cluster."""
    taken, message = rcc_twin.test_only("#!/bin/bash\n#SBATCH --partition=gpu --mem=1000\n")
    assert not taken
    assert "AssocGrpSubmitJobsLimit" in message


def test_a_failed_job_is_waited_for_and_told(rcc_twin: Twin, tmp_path: Path) -> None:
    """wait_jobs returns when a job has failed as well, and sacct knows how."""
    rcc_twin.run(["sbatch", "--output=out"], text=script(rcc_twin, "exit 3"), cwd=tmp_path)
    rcc_twin.wait_jobs(PATIENCE_S)
    job = rcc_twin.sacct()[-1]
    assert (job["State"], job["ExitCode"]) == ("FAILED", "3:0")


def test_a_command_that_fails_says_why(rcc_twin: Twin) -> None:
    """run raises with the command's own words."""
    with pytest.raises(HpcddpError, match="Invalid partition"):
        rcc_twin.run(["scontrol", "update", "PartitionName=none", "State=UP"])


def test_jobs_that_do_not_end_are_shown(rcc_twin: Twin) -> None:
    """wait_jobs gives up after its time and shows the queue."""
    rcc_twin.run(["sbatch", "--hold"], text=script(rcc_twin))
    with pytest.raises(HpcddpError, match=r"(?s)end of all jobs.*JobHeldUser"):
        rcc_twin.wait_jobs(0.1)
    rcc_twin.run(["scancel", "--name=first"])
    rcc_twin.wait_jobs(PATIENCE_S)
    assert rcc_twin.sacct()[-1]["State"].startswith("CANCELLED")
