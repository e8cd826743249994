"""Random requests: hpcddp takes what the cluster's Slurm takes and refuses what it refuses, but for the cases below."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings

from hpcddp.backends import slurm_commands
from hpcddp.cluster.profile import ClusterProfile
from hpcddp.cluster.profile_file import load_profile
from tests.twin.controllers import Controller, Controllers, of_controller, slurm_profiles
from tests.twin.given_requests import Request, refusal_by_hpcddp, refusal_by_slurm, requests


@dataclass(frozen=True, kw_only=True)
class Case:
    """A kind of request that one takes and the other does not."""

    rule: str
    """Slurm's rule behind it, and why hpcddp differs."""
    is_met: Callable[[ClusterProfile, Request, str, str], bool]
    """Of the profile, the request, and what hpcddp and Slurm say against it."""


CASES: Sequence[Case] = (
    Case(
        rule="Slurm knows its partitions (Invalid partition name). A profile that lists none leaves slurm.partition to the user.",
        is_met=lambda profile, request, ours, slurms: (
            not ours and "Invalid partition name" in slurms and not profile.slurm.partitions
        ),
    ),
    Case(
        rule="Slurm gives a job without GPU type and feature any node. hpcddp refuses it, as other nodes could be timed.",
        is_met=lambda profile, request, ours, slurms: "so other nodes could be timed instead" in ours and not slurms,
    ),
    Case(
        rule="MaxMemPerCPU: Slurm raises the CPUs of a task where --mem is more (CPUs/Task in `scontrol show job`, 22.05). "
        "hpcddp refuses, as the job would not be what its point says.",
        is_met=lambda profile, request, ours, slurms: "MB to the cores of this job" in ours and not slurms,
    ),
    Case(
        rule="Where nodes come with their GPUs, a request does not say how many: Slurm cannot refuse more than there are.",
        is_met=lambda profile, request, ours, slurms: (
            profile.slurm.gpu_request == "none" and ours.startswith("layout.gpus_per_node is") and not slurms
        ),
    ),
)

AT_MOST = 2
"""Cases of one profile."""


@pytest.mark.parametrize("valid", [True, False])
@pytest.mark.parametrize("cluster", [of_controller(name) for name in slurm_profiles()])
def test_hpcddp_and_slurm_agree(shipped: Controllers, cluster: str, valid: bool) -> None:
    """Ten requests that hpcddp takes, ten that it refuses."""
    assert undocumented(shipped.get(load_profile(cluster)), valid, 10) == []


@pytest.mark.soak
@pytest.mark.parametrize("valid", [True, False])
@pytest.mark.parametrize("cluster", slurm_profiles())
def test_hpcddp_and_slurm_agree_on_many(shipped: Controllers, cluster: str, valid: bool) -> None:
    """A hundred of each."""
    assert undocumented(shipped.get(load_profile(cluster)), valid, 100) == []


def undocumented(controller: Controller, valid: bool, count: int) -> list[tuple[Request, str, str]]:
    """Of so many requests that hpcddp takes, or refuses, those that Slurm does not, unless that is one of CASES.

    A second request of the same case says nothing new: another one is drawn in its place.
    """
    profile, found, cases = controller.profile, list[tuple[Request, str, str]](), set[str]()
    with patch.dict(os.environ, controller.env):
        accounts = slurm_commands.accounts() or []

    @settings(
        max_examples=count, derandomize=True, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )
    @given(requests(profile))
    def judge(request: Request) -> None:
        ours = refusal_by_hpcddp(profile, request) or account_refusal(request, accounts)
        assume((not ours) == valid)
        slurms = refusal_by_slurm(controller, request) or ""
        if bool(ours) == bool(slurms):
            return
        case = next((case.rule for case in CASES if case.is_met(profile, request, ours, slurms)), None)
        assume(case is None or case not in cases)
        if case is None:
            found.append((request, ours, slurms))
        else:
            cases.add(case)

    judge()
    print(f"{profile.name}: {count} {'valid' if valid else 'invalid'} requests, {len(cases)} of them documented cases")
    assert len(cases) <= AT_MOST
    return found


def account_refusal(request: Request, accounts: Sequence[str]) -> str:
    """What `submit` says of it before it submits."""
    return "" if request.account in accounts else f"account `{request.account}` is not yours to charge"
