"""The scripts of the profiles that come with hpcddp: what their sites document, line by line, reviewed once."""

from __future__ import annotations

import subprocess

import pytest

from hpcddp.cluster.profile import ClusterProfile
from hpcddp.cluster.profile_file import load_profile
from hpcddp.cluster.profile_names import profile_names
from hpcddp.core.errors import UsageError
from hpcddp.core.point import Point
from hpcddp.core.schema import encode
from hpcddp.script.job_request import JobRequest, User
from hpcddp.script.render import ScriptLaunch, render
from hpcddp.script.resources import job_request
from hpcddp.submit.choose import layout_sweep
from hpcddp.submit.options import LayoutOptions, PointOptions
from hpcddp.sweep.expand import expand
from tests import golden

SITES = [name for name in profile_names() if name != "local"]
ACCOUNTS = {"lumi-g": "project_465000001", "jean-zay": "abc@h100", "deltaai": "abcd-dtai-gh"}
"""Where accounts have a form."""

LAUNCH = ScriptLaunch(
    command="python3 -u /runs/.code/abc/bootstrap.py /runs/.jobs/x", output="/runs/%j_%t.out", error="/runs/%j_%t.err"
)


def script(name: str, nodes: int, node_type: str | None = None, settings: tuple[str, ...] = ()) -> tuple[JobRequest, str]:
    """What is asked for, and the script, of the default workload on whole nodes."""
    parts = script_parts(name, nodes, node_type, settings)
    return parts[2], render(*parts)


def script_parts(
    name: str, nodes: int, node_type: str | None = None, settings: tuple[str, ...] = ()
) -> tuple[ClusterProfile, Point, JobRequest, ScriptLaunch]:
    """What that script is made of."""
    profile = load_profile(name)
    source = layout_sweep(
        profile, LayoutOptions(nodes=nodes, node_type=node_type), PointOptions(settings=settings), _workload, "site"
    )
    (planned,) = expand(source, profile)
    user = User(account=source.sweep.account or ACCOUNTS.get(name, "proj"))
    return profile, planned.point, job_request(profile, planned.point, source.sweep.slurm, user), LAUNCH


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


JEAN_ZAY = {
    "v100-16g": ("gpu:4", "--constraint=v100-16g", "cpus-per-task=10", "@v100", "qos_gpu-dev"),
    "v100-8": ("gpu:8", "--partition=gpu_p2", "cpus-per-task=3", "@v100", "qos_gpu-dev"),
    "a100": ("gpu:8", "--constraint=a100", "cpus-per-task=8", "@a100", "qos_gpu_a100-dev"),
    "h100": ("gpu:4", "--constraint=h100", "cpus-per-task=24", "@h100", "qos_gpu_h100-dev"),
}


@pytest.mark.parametrize(("node_type", "words"), JEAN_ZAY.items())
def test_node_types_have_rules_of_their_own(node_type: str, words: tuple[str, ...]) -> None:
    """Jean Zay's types differ in account, partition, constraint, cores a GPU, QOS and modules."""
    _, text = script("jean-zay", 2, node_type, (f"account=abc{words[3]}", "slurm.intent=debug"))
    assert all(word in text for word in words)
    assert [line.split()[-1] for line in text.splitlines() if line.startswith("checked module load")] == [
        *([f"arch/{node_type}"] if node_type in ("a100", "h100") else []),
        "pytorch-gpu/py3/2.8.0",
    ]


@pytest.mark.parametrize(("nodes", "most_min"), [(91, 120), (92, 360), (183, 360), (184, 720), (9472, 720)])
def test_wall_time_that_depends_on_the_nodes(nodes: int, most_min: int) -> None:
    """Frontier's bins: each size of job has its own limit, accepted at it and refused one minute past."""
    script("frontier", nodes, settings=(f"slurm.walltime_min={most_min}",))
    with pytest.raises(UsageError, match=f"at most {most_min} minutes"):
        script("frontier", nodes, settings=(f"slurm.walltime_min={most_min + 1}",))


def test_what_a_site_rejects_is_not_headers_for() -> None:
    """Vista takes neither GPUs nor memory, MareNostrum no memory; JUPITER and Alps give whole nodes."""
    headers = {name: "\n".join(line for line in script(name, 2)[1].splitlines() if line.startswith("#SBATCH")) for name in SITES}
    assert not any(words in headers["vista"] for words in ("--gres", "--gpus", "--mem", "--nodelist"))
    assert "--mem" not in headers["marenostrum5-acc"]
    assert "--qos=acc_ehpc" in headers["marenostrum5-acc"]
    assert "--gpus" not in headers["alps"] + headers["jupiter"]
    assert "--mem=460800M" in headers["alps"]
