"""The scripts of the profiles that come with hpcddp: what their sites document, line by line, reviewed once."""

from __future__ import annotations

import subprocess

import pytest

from hpcddp.cluster.profile import ClusterProfile
from hpcddp.cluster.profile_file import load_profile
from hpcddp.cluster.profile_names import profile_names
from hpcddp.core.schema import encode
from hpcddp.script.job_request import JobRequest, User
from hpcddp.script.render import ScriptLaunch, render
from hpcddp.script.resources import job_request
from hpcddp.submit.choose import layout_sweep
from hpcddp.submit.options import LayoutOptions, PointOptions
from hpcddp.sweep.expand import expand
from tests import golden

SITES = [name for name in profile_names() if name != "local"]
ACCOUNTS = {"lumi-g": "project_465000001", "jean-zay": "abc@v100"}
"""Where accounts have a form."""

LAUNCH = ScriptLaunch(
    command="python3 -u /runs/.code/abc/bootstrap.py /runs/.jobs/x", output="/runs/%j_%t.out", error="/runs/%j_%t.err"
)


def script(name: str, nodes: int, node_type: str | None = None, settings: tuple[str, ...] = ()) -> tuple[JobRequest, str]:
    """What is asked for, and the script, of the default workload on whole nodes."""
    profile = load_profile(name)
    source = layout_sweep(
        profile, LayoutOptions(nodes=nodes, node_type=node_type), PointOptions(settings=settings), _workload, "site"
    )
    (planned,) = expand(source, profile)
    user = User(account=source.sweep.account or ACCOUNTS.get(name, "proj"))
    request = job_request(profile, planned.point, source.sweep.slurm, user)
    return request, render(profile, planned.point, request, LAUNCH)


def _workload(profile: ClusterProfile) -> dict[str, object]:
    plain: dict[str, object] = encode(profile.default_workload)
    return plain


@pytest.mark.parametrize("name", SITES)
@pytest.mark.parametrize("nodes", [1, 4])
def test_script_of_site(name: str, nodes: int) -> None:
    """Each profile gives the script that was reviewed, on one node and on several, and shellcheck remarks on none."""
    _, text = script(name, nodes)
    golden.check(f"scripts/sites/{name}-{nodes}.sh", text)
    assert subprocess.run(["shellcheck", "-"], input=text, text=True, capture_output=True, check=False).stdout == ""


@pytest.mark.parametrize("name", SITES)
def test_ranks_have_the_whole_node(name: str) -> None:
    """Without a word on cores, the ranks of a whole node share all its cores, and no more than those."""
    profile, (request, _) = load_profile(name), script(name, 1)
    node = profile.node_type(None)
    assert node.physical_cores is not None
    assert node.gpus == request.ranks_per_node
    assert request.physical_cores_per_rank == node.physical_cores // request.ranks_per_node
