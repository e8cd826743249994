"""What hpcddp renders, a real Slurm of that shape takes; what hpcddp refuses, it would refuse."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcddp.cluster.profile_file import load_profile
from hpcddp.core.jobspec import JobSpec
from hpcddp.script.job_request import User
from hpcddp.script.render import launch_by_hand, render
from hpcddp.script.resources import job_request
from hpcddp.sweep.expand import expand
from hpcddp.sweep.file import read_sweep
from tests.twin.manager import Twins
from tests.twin.twin import Twin

JOBS = Path(__file__).parent.parent.parent / "jobs"


def scripts(cluster: str, sweep: str) -> dict[str, str]:
    """Label -> script of every point."""
    source, profile = read_sweep(JOBS / f"{sweep}.yaml"), load_profile(cluster)
    texts = {}
    for planned in expand(source, profile):
        request = job_request(profile, planned.point, source.sweep.slurm, User(account="proj"))
        launch = launch_by_hand(profile, JobSpec(point=planned.point, study="$HPCDDP_RUNS/adhoc"), None)
        texts[planned.point.label] = render(profile, planned.point, request, launch)
    return texts


def refused(twin: Twin, texts: dict[str, str]) -> dict[str, str]:
    results = {label: twin.test_only(text) for label, text in texts.items()}
    return {label: message for label, (taken, message) in results.items() if not taken}


@pytest.mark.parametrize("sweep", ["rcc-bigmnist", "rcc-mnist"])
def test_every_point_is_taken_by_rcc(rcc_twin: Twin, sweep: str) -> None:
    """`sbatch --test-only` takes the script of every point of the shipped sweep."""
    assert refused(rcc_twin, scripts("rcc", sweep)) == {}


def test_every_point_is_taken_by_marconi100(marconi100_twin: Twin) -> None:
    """`sbatch --test-only` takes the script of every point of the shipped sweep."""
    assert refused(marconi100_twin, scripts("marconi100", "marconi100-resnet50")) == {}


def test_every_point_is_taken_by_aws_g5(twins: Twins) -> None:
    """`sbatch --test-only` takes the script of every point of the shipped sweep."""
    assert refused(twins.get("aws-g5"), scripts("aws-g5", "ec2-resnet18")) == {}
