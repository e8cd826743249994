"""Which of a profile's variables a job exports: by its nodes and fabric, by NCCL's version, and by what commands print there."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hpcddp.backends.slurm_job_files import SCRIPT, prepare
from hpcddp.cluster.environment import EnvRule, When
from hpcddp.cluster.profile import ClusterProfile
from hpcddp.cluster.profile_file import load_profile
from hpcddp.script.job_request import User
from hpcddp.script.lint import lint_script
from hpcddp.script.render import render
from hpcddp.script.resources import job_request
from hpcddp.sweep.expand import resolve
from hpcddp.sweep.file import make_sweep
from tests.given_one_allocation import batch_of, submission_plan
from tests.script.test_render import SUBMITTED, stand_ins

SHOW = f"{sys.executable} -c 'import json, os; print(json.dumps(dict(os.environ)))'"
"""What a rank is here: it prints what it was given."""

TORCH = """
class cuda:
    class nccl:
        @staticmethod
        def version():
            VERSION
"""


def rcc(*rules: EnvRule, python: str = "python3") -> ClusterProfile:
    """Without its modules and with these rules alone."""
    profile = load_profile("rcc")
    return dataclasses.replace(
        profile, env_rules=rules, compute=dataclasses.replace(profile.compute, modules=(), module_init=(), python=python)
    )


def rule(name: str, value: str | None = "set", command: str | None = None, **when: Any) -> EnvRule:
    return EnvRule(name=name, value=None if command else value, command=command, when=When(**when), source="jobs")


def script(profile: ClusterProfile, *settings: str) -> str:
    document = {"schema": 1, "cluster": profile.name, "workload": {"model": "resnet18", "data": {"name": "cifar10"}}}
    sweep = make_sweep(document, [*settings], Path("x")).sweep
    point = resolve(sweep, profile)
    launch = dataclasses.replace(SUBMITTED, command=SHOW)
    text = render(profile, point, job_request(profile, point, sweep.slurm, User(account="proj")), launch)
    assert lint_script(text) == []
    return text


def rank_environment(
    tmp_path: Path, text: str, version: str = "raise RuntimeError('built without NCCL')"
) -> tuple[dict[str, str], str]:
    """What a rank of the job finds in its environment, where torch has that NCCL, and what the job says besides."""
    env = {**stand_ins(tmp_path), "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "PYTHONPATH": str(tmp_path / "site")}
    (tmp_path / "bin" / "srun").write_text('#!/bin/bash\nwhile [ "$1" != bash ]; do shift; done; exec "$@"\n')
    (tmp_path / "bin" / "python3").symlink_to(sys.executable)
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "torch.py").write_text(TORCH.replace("VERSION", version))
    done = subprocess.run(["bash"], input=text, env=env, text=True, capture_output=True, check=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found, done.stderr


@pytest.mark.parametrize(
    ("when", "fits"),
    [
        ({}, True),
        ({"fabric": "roce"}, True),
        ({"fabric": "Slingshot"}, False),
        ({"nodes": ">1"}, True),
        ({"nodes": "1"}, False),
        ({"nodes": "<=2"}, True),
        ({"node_type": ("a40", "v100")}, True),
        ({"node_type": ("a40",)}, False),
        ({"fabric": "RoCE", "nodes": ">2"}, False),
    ],
)
def test_what_is_known_when_the_script_is_rendered(when: dict[str, Any], fits: bool) -> None:
    """An export for the whole job, or nothing at all; the job asks nobody."""
    text = script(rcc(rule("NCCL_NET", "AWS Libfabric", **when)), "layout.nodes=2")
    assert ("\nexport NCCL_NET='AWS Libfabric'\n" in text) is fits
    assert text.count("NCCL") == fits


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("return (2, 20, 5)", "old"),
        ("return (2, 21, 5)", None),
        ("return (2, 27, 3, 'rc1')", "new"),
        ("return (2, 30, 7)", "new"),
    ],
)
def test_what_hangs_on_nccls_version(tmp_path: Path, version: str, expected: str | None) -> None:
    """torch is asked in the job: 2.27 is `>=2.27` whatever its third number."""
    rules = (rule("NCCL_X", "old", nccl="<2.21"), rule("NCCL_X", "new", nccl=">= 2.27"))
    found, said = rank_environment(tmp_path, script(rcc(*rules)), version)
    assert (found.get("NCCL_X"), said) == (expected, "")


def test_torch_that_does_not_say(tmp_path: Path) -> None:
    """The job goes on without what hangs on it, and names it."""
    rules = (rule("NCCL_X", nccl="<2.21"), rule("NCCL_Y", nodes="1"))
    found, said = rank_environment(tmp_path, script(rcc(*rules)))
    assert ("NCCL_X" in found, found["NCCL_Y"]) == (False, "set")
    assert said.splitlines()[-1].endswith("so these variables of the profile are not set: NCCL_X")


def test_ranks_on_cpus_have_no_nccl() -> None:
    """Nobody is asked for it."""
    assert "NCCL" not in script(rcc(rule("NCCL_X", nccl="<2.21")), "device=cpu")


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("echo it''s $((1 + 2))", "its 3"),
        ("true", None),
        ("echo lost; false", "lost"),
        ("echo 4 # a comment", "4"),
        ("for x in a b; do\n  echo $x\ndone | tail -n 1\n", "b"),
        ("set -- x; echo 'two  words'", "two  words"),
    ],
)
def test_what_a_command_prints(tmp_path: Path, command: str, expected: str | None) -> None:
    """Each rank runs it on its own node; what prints nothing sets nothing, and the rank starts as it would."""
    found, said = rank_environment(tmp_path, script(rcc(rule("NCCL_X", command=command, nodes="1"))))
    assert (found.get("NCCL_X"), said) == (expected, "")


def test_a_later_rule_of_the_same_name_wins(tmp_path: Path) -> None:
    """Also over one that is known before."""
    rules = (rule("NCCL_X", "first"), rule("NCCL_X", "second", nodes="1"), rule("NCCL_X", command="echo third", nodes="2"))
    assert rank_environment(tmp_path, script(rcc(*rules)))[0]["NCCL_X"] == "second"
    (tmp_path / "two").mkdir()
    assert rank_environment(tmp_path / "two", script(rcc(*rules), "layout.nodes=2"))[0]["NCCL_X"] == "third"


@pytest.mark.parametrize("value", ["Ring", 'it\'s "$HOME" `id`', "", "a;b #c", "\\\\n"])
def test_a_studys_own_variables(tmp_path: Path, value: str) -> None:
    """As they are, above those of the profile, be they of the whole job, of a rule, or of a command on the node."""
    rules = (rule("NCCL_X"), rule("NCCL_Y", command="echo profile"))
    profile = dataclasses.replace(rcc(*rules), env={"NCCL_Z": "profile"})
    found, said = rank_environment(tmp_path, script(profile, *(f"env.NCCL_{name}={json.dumps(value)}" for name in "XYZ")))
    assert ([found[f"NCCL_{name}"] for name in "XYZ"], said) == ([value] * 3, "")


def test_variables_of_points_in_one_job(tmp_path: Path) -> None:
    """An array has points of one script, and so of equal variables; in one allocation each step has its own."""
    plan = submission_plan(tmp_path, "repeat=1", axes="{env.NCCL_ALGO: [null, Ring, Tree]}")
    shapes = {dataclasses.replace(request, name="") for request in plan.requests.values()}
    prepare(tmp_path / "job", batch_of(plan, tmp_path))
    text = (tmp_path / "job" / SCRIPT).read_text()
    found = re.findall(r"\nexport HPCDDP_RANK_ENV=(.*)\n.*\nrun_step \d 30", text)
    own = [re.findall(r"NCCL_ALGO=(\w+)", words) for words in found]
    assert (len(shapes), own, lint_script(text)) == (3, [[], ["Ring"], ["Tree"]], [])


def test_steps_of_one_allocation(tmp_path: Path) -> None:
    """A variable for several nodes reaches the runs on several only, though one job has them all; preflight is on all of them."""
    plan = submission_plan(tmp_path, "repeat=1", axes="{layout.nodes: [1, 2]}")
    rules = (rule("NCCL_NET", "AWS Libfabric", nodes=">1"), rule("NCCL_CROSS_NIC", "1", fabric="RoCE"))
    batch = batch_of(dataclasses.replace(plan, profile=rcc(*rules)), tmp_path)
    prepare(tmp_path / "job", batch)
    text = (tmp_path / "job" / SCRIPT).read_text()
    assert lint_script(text) == []
    found = re.findall(r"\nexport HPCDDP_RANK_ENV=(.*)\n.*\nrun_step \d 30 (\d)", text)
    assert [(int(nodes), words) for words, nodes in found] == [(2, "'export NCCL_NET='\"'\"'AWS Libfabric'\"'\"''"), (1, "''")]
    assert (text.count("NCCL_NET="), text.count("export NCCL_CROSS_NIC=1\n"), text.count('eval "$HPCDDP_RANK_ENV"; ')) == (
        2,
        1,
        2,
    )


def gid_command() -> str:
    (found,) = [rule for rule in load_profile("rcc").env_rules if rule.name == "NCCL_IB_GID_INDEX"]
    assert found.when == When(fabric="RoCE", nccl="<2.21", nodes=">1")
    return str(found.command)


def adapter(tree: Path, name: str, gids: dict[int, tuple[str, str]], state: str = "4: ACTIVE") -> None:
    """A port as the kernel shows it: index -> type and address."""
    port = tree / name / "ports" / "1"
    (port / "gids").mkdir(parents=True)
    (port / "gid_attrs" / "types").mkdir(parents=True)
    (port / "state").write_text(f"{state}\n")
    for index, (kind, gid) in gids.items():
        (port / "gids" / str(index)).write_text(f"{gid}\n")
        (port / "gid_attrs" / "types" / str(index)).write_text(f"{kind}\n")


LOCAL, IPV4 = "fe80:0000:0000:0000:0e42:a1ff:fe00:0001", "0000:0000:0000:0000:0000:ffff:0a01:0203"
ROCE = {0: ("IB/RoCE v1", LOCAL), 1: ("RoCE v2", LOCAL), 2: ("IB/RoCE v1", IPV4), 3: ("RoCE v2", IPV4)}


@pytest.mark.parametrize(
    ("adapters", "expected"),
    [
        ([], ""),
        ([(ROCE, "4: ACTIVE")], "3"),
        ([(ROCE, "4: ACTIVE"), (ROCE, "4: ACTIVE")], "3"),
        ([(ROCE, "4: ACTIVE"), ({5: ROCE[3]}, "1: DOWN")], "3"),
        ([(ROCE, "4: ACTIVE"), ({5: ROCE[3]}, "4: ACTIVE")], ""),
        ([({0: ("IB/RoCE v1", LOCAL)}, "4: ACTIVE")], ""),
        ([({2: ROCE[3], 10: ROCE[3]}, "4: ACTIVE")], "2"),
    ],
)
def test_the_rocev2_address_of_rcc(tmp_path: Path, adapters: list[Any], expected: str) -> None:
    """The index that all ports in use agree on, of the second version and with an IPv4 address; else NCCL's own choice stays."""
    for number, (gids, state) in enumerate(adapters):
        adapter(tmp_path, f"mlx5_{number}", gids, state)
    command = gid_command().replace("/sys/class/infiniband", str(tmp_path))
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, env=dict(os.environ))
    assert (done.stdout.strip(), done.stderr) == (expected, "")
