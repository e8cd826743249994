"""Ways in which sites have ranks started, on a real Slurm: in containers, by torchrun at another name, with one GPU each."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.cannot_run import cannot_run
from tests.twin.container_standins import write_standins
from tests.twin.twin import Twin
from tests.twin.userland import User

SWEEP = """
schema: 1
cluster: {name}.yaml
device: cpu
workload: {{model: mnist-cnn, data: {data}, batch_per_gpu: 8, loader_workers_per_rank: 0}}
layout: {{nodes: {nodes}, gpus_per_node: {ranks}, physical_cores_per_rank: 1, exclusive: false, launcher: {launcher}}}
baselines: false
measure: {{warmup_steps: 1, steps: 3, telemetry_hz: 0}}
slurm: {{walltime_min: 5, mem_mb: 3000}}
"""

RUNTIMES = ("charliecloud", "apptainer", "podman-hpc", "pyxis", "cscs")

SITES: Mapping[str, dict[str, Any]] = {
    **{runtime: {"nodes": 1} for runtime in RUNTIMES},
    "charliecloud": {"nodes": 2},
    "suffix": {"nodes": 2, "launcher": "torchrun", "facts": {"rendezvous": {"master_suffix": "-ib"}}},
    "by-task": {
        "ranks": 2,
        "facts": {"slurm": {"gpu_request": "gpus-per-task", "local_device": "zero", "one_thread_per_core": "threads-per-core"}},
    },
}
"""By the name of a profile: what its sweep asks for, and how it differs from rcc."""

TRIED = ("charliecloud", "by-task")
"""Sites at which `make test` has a run; `make soak` has one at each."""


def image_in(folder: Path) -> Path:
    """A root file system with nothing in it: places for what a container shows, and links as Debian has them."""
    for name in ("usr", "dev", "proc", "sys", "tmp", "etc", "root", "home"):
        (folder / name).mkdir(parents=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        (folder / name).symlink_to(f"usr/{name}")
    for name in ("passwd", "group", "hosts", "resolv.conf"):
        (folder / "etc" / name).touch()
    return folder


def profile_of(name: str, image: Path) -> dict[str, Any]:
    """It extends rcc by what the site is here for."""
    facts = SITES[name].get("facts", {})
    compute: dict[str, Any] = {"python": sys.executable}
    if name in RUNTIMES:
        binds = ["/usr", sys.prefix, sys.base_prefix]
        compute["container"] = {"image": str(image), "runtime": name, "binds": binds, "gpus": "none"}
    return {"schema": 1, "name": name, "title": name, "extends": "rcc", "compute": compute, **facts}


@pytest.fixture(scope="module")
def user(rcc_twin: Twin, tmp_path_factory: pytest.TempPathFactory) -> User:
    """Has submitted a run at each of TRIED, which have ended."""
    if shutil.which("ch-run") is None:
        cannot_run("no Charliecloud: apt-get install charliecloud-runtime")
    home = tmp_path_factory.mktemp("user")
    image = image_in(home / "image")
    write_standins(home / "bin")
    with (rcc_twin.folder / "hosts").open("a") as hosts:
        hosts.write("".join(f"127.0.0.1 {node.name}-ib\n" for node in rcc_twin.shape.nodes))
    user = User(rcc_twin, home, {"PATH": f"{home}/bin:{os.environ['PATH']}", "IMAGE": str(image)})
    user.hpcddp("data", "prepare", "bigmnist", "--root", "my data", "--copies", 1, "--digits", "sklearn")
    run_at(user, TRIED)
    return user


@pytest.fixture(scope="module")
def everywhere(user: User) -> User:
    """The same, and at the other sites."""
    run_at(user, [name for name in SITES if name not in TRIED])
    return user


def run_at(user: User, sites: Iterable[str]) -> None:
    for name in sites:
        site, home = SITES[name], user.home
        (home / f"{name}.yaml").write_text(json.dumps(profile_of(name, home / "image")))
        data = f"{{name: bigmnist, copies: 1, root: {home}/my data}}" if name in RUNTIMES else "{name: synthetic-mnist}"
        sweep = {"nodes": 1, "ranks": 1, "launcher": "direct", "data": data} | {key: site[key] for key in site if key != "facts"}
        (home / f"at-{name}.yaml").write_text(SWEEP.format(name=name, **sweep))
        user.hpcddp("submit", f"at-{name}.yaml", "-y")
    user.twin.wait_jobs(300)
    assert user.failures() == {}


def records(user: User, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """launch.json and end.json of the site's only run."""
    (attempt,) = (user.home / f"at-{name}").glob("*/r1/*.0")
    launch, end = (json.loads((attempt / file).read_text()) for file in ("launch.json", "end.json"))
    return launch, end


def test_ranks_in_a_container(user: User) -> None:
    """They find code, data and each other in it, and leave their records where a bare run does."""
    as_in_a_bare_run(user, "charliecloud")


@pytest.mark.soak
@pytest.mark.parametrize("runtime", RUNTIMES[1:])
def test_ranks_in_other_containers(everywhere: User, runtime: str) -> None:
    """The same where stand-ins for other runtimes start it."""
    as_in_a_bare_run(everywhere, runtime)


def as_in_a_bare_run(user: User, runtime: str) -> None:
    launch, end = records(user, runtime)
    own = launch["environment"]
    assert (own.get("APPTAINER_NAME") or "charliecloud", "CH_RUNNING" in own) == (runtime, True)
    assert (end["state"], len(end["ranks"])) == ("done", SITES[runtime]["nodes"])
    assert all(gate["passed"] for gate in end["gates"])
    assert launch["profile"]["compute"]["container"]["runtime"] == runtime
    assert own["OMP_NUM_THREADS"] == "1"


@pytest.mark.soak
def test_torchrun_at_a_name_that_is_no_hosts(everywhere: User) -> None:
    """Its own host check does not decide who listens: the node's number does."""
    launch, end = records(everywhere, "suffix")
    assert launch["environment"]["MASTER_ADDR"] == f"{launch['hosts'][0]}-ib"
    assert (launch["launcher"], end["state"], len(end["ranks"])) == ("torchrun", "done", 2)


def test_gpus_by_task(user: User) -> None:
    """Slurm gives two tasks two GPUs; without a second thread on their cores."""
    launch, end = records(user, "by-task")
    own = launch["environment"]
    assert (own["SLURM_GPUS_PER_TASK"], own["SLURM_GPUS_ON_NODE"], own["SLURM_CPUS_ON_NODE"]) == ("v100:1", "2", "2")
    assert (launch["profile"]["slurm"]["local_device"], end["state"], len(end["ranks"])) == ("zero", "done", 2)


@pytest.mark.soak
def test_by_hand_and_in_one_allocation(user: User) -> None:
    """As submitted: the script finds its hpcddp in the image, here by a bind, and each step starts a container of its own."""
    profile = profile_of("charliecloud", user.home / "image")
    profile["compute"]["container"]["binds"].append(str(Path(__file__).parents[2]))
    (user.home / "charliecloud.yaml").write_text(json.dumps(profile))
    sweep = SWEEP.format(name="charliecloud", nodes=1, ranks=1, launcher="direct", data="{name: synthetic-mnist}")
    (user.home / "both.yaml").write_text(f"{sweep}points: {{nodes: {{layout.nodes: [1, 2]}}}}\n")
    user.hpcddp("submit", "both.yaml", "--one-allocation", "-y")
    (user.home / "by hand").mkdir()
    script = user.hpcddp("render", "both.yaml", "--where", "layout.nodes == 2", "--set", "account=proj").stdout
    user.twin.run(["sbatch"], text=script, cwd=user.home / "by hand")
    user.twin.wait_jobs(200)
    assert user.failures() == {}
    assert "2 runs: 2 done" in user.hpcddp("status", "both").stdout
    assert "gates     1 of 1 runs pass" in user.hpcddp("analyze", "by hand/jobs/adhoc").stdout
