"""Each limit that a shipped profile documents: kept, hpcddp and the cluster's Slurm take the request; passed, neither does."""

from __future__ import annotations

import pytest

from hpcddp.cluster.profile_file import load_profile
from tests.twin.controllers import Controllers, of_controller, slurm_profiles
from tests.twin.given_requests import documented_limits, refusal_by_hpcddp, refusal_by_slurm, unreachable_limits

UNKNOWN_TO_SLURM = {
    "rcc node type v100-sxm2: count": "neither GPU type nor feature is known: Slurm gives any node, hpcddp refuses",
    "alps node type gh200: gpus": "nodes come with their GPUs, and a request does not say how many",
    "vista node type gh: gpus": "nodes come with their GPUs, and a request does not say how many",
}
"""Limits of profiles for which a request has no words."""


NARROWER = {
    "rcc: max_cores_per_user": "a user's GPUs and the cores of one type's nodes are fewer",
    "leonardo: node type booster: count": "no QOS allows so many nodes",
    "lumi-g: node type mi250x: count": "no partition allows so many nodes",
    "marconi100: node type ac922: count": "no QOS allows so many nodes",
    "marenostrum5-acc: node type h100: count": "no QOS allows so many nodes",
    "vista: node type gh: count": "no partition allows so many nodes",
}
"""Limits that nobody meets, as another one comes first."""


def test_every_limit_is_met_by_a_request() -> None:
    """But for those behind a narrower one."""
    profiles = [load_profile(name) for name in slurm_profiles()]
    assert {f"{each.name}: {limit}" for each in profiles for limit in unreachable_limits(each)} == set(NARROWER)


@pytest.mark.parametrize("cluster", [of_controller(name) for name in slurm_profiles()])
def test_limits_are_those_of_the_cluster(shipped: Controllers, cluster: str) -> None:
    """Nodes, time, QOS, GPUs, cores and memory, at the limit and one past it."""
    profile = load_profile(cluster)
    controller = shipped.get(profile)
    wrong = {}
    for limit in documented_limits(profile):
        within = refusal_by_hpcddp(profile, limit.within), refusal_by_slurm(controller, limit.within)
        past = refusal_by_hpcddp(profile, limit.past), refusal_by_slurm(controller, limit.past)
        if (within != (None, None) or None in past) and f"{cluster} {limit.name}" not in UNKNOWN_TO_SLURM:
            wrong[limit.name] = within, past
    assert wrong == {}
