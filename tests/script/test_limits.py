"""What a profile says of accounts, memory and whole nodes, and of one node type apart from the others."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from hpcddp.cluster.profile import ClusterProfile
from hpcddp.cluster.profile_file import load_profile, read_profile
from hpcddp.core.errors import UsageError
from hpcddp.core.hours import Hours
from hpcddp.script.job_request import User
from hpcddp.script.resources import hours_at_most, job_request
from hpcddp.sweep.expand import resolve
from hpcddp.sweep.file import make_sweep
from tests.script.test_resources import request_on

FORM = "account_form: {pattern: '[a-z]+_g', sentence: GPU accounts end in _g}"

HEAD = """\
schema: 1
name: site
title: A site
default_node_type: a
node_types:
  a: {count: 9, physical_cores: 32, smt: 2, gpus: 4, memory_mb: 320000, constraint: a}
"""


def site(tmp_path: Path, slurm: str = "", *, types: str = "") -> ClusterProfile:
    """A profile with this text in `slurm`, and with further node types."""
    file = tmp_path / "site.yaml"
    file.write_text(f"{HEAD}{types}slurm: {{{slurm}}}\n")
    return read_profile(file)


def refusal(profile: ClusterProfile, **settings: Any) -> str:
    with pytest.raises(UsageError) as caught:
        request_on(profile, **settings)
    return str(caught.value)


def charged_to(profile: ClusterProfile, account: str | None, **layout: str) -> str | None:
    """The account of the request."""
    document = {"schema": 1, "workload": {"model": "resnet18", "data": {"name": "cifar10"}}, "layout": dict(layout)}
    sweep = make_sweep(document, [], Path("x")).sweep
    return job_request(profile, resolve(sweep, profile), sweep.slurm, User(account=account)).user.account


def test_account_of_another_form(tmp_path: Path) -> None:
    """The whole name has to fit; what does not is refused in the site's words. Where there is no account there is no form."""
    profile = site(tmp_path, FORM)
    assert [charged_to(profile, account) for account in ("abc_g", None)] == ["abc_g", None]
    for account in ("abc", "abc_gpu", "1abc_g"):
        with pytest.raises(UsageError) as caught:
            charged_to(profile, account)
        assert str(caught.value) == f"account is {account}: GPU accounts end in _g (site). Use `--set account=NAME`."


def test_account_form_of_a_node_type(tmp_path: Path) -> None:
    """A node type's form stands above the cluster's: `@h100` for the H100 nodes."""
    form = FORM.replace("[a-z]+_g", ".*@h100").replace("GPU accounts end in _g", "accounts for H100 end in @h100")
    profile = site(tmp_path, FORM, types=f"  h100: {{gpus: 4, constraint: h100, {form}}}\n")
    assert charged_to(profile, "abc_g") == "abc_g"
    assert charged_to(profile, "abc@h100", node_type="h100") == "abc@h100"
    with pytest.raises(UsageError, match="accounts for H100 end in @h100"):
        charged_to(profile, "abc_g", node_type="h100")


def test_memory_forbidden(tmp_path: Path) -> None:
    """No --mem, and none may be asked for in any way."""
    profile = site(tmp_path, "memory_option: forbidden")
    assert request_on(profile).mem_mb is None
    assert refusal(profile, slurm__mem_mb=1000) == "slurm.mem_mb is 1000: site takes no request for memory. Leave it out."
    for option in ("--mem=0", "--mem-per-cpu=1G", "--mem-per-gpu=1G"):
        assert f"{option}: site takes no request for memory" in refusal(profile, slurm__options=f"['{option}']")


def test_memory_required(tmp_path: Path) -> None:
    """The node's own where it is known; where it is not, the user has to say."""
    profile = site(tmp_path, "memory_option: required", types="  b: {gpus: 4, physical_cores: 8, constraint: b}\n")
    assert request_on(profile).mem_mb == 320_000
    assert "takes no job without a request for memory" in refusal(profile, layout__node_type="b")
    assert "Use `--set slurm.mem_mb=MB`." in refusal(profile, layout__node_type="b")
    assert request_on(profile, layout__node_type="b", slurm__mem_mb=1000).mem_mb == 1000
    request_on(profile, layout__node_type="b", slurm__options="['--mem-per-gpu=10G']")


def test_all_memory_refused(tmp_path: Path) -> None:
    """Where `--mem=0` is refused the node's memory is asked for as a number."""
    profile = site(tmp_path, "memory_option: nonzero")
    assert request_on(profile).mem_mb == 320_000
    assert "job option --mem=0: site refuses 0" in refusal(profile, slurm__options="['--mem=0']")
    request_on(profile, slurm__options="['--mem=100G']")
    request_on(site(tmp_path), slurm__options="['--mem=0']")


def test_memory_per_core(tmp_path: Path) -> None:
    """Slurm would give more cores than the point says, or refuse: the limit times the cores is the most, a type's own first."""
    profile = site(
        tmp_path, "max_mb_per_core: 5000", types="  b: {gpus: 4, physical_cores: 32, max_mb_per_core: 9000, constraint: b}\n"
    )
    assert request_on(profile).mem_mb == request_on(profile, slurm__mem_mb=160_000).mem_mb == 160_000
    assert "gives at most 5000 MB a core, 160000 MB to the cores" in refusal(profile, slurm__mem_mb=160_001)
    shared = {"layout__exclusive": "false", "layout__physical_cores_per_rank": 4}
    assert request_on(profile, **shared, slurm__mem_mb=20_000).mem_mb == 20_000
    assert "20000 MB to the cores" in refusal(profile, **shared, slurm__mem_mb=20_001)
    assert request_on(profile, layout__node_type="b", slurm__mem_mb=288_000).mem_mb == 288_000


def test_nodes_of_the_jobs_own_count_whole(tmp_path: Path) -> None:
    """Where a job always has its nodes alone, limits and hours are those of all their GPUs and cores; asked for is what the
    point says.
    """
    rules = "always_exclusive: true, max_gpus_per_user: 8, max_cores_per_user: 64, qos: [{max_gpus: 8, max_cpus: 128}]"
    profile, shared = site(tmp_path, rules), {"layout__exclusive": "false", "layout__physical_cores_per_rank": 1}
    request = request_on(profile, **shared, layout__nodes=2, slurm__walltime_min=60)
    assert (request.gpus_per_node, request.mem_mb, hours_at_most(request)) == (1, 320_000, Hours(node=2.0, gpu=8.0))
    found = refusal(profile, **shared, layout__nodes=3)
    for part in (
        "12 GPUs asked for, at most 8",
        "192 CPUs asked for, at most 128",
        "12 GPUs asked for (3 nodes x 4)",
        "96 cores asked for",
    ):
        assert part in found
    assert request_on(site(tmp_path, rules.replace("true", "null")), **shared, layout__nodes=3).gpus_counted == 1


def test_whole_nodes_in_one_partition_only(tmp_path: Path) -> None:
    """What a partition says of that stands above the cluster's: jobs of one GPU count for four in it, and for one beside it."""
    table = "partitions: {whole: {always_exclusive: true}, shared: {always_exclusive: false}, rest: {}}"
    for cluster, expected in (("true", 4), ("false", 1)):
        profile = site(tmp_path, f"always_exclusive: {cluster}, {table}, qos: [{{max_gpus: 8}}]")
        shared = {"layout__exclusive": "false", "layout__physical_cores_per_rank": 1, "layout__nodes": 2}
        requests = [request_on(profile, **shared, slurm__partition=name) for name in ("whole", "shared", "rest")]
        assert [request.gpus_counted for request in requests] == [4, 1, expected]
        assert [request.mem_mb for request in requests[:2]] == [320_000, 10_000]
        shared["layout__nodes"] = 3
        assert request_on(profile, **shared).partition == "shared"


def test_a_node_type_of_its_own_way(tmp_path: Path) -> None:
    """GPU request and partition of a node type stand above the cluster's."""
    types = "  b: {gpus: 4, physical_cores: 8, partition: other, gpu_request: gpus-per-node}\n"
    profile = site(tmp_path, "partition: main", types=types)
    assert [(r.partition, r.gpu_request) for r in (request_on(profile), request_on(profile, layout__node_type="b"))] == [
        ("main", "gres"),
        ("other", "gpus-per-node"),
    ]


def test_a_partition_of_one_type_asks_for_it(tmp_path: Path) -> None:
    """Then no GPU type or constraint is needed, and no node is named."""
    types = "  b: {count: 1, names: n1, gpus: 4, physical_cores: 8}\n"
    mixed = site(tmp_path, types=types)
    assert request_on(mixed, layout__node_type="b").nodelist == "n1"
    apart = site(tmp_path, "partitions: {p: {node_types: [a]}, q: {node_types: [b]}}", types=types)
    assert [(r.partition, r.nodelist) for r in [request_on(apart, layout__node_type="b")]] == [("q", None)]
    two = dataclasses.replace(mixed.node_types["b"], count=2, names=None)
    both = dataclasses.replace(mixed, node_types={**mixed.node_types, "b": two})
    assert "knows no GPU type, constraint or partition to ask Slurm for it" in refusal(both, layout__node_type="b")


@pytest.mark.parametrize(
    ("other", "settings", "refused"),
    [
        ("{count: 9, gpus: 0}", {}, False),
        ("{count: 9, gpus: 2}", {"layout__gpus_per_node": 4}, False),
        ("{count: 9, gpus: 2}", {"layout__gpus_per_node": 2}, True),
        ("{count: 9, gpus: 8, gres_type: 1g.10gb}", {}, True),
        ("{count: 9}", {}, True),
        ("{count: 9, gpus: 0}", {"device": "cpu"}, True),
        ("{count: 9, gpus: 0, gpu_request: none}", {}, False),
    ],
)
def test_gpus_name_nodes_among_those_with_fewer(tmp_path: Path, other: str, settings: dict[str, Any], refused: bool) -> None:
    """A request for GPUs needs no type where no other nodes of the partition have as many; one without GPUs fits any node."""
    profile = site(tmp_path, "partition: batch", types=f"  b: {other}\n")
    untyped = dataclasses.replace(profile.node_types["a"], constraint=None)
    profile = dataclasses.replace(profile, node_types={**profile.node_types, "a": untyped})
    if refused:
        assert "so nodes of type b could be timed instead" in refusal(profile, **settings)
    else:
        assert request_on(profile, **settings).nodelist is None


def test_rcc_has_its_limit_per_core() -> None:
    """10,000 MB a core: a shared job of 12 cores has 120,000 at most."""
    profile, shared = load_profile("rcc"), {"layout__exclusive": "false"}
    assert request_on(profile, **shared, slurm__mem_mb=120_000).mem_mb == 120_000
    assert "slurm.mem_mb is 120001: rcc gives at most 10000 MB a core" in refusal(profile, **shared, slurm__mem_mb=120_001)
