from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from hpcddp.cluster.profile import ClusterProfile
from hpcddp.cluster.profile_file import load_profile
from hpcddp.cluster.slurm_rules import Rendezvous
from hpcddp.core.errors import UsageError
from hpcddp.script.job_request import JobRequest, User, gpu_option
from hpcddp.script.render import render
from hpcddp.script.resources import job_request
from tests.given_plan import allocation_plan
from tests.script.test_render import SUBMITTED, allocation_script, run, shellcheck, stand_ins
from tests.script.test_resources import requested

MASKS = ("0xfe", "0xfe00", "0xfe0000", "0xfe000000")


def marconi100(node: dict[str, Any] | None = None, **slurm: Any) -> ClusterProfile:
    """Four GPUs, SMT4, without its modules; with these facts of its Slurm and its nodes instead."""
    profile = load_profile("marconi100")
    rules = dataclasses.replace(profile.slurm, **slurm)
    types = {name: dataclasses.replace(each, **(node or {})) for name, each in profile.node_types.items()}
    compute = dataclasses.replace(profile.compute, modules=())
    return dataclasses.replace(profile, slurm=rules, node_types=types, compute=compute)


def rendered(profile: ClusterProfile, *settings: str) -> tuple[JobRequest, str]:
    point, request = requested(profile, ["layout.gpus_per_node=4", *settings])
    text = render(profile, point, request, SUBMITTED)
    assert shellcheck(text) == ""
    return request, text


def srun_line(text: str) -> str:
    return next(line for line in text.replace(" \\\n ", "").splitlines() if line.startswith("srun "))


@pytest.mark.parametrize(
    ("gpu_request", "settings", "header", "srun"),
    [
        ("gres", [], ["--gres=gpu:4"], []),
        ("gpus-per-node", [], ["--gpus-per-node=4"], []),
        ("gpus-per-task", [], ["--gpus-per-task=1"], ["--gpus-per-task=1"]),
        ("gpus-per-task", ["layout.launcher=torchrun"], ["--gpus-per-task=4"], ["--gpus-per-task=4"]),
        ("gpus-per-task", ["layout.gpus_per_node=3"], ["--gpus-per-node=4"], []),
        ("none", [], [], []),
    ],
)
def test_ways_to_ask_for_gpus(gpu_request: str, settings: list[str], header: list[str], srun: list[str]) -> None:
    _, text = rendered(marconi100(gpu_request=gpu_request), *settings)
    assert re.findall(r"^#SBATCH (--g\S*)$", text, re.MULTILINE) == header
    assert re.findall(r"--g(?:res|pus)\S*", srun_line(text)) == srun


def test_a_typed_request_by_task() -> None:
    request, _ = rendered(marconi100({"gres_type": "v100"}, gpu_request="gpus-per-task"))
    assert gpu_option(request) == "--gpus-per-task=v100:1"


@pytest.mark.parametrize(("way", "option"), [("hint", "--hint=nomultithread"), ("threads-per-core", "--threads-per-core=1")])
def test_one_thread_per_core(way: str, option: str) -> None:
    request, text = rendered(marconi100(one_thread_per_core=way))
    assert (request.cpus_per_rank, request.physical_cores_per_rank) == (8, 8)
    assert f"#SBATCH {option}\n" in text
    assert "--cpus-per-task=8 " in srun_line(text)


def test_options_of_the_profile_come_before_the_users() -> None:
    """sbatch and srun take the last of two that disagree."""
    profile = marconi100(options=("--network=disable_rdzv_get",), srun_options=("--gpu-bind=none",))
    settings = ["slurm.options=[--network=other]", "slurm.srun_options=[--gpu-bind=closest, --mpi=pmi2]"]
    _, text = rendered(profile, *settings)
    assert "#SBATCH --network=disable_rdzv_get\n#SBATCH --network=other\n" in text
    assert " --gpu-bind=none --gpu-bind=closest --mpi=pmi2 " in srun_line(text)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        *((each, f"srun option {each}: hpcddp sets") for each in ("--ntasks=3", "--output=/x", "--kill-on-bad-exit=0")),
        ("-n 4", "job option"),
    ],
)
def test_an_srun_option_is_one_word_and_none_that_hpcddp_sets(option: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        rendered(marconi100(), f"slurm.srun_options=[{option}]")
    _, text = rendered(marconi100(), "slurm.srun_options=['--comment=$(id) x']")
    assert " --comment='$(id) x' " in srun_line(text)


@pytest.mark.parametrize(
    ("settings", "slurm", "bound"),
    [
        ([], {}, True),
        (["layout.exclusive=false"], {}, False),
        (["layout.exclusive=false"], {"always_exclusive": True}, True),
        (["layout.gpus_per_node=2"], {}, False),
        (["layout.launcher=torchrun"], {}, False),
    ],
)
def test_masks_where_each_gpu_of_a_whole_node_has_a_rank(settings: list[str], slurm: dict[str, Any], bound: bool) -> None:
    """They name CPUs of the node by their numbers, so the ranks must have all of it."""
    _, text = rendered(marconi100({"cpu_masks": MASKS}, **slurm), *settings)
    assert ("--cpu-bind=mask_cpu:0xfe,0xfe00,0xfe0000,0xfe000000" in srun_line(text)) is bound


def test_steps_of_one_allocation(tmp_path: Path) -> None:
    scripts = {}
    for way in ("gpus-per-task", "none"):
        (tmp_path / way).mkdir()
        rcc: Any = load_profile("rcc")
        rcc = dataclasses.replace(rcc, slurm=dataclasses.replace(rcc.slurm, gpu_request=way, srun_options=("--gpu-bind=none",)))
        plan = allocation_plan(tmp_path / way, "repeat=1", "device=cuda", axes="{layout.nodes: [1, 2]}")
        slurm, user = plan.source.sweep.slurm, User(account="proj")
        requests = {each.point.label: job_request(rcc, each.point, slurm, user) for each in plan.points}
        scripts[way] = allocation_script(dataclasses.replace(plan, profile=rcc, requests=requests), tmp_path / way)
        assert scripts[way].count(" --gpu-bind=none \\") == 3
    assert scripts["gpus-per-task"].count("--gpus-per-task=v100:1") == 4
    assert not re.search(r"--gres|--gpus", scripts["none"])


SCONTROL = """if [ "$2" = hostnames ]; then echo jwb0001
else echo "NodeName=jwb0001 Arch=x86_64"; echo "   NodeAddr=$ADDRESS NodeHostName=jwb0001 Version=24.05.8"; fi"""


def met_at(tmp_path: Path, address: str = "10.1.2.3", **rendezvous: Any) -> tuple[int, str]:
    profile = dataclasses.replace(marconi100(), rendezvous=Rendezvous(**rendezvous))
    _, text = rendered(profile)
    env = {**stand_ins(tmp_path), "ADDRESS": address}
    (tmp_path / "bin" / "scontrol").write_text(f"#!/bin/bash\n{SCONTROL}\n")
    (tmp_path / "bin" / "srun").write_text('#!/bin/bash\necho "$MASTER_ADDR"\n')
    done = run(text, env)
    return done.returncode, (done.stdout + done.stderr).strip()


@pytest.mark.parametrize(
    ("rendezvous", "address", "expected"),
    [
        ({}, "10.1.2.3", "jwb0001"),
        ({"master_suffix": "i"}, "10.1.2.3", "jwb0001i"),
        ({"master_address": "numeric"}, "10.1.2.3", "10.1.2.3"),
        ({"master_address": "numeric"}, "fd00::12", "fd00::12"),
    ],
)
def test_where_the_ranks_meet(tmp_path: Path, rendezvous: dict[str, str], address: str, expected: str) -> None:
    assert met_at(tmp_path, address, **rendezvous) == (0, expected)


def test_an_address_that_is_a_name(tmp_path: Path) -> None:
    """Slurm has the node's name for its address where nothing else is configured."""
    words = "hpcddp: Slurm's address of jwb0001 is 'jwb0001', which is no number. Set rendezvous.master_suffix in the profile."
    assert met_at(tmp_path, "jwb0001", master_address="numeric") == (1, words)
