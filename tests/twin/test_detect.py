"""`hpcddp clusters detect` on a Slurm like each shipped profile gives back what the profile says of Slurm, field by field."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcddp.cluster.profile import ClusterProfile, NodeType
from hpcddp.cluster.profile_file import load_profile, read_profile
from hpcddp.cluster.slurm_rules import Qos, SlurmRules
from hpcddp.core.written_lists import expand_node_list
from hpcddp.detect.check import check_cluster
from hpcddp.detect.detect import detect_cluster
from tests.twin.config import has_gres
from tests.twin.controllers import Controller, Controllers
from tests.twin.shape import memory_mb
from tests.twin.shipped_profiles import of_controller, slurm_profiles


@pytest.fixture(scope="module", params=[of_controller(name) for name in slurm_profiles()])
def controller(controllers: Controllers, request: pytest.FixtureRequest) -> Controller:
    """Of each shipped profile with Slurm, with all its nodes."""
    return controllers.get(load_profile(request.param))


@pytest.fixture(scope="module")
def own(controller: Controller) -> Iterator[None]:
    """It is the Slurm of this process."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in controller.env.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="module")
def file(own: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What detect writes there."""
    file = tmp_path_factory.mktemp("detected") / "mine.yaml"
    file.write_text(detect_cluster("mine").text, encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def detected(file: Path) -> ClusterProfile:
    """The same, read."""
    return read_profile(file)


def same_nodes(detected: ClusterProfile, controller: Controller, key: str) -> NodeType:
    """The detected type of the nodes that are of that type in the profile."""
    names = {name for node in controller.shape.nodes if node.type == key for name in expand_node_list(node.name)}
    return next(kind for kind in detected.node_types.values() if names <= set(expand_node_list(kind.names or "")))


def test_node_types(controller: Controller, detected: ClusterProfile) -> None:
    """Count, cores, threads, memory and GPUs of every type; its features are in the note where they are not needed."""
    kinds = controller.profile.node_types
    counts_gpus = any(has_gres(controller.profile, kind) for kind in kinds.values())
    for key, kind in kinds.items():
        found = same_nodes(detected, controller, key)
        assert found.physical_cores == kind.physical_cores
        assert found.smt == kind.smt
        assert found.memory_mb == memory_mb(kind)
        gpus = kind.gpus if has_gres(controller.profile, kind) else 0
        assert found.gpus == (gpus if counts_gpus else None)
        assert found.gres_type == (kind.gres_type if gpus else None)
        if kind.sockets is not None:
            assert found.sockets == kind.sockets


def test_one_partition(controller: Controller, detected: ClusterProfile) -> None:
    """Its name, its times and its memory, where it is the only one."""
    said, found = controller.profile.slurm, detected.slurm
    if said.partition is None or found.partition is None:
        return
    assert found.partition == said.partition
    assert found.default_walltime_min == said.default_walltime_min
    assert found.max_mb_per_core == said.max_mb_per_core
    assert found.default_mb_per_core == said.default_mb_per_core
    assert limits(found) == limits(said)


def limits(rules: SlurmRules) -> dict[str | None, Qos]:
    """Those of each QOS; what it is for, and whether a job is given it unasked, is the site's to say."""
    return {rule.name: dataclasses.replace(rule, intent=None, automatic=None) for rule in rules.qos}


def test_requests(controller: Controller, detected: ClusterProfile) -> None:
    """What a user may have, whether an account must be named, and how GPUs are requested."""
    said, found = controller.profile.slurm, detected.slurm
    assert found.max_gpus_per_user == said.max_gpus_per_user
    assert found.max_cores_per_user == said.max_cores_per_user
    assert found.always_exclusive == bool(said.always_exclusive)
    assert found.account_required == bool(said.account_required)
    assert found.gpu_request in {"gres", said.gpu_request}  # a Slurm that takes both has no rule of its own
    assert found.memory_option == said.memory_option
    assert found.max_array_size == 1001


def test_the_file_works_as_it_stands(controller: Controller, detected: ClusterProfile, file: Path, tmp_path: Path) -> None:
    """`render --cluster FILE --nodes 2` makes a script that this Slurm takes."""
    command = [sys.executable, "-m", "hpcddp", "render", "--cluster", str(file), "--nodes", "2"]
    accounts = re.search(r"Accounts you may charge: ([^,.\s]+)", str(detected.note))
    account = accounts[1] if accounts else "none"
    done = subprocess.run([*command, "--set", f"account={account}"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    taken, message = controller.test_only(done.stdout)
    assert taken, message


def test_check_agrees_with_what_detect_wrote(detected: ClusterProfile) -> None:
    """No drift, and nothing that Slurm knows is missing."""
    found = check_cluster(detected)
    assert found.of("differs") == []
    assert found.of("new") == []


def test_check_agrees_with_the_profile(own: None, controller: Controller) -> None:
    """The twin is like the profile: no drift."""
    assert check_cluster(controller.profile).of("differs") == []
