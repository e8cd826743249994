from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from hpcddp.cluster.profile import ClusterProfile
from hpcddp.cluster.profile_file import load_profile, read_profile
from hpcddp.core.errors import UsageError
from hpcddp.core.hours import Hours
from hpcddp.core.point import Point
from hpcddp.script.job_request import JobRequest, User
from hpcddp.script.resources import hours_at_most, job_request
from hpcddp.sweep.expand import resolve
from hpcddp.sweep.file import make_sweep


def request_of(cluster: str, **settings: Any) -> JobRequest:
    return request_on(load_profile(cluster), **settings)


def request_on(profile: ClusterProfile, **settings: Any) -> JobRequest:
    return requested(profile, [f"{key.replace('__', '.')}={value}" for key, value in settings.items()])[1]


def requested(profile: ClusterProfile, settings: Sequence[str], account: str | None = "proj") -> tuple[Point, JobRequest]:
    document = {"schema": 1, "cluster": profile.name, "workload": {"model": "resnet18", "data": {"name": "cifar10"}}}
    sweep = make_sweep(document, settings, Path("x")).sweep
    point = resolve(sweep, profile)
    return point, job_request(profile, point, sweep.slurm, User(account=account))


def refusal(profile: ClusterProfile, **settings: Any) -> str:
    with pytest.raises(UsageError) as caught:
        request_on(profile, **settings)
    return str(caught.value)


def test_one_process_with_all_gpus() -> None:
    request = request_of("rcc", layout__gpus_per_node=4, workload__parallel="data_parallel")
    assert (request.ranks_per_node, request.tasks_per_node, request.gpus_per_node) == (1, 1, 4)
    assert (request.physical_cores_per_rank, request.cpus_per_rank, request.cpus_per_task) == (48, 48, 48)


def test_torchrun_is_one_task_with_the_cpus_of_its_ranks() -> None:
    """SMT4: 8 physical cores of a rank are 32 CPUs to Slurm, four ranks take the node's 128."""
    settings = {"layout__nodes": 2, "layout__gpus_per_node": 4}
    direct, torchrun = (request_of("marconi100", **settings, layout__launcher=name) for name in ("direct", "torchrun"))
    assert (direct.ranks_per_node, direct.tasks_per_node, direct.cpus_per_task, direct.cpus_per_rank) == (4, 4, 32, 32)
    assert (torchrun.ranks_per_node, torchrun.tasks_per_node, torchrun.cpus_per_task) == (4, 1, 128)
    assert torchrun.physical_cores_per_rank == direct.physical_cores_per_rank == 8


def test_exclusive_needs_all_gpus_on_marconi100() -> None:
    assert request_of("marconi100").gpus_per_node == 4
    assert request_of("marconi100", layout__exclusive="false").gpus_per_node == 1
    assert request_of("rcc").gpus_per_node == 1
    profile = load_profile("marconi100")
    rules = dataclasses.replace(profile.slurm, exclusive_needs_all_gpus=None)
    assert request_on(dataclasses.replace(profile, slurm=rules)).gpus_per_node == 1


def test_no_gpus_for_a_cpu_run() -> None:
    assert request_of("rcc", device="cpu", layout__node_type="v100-sxm2").gpus_per_node == 0
    assert request_of("rcc", device="cpu").gpus_per_node == 1
    assert request_of("marconi100", device="cpu").gpus_per_node == 4
    more_ranks_than_gpus = {"device": "cpu", "layout__gpus_per_node": 6, "layout__physical_cores_per_rank": 1}
    assert request_of("rcc", **more_ranks_than_gpus).gpus_per_node == 4
    assert request_of("marconi100", **more_ranks_than_gpus).gpus_per_node == 4


def test_memory() -> None:
    assert request_of("rcc").mem_mb == 360_000
    assert request_of("rcc", layout__exclusive="false").mem_mb == 90_000
    assert request_of("rcc", slurm__mem_mb=1000).mem_mb == 1000
    assert request_of("rcc", layout__node_type="v100-sxm2").mem_mb is None


def test_a_type_without_a_gpu_type_is_pinned() -> None:
    assert request_of("rcc", layout__node_type="v100-sxm2").nodelist == "gn09"
    assert request_of("rcc", layout__node_type="v100-sxm2", slurm__nodelist="gn09x").nodelist == "gn09x"
    assert request_of("rcc").nodelist is None


def test_hours_at_most() -> None:
    """4 nodes for 90 minutes are 6 hours, of one GPU each; where a node comes with all its GPUs, all count."""
    changes = {"layout__nodes": 4, "slurm__walltime_min": 90}
    assert hours_at_most(request_of("rcc", **changes)) == Hours(node=6.0, gpu=6.0)
    assert hours_at_most(request_of("marconi100", **changes)) == Hours(node=6.0, gpu=24.0)


@pytest.mark.parametrize(
    ("cluster", "settings", "message"),
    [
        ("rcc", {"layout__nodes": 40}, r"rcc has 6 nodes .*, and 40 are requested.*hpcddp clusters show rcc"),
        ("rcc", {"layout__nodes": 7}, "all types together have 11"),
        ("rcc", {"layout__gpus_per_node": 5}, "layout.gpus_per_node is 5.*has 4 GPUs"),
        ("rcc", {"layout__gpus_per_node": 5, "workload__parallel": "data_parallel"}, "gpus_per_node is 5"),
        ("marconi100", {"layout__nodes": 17}, "17 nodes requested, at most 16.*--set slurm.qos=m100_qos_bprod"),
        ("marconi100", {"slurm__qos": "m100_qos_dbg", "slurm__walltime_min": 180}, "is 180, at most 120.*m100_qos_dbg"),
        ("marconi100", {"slurm__qos": "m100_qos_dbg", "layout__nodes": 3}, "3 nodes requested, at most 2.*m100_qos_dbg"),
        ("marconi100", {"slurm__qos": "m100_qos_bprod", "layout__nodes": 16}, "16 nodes requested, at least 17"),
        ("marconi100", {"slurm__qos": "m100_qos_big"}, "slurm.qos is m100_qos_big.*m100_qos_dbg, m100_qos_bprod"),
        ("marconi100", {"slurm__mem_mb": 250000}, "slurm.mem_mb is 250000.*at most 246000 MB"),
        ("marconi100", {"layout__gpus_per_node": 4, "layout__physical_cores_per_rank": 9}, "36 physical cores.*has 32.*most 8"),
        ("rcc", {"slurm__qos": "dev", "layout__gpus_per_node": 2}, "2 GPUs requested, at most 1.*24 CPUs requested, at most 8"),
        ("rcc", {"layout__node_type": "l40s", "layout__gpus_per_node": 9}, "gpus_per_node is 9.*has 8 GPUs"),
        ("rcc", {"slurm__walltime_min": 20000}, "at most 10080 minutes"),
        (
            "rcc",
            {"measure__resume": "true", "slurm__walltime_min": 11, "slurm__options": "[--signal=USR2@600]"},
            "walltime_min is 11.*Slurm warns 600 s before the time limit.*60 s earlier.*slurm.walltime_min=12",
        ),
        (
            "rcc",
            {"measure__resume": "true", "slurm__walltime_min": 2},
            "slurm.walltime_min is 2.*Slurm warns 30 s before.*slurm.walltime_min=3",
        ),
    ],
)
def test_refused(cluster: str, settings: dict[str, Any], message: str) -> None:
    assert re.search(message, refusal(load_profile(cluster), **settings), re.DOTALL)


@pytest.mark.parametrize(
    "settings",
    [
        {"measure__resume": "true", "slurm__walltime_min": 3},
        {"measure__resume": "true", "slurm__walltime_min": 12, "slurm__options": "[--signal=USR2@600]"},
        {"slurm__walltime_min": 11, "slurm__options": "[--signal=USR2@600]"},
        {"measure__resume": "true", "slurm__walltime_min": 3, "slurm__options": "[--signal=USR2@600, --signal=B:USR2]"},
    ],
    ids=str,
)
def test_a_warning_that_leaves_time_to_begin_and_make_steps_is_taken(settings: dict[str, Any]) -> None:
    """A minute for that, after the minute by which Slurm may be early; the last --signal counts, 60 s where it says no time."""
    assert request_of("rcc", **settings).walltime_min == settings["slurm__walltime_min"]


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
    file = tmp_path / "site.yaml"
    file.write_text(f"{HEAD}{types}slurm: {{{slurm}}}\n")
    return read_profile(file)


def charged_to(profile: ClusterProfile, account: str | None, *settings: str) -> str | None:
    return requested(profile, settings, account)[1].user.account


def test_account_of_another_form_than_the_clusters_or_the_node_types(tmp_path: Path) -> None:
    profile = site(tmp_path, FORM)
    assert [charged_to(profile, account) for account in ("abc_g", None)] == ["abc_g", None]
    for account in ("abc", "abc_gpu", "1abc_g"):
        with pytest.raises(UsageError) as caught:
            charged_to(profile, account)
        assert str(caught.value) == f"account is {account}: GPU accounts end in _g (site). Use `--set account=NAME`."
    form = FORM.replace("[a-z]+_g", ".*@h100").replace("GPU accounts end in _g", "accounts for H100 end in @h100")
    profile = site(tmp_path, FORM, types=f"  h100: {{gpus: 4, constraint: h100, {form}}}\n")
    assert charged_to(profile, "abc_g") == "abc_g"
    assert charged_to(profile, "abc@h100", "layout.node_type=h100") == "abc@h100"
    with pytest.raises(UsageError, match="accounts for H100 end in @h100"):
        charged_to(profile, "abc_g", "layout.node_type=h100")


def test_memory_forbidden(tmp_path: Path) -> None:
    profile = site(tmp_path, "memory_option: forbidden")
    assert request_on(profile).mem_mb is None
    assert refusal(profile, slurm__mem_mb=1000) == "slurm.mem_mb is 1000, but site accepts no memory request. Remove it."
    for option in ("--mem=0", "--mem-per-cpu=1G", "--mem-per-gpu=1G"):
        assert f"{option}, but site accepts no memory request" in refusal(profile, slurm__options=f"['{option}']")


def test_memory_required(tmp_path: Path) -> None:
    profile = site(tmp_path, "memory_option: required", types="  b: {gpus: 4, physical_cores: 8, constraint: b}\n")
    assert request_on(profile).mem_mb == 320_000
    assert "requires a memory request" in refusal(profile, layout__node_type="b")
    assert "Use `--set slurm.mem_mb=MB`." in refusal(profile, layout__node_type="b")
    assert request_on(profile, layout__node_type="b", slurm__mem_mb=1000).mem_mb == 1000
    request_on(profile, layout__node_type="b", slurm__options="['--mem-per-gpu=10G']")


def test_all_memory_refused(tmp_path: Path) -> None:
    profile = site(tmp_path, "memory_option: nonzero")
    assert request_on(profile).mem_mb == 320_000
    assert "job option --mem=0: site rejects 0" in refusal(profile, slurm__options="['--mem=0']")
    request_on(profile, slurm__options="['--mem=100G']")
    request_on(site(tmp_path), slurm__options="['--mem=0']")


def test_memory_per_core(tmp_path: Path) -> None:
    """Slurm would give more cores than the point says, or refuse: the limit times the cores is the most, a type's own first."""
    profile = site(
        tmp_path, "max_mb_per_core: 5000", types="  b: {gpus: 4, physical_cores: 32, max_mb_per_core: 9000, constraint: b}\n"
    )
    assert request_on(profile).mem_mb == request_on(profile, slurm__mem_mb=160_000).mem_mb == 160_000
    assert "allows at most 5000 MB per core, 160000 MB for this job" in refusal(profile, slurm__mem_mb=160_001)
    shared = {"layout__exclusive": "false", "layout__physical_cores_per_rank": 4}
    assert request_on(profile, **shared, slurm__mem_mb=20_000).mem_mb == 20_000
    assert "20000 MB for this job" in refusal(profile, **shared, slurm__mem_mb=20_001)
    assert request_on(profile, layout__node_type="b", slurm__mem_mb=288_000).mem_mb == 288_000


def test_nodes_of_the_jobs_own_count_whole(tmp_path: Path) -> None:
    rules = "always_exclusive: true, max_gpus_per_user: 8, max_cores_per_user: 64, qos: [{max_gpus: 8, max_cpus: 128}]"
    profile, shared = site(tmp_path, rules), {"layout__exclusive": "false", "layout__physical_cores_per_rank": 1}
    request = request_on(profile, **shared, layout__nodes=2, slurm__walltime_min=60)
    assert (request.gpus_per_node, request.mem_mb, hours_at_most(request)) == (1, 320_000, Hours(node=2.0, gpu=8.0))
    found = refusal(profile, **shared, layout__nodes=3)
    assert all(words in found for words in ("12 GPUs requested, at most 8", "192 CPUs requested, at most 128"))
    assert "12 GPUs requested (3 nodes x 4); site allows 8 per user" in found
    assert "96 cores requested on 3 nodes; site allows 64 per user" in found
    assert request_on(site(tmp_path, rules.replace("true", "null")), **shared, layout__nodes=3).gpus_counted == 1


def test_whole_nodes_in_one_partition_only(tmp_path: Path) -> None:
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
    types = "  b: {gpus: 4, physical_cores: 8, partition: other, gpu_request: gpus-per-node}\n"
    profile = site(tmp_path, "partition: main", types=types)
    own, other = request_on(profile), request_on(profile, layout__node_type="b")
    assert [(own.partition, own.gpu_request), (other.partition, other.gpu_request)] == [
        ("main", "gres"),
        ("other", "gpus-per-node"),
    ]


def test_a_partition_of_one_type_asks_for_it(tmp_path: Path) -> None:
    types = "  b: {count: 1, names: n1, gpus: 4, physical_cores: 8}\n"
    mixed = site(tmp_path, types=types)
    assert request_on(mixed, layout__node_type="b").nodelist == "n1"
    apart = site(tmp_path, "partitions: {p: {node_types: [a]}, q: {node_types: [b]}}", types=types)
    assert [(r.partition, r.nodelist) for r in [request_on(apart, layout__node_type="b")]] == [("q", None)]
    two = dataclasses.replace(mixed.node_types["b"], count=2, names=None)
    both = dataclasses.replace(mixed, node_types={**mixed.node_types, "b": two})
    said = refusal(both, layout__node_type="b")
    assert "defines no GPU type, constraint or partition that selects" in said
    assert "Name the nodes with `--set slurm.nodelist=NODES`" in said


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
    profile = site(tmp_path, "partition: batch", types=f"  b: {other}\n")
    untyped = dataclasses.replace(profile.node_types["a"], constraint=None)
    profile = dataclasses.replace(profile, node_types={**profile.node_types, "a": untyped})
    if refused:
        assert "Slurm could allocate nodes of type b" in refusal(profile, **settings)
    else:
        assert request_on(profile, **settings).nodelist is None
