"""Verdicts on how ranks are bound, from nodes that are not there: planted faults are found, sound bindings are not."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.verdicts.context import Verdict
from hpcddp.analysis.verdicts.findings import find
from hpcddp.core.launch_record import RankBinding
from hpcddp.core.point import Point
from hpcddp.core.schema import encode
from hpcddp.sweep.file import read_sweep
from tests.analysis.synthetic import MS, Recorded, point, write_run, write_study
from tests.fake_node import FakeNode

pytestmark = pytest.mark.usefixtures("undrawn")

SWEEP = Path(__file__).parents[3] / "jobs/marconi100-resnet50.yaml"

A100 = FakeNode(sockets=2, cores=16, threads=2, numa_per_socket=1, gpus=(0, 0, 1, 1))
EPYC = FakeNode(sockets=1, cores=16, threads=2, numa_per_socket=4, gpus=(3, 1, 0, 2))
"""As LUMI-G's: GPUs are numbered against the NUMA nodes, on one socket."""
GRACE = FakeNode(sockets=4, cores=8, gpus=(0, 1, 2, 3))
SILENT = FakeNode(sockets=2, cores=16, gpus=(-1, -1, -1, -1))
"""A firmware that does not say where GPUs are."""

Cpus = Sequence[Iterable[int]]


@dataclasses.dataclass(frozen=True)
class Bound:
    """The ranks of a node: their CPUs, and what is different of them."""

    node: FakeNode
    cpus: Cpus
    cores: int | None = None
    """Requested for each."""
    gpus: bool = True
    memory: Sequence[str] = ("", "", "", "")
    policy: Sequence[str] = ("default",) * 4
    changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Of the point."""


def by_rank(node: FakeNode, cores: int, order: Sequence[int] = (0, 1, 2, 3)) -> list[set[int]]:
    """Each rank on cores of its own, in that order."""
    return [node.threads_of(range(cores * place, cores * (place + 1))) for place in order]


SOUND = {
    "a block of each socket": Bound(A100, by_rank(A100, 8), 8),
    "one thread a core": Bound(A100, [range(8 * rank, 8 * rank + 8) for rank in range(4)], 8),
    "ranks that are not bound": Bound(A100, [A100.cpus] * 4, 8),
    "a socket for each pair": Bound(A100, [A100.numa_node(gpu) for gpu in A100.gpus], 8),
    "GPUs against the NUMA nodes": Bound(EPYC, [EPYC.numa_node(gpu) for gpu in EPYC.gpus], 4),
    "another NUMA node of the same socket": Bound(EPYC, by_rank(EPYC, 4), 4),
    "Grace": Bound(GRACE, by_rank(GRACE, 8), 8, memory=("0", "1", "2", "3")),
    "a silent firmware": Bound(SILENT, by_rank(SILENT, 8, (3, 2, 1, 0)), 8),
    "a torchrun with all cores": Bound(A100, [A100.cpus] * 4, 8, changes={"launcher": "torchrun"}),
    "ranks on CPUs, on any socket": Bound(A100, by_rank(A100, 8, (3, 2, 1, 0)), 8, gpus=False),
    "ranks on CPUs, more than cores": Bound(FakeNode(sockets=1, cores=2), [[0, 1]] * 4, 2, gpus=False),
    "part of a node, as many cores as requested": Bound(
        A100, [A100.threads_of(range(8, 24))] * 4, 4, changes={"exclusive": False}
    ),
}

FAULTS = {
    "every rank on the other socket": (Bound(A100, by_rank(A100, 8, (2, 3, 0, 1)), 8), "far socket"),
    "one rank on the other socket": (Bound(A100, by_rank(A100, 4, (0, 1, 4, 2)), 4), "far socket"),
    "memory of the other socket": (Bound(A100, by_rank(A100, 8), 8, memory=("1", "", "", "")), "far socket"),
    "memory bound to the other socket": (
        Bound(A100, by_rank(A100, 8), 8, policy=("default", "default", "bind:0", "default")),
        "far socket",
    ),
    "far, in part of a node": (Bound(A100, by_rank(A100, 8, (2, 3, 0, 1)), 8, changes={"exclusive": False}), "far socket"),
    "far, by torchrun": (Bound(A100, [range(4)] * 4, 1, changes={"launcher": "torchrun"}), "far socket"),
    "all on the first core": (Bound(A100, [A100.threads_of([0])] * 4, 8), "shared cores"),
    "two on the same cores": (Bound(A100, by_rank(A100, 8, (0, 0, 2, 3)), 8), "shared cores"),
    "threads of the same cores": (
        Bound(A100, [range(8), range(32, 40), range(16, 24), range(48, 56)], 8),
        "shared cores",
    ),
    "a torchrun with the cores of one rank": (Bound(A100, [range(8)] * 4, 8, changes={"launcher": "torchrun"}), "shared cores"),
    "ranks on CPUs, all on the same": (Bound(A100, [range(4)] * 4, 4, gpus=False), "shared cores"),
}
"""How ranks are bound, and the verdict that must be found: no other."""

BINDING = ("far socket", "shared cores")


def verdicts_of(bounds: Mapping[str, Bound], folder: Path, **launch: Any) -> dict[str, list[Verdict]]:
    """By name, the verdicts on binding: one study with a series for each, of a single run on four ranks of a node."""
    points = {name: _point(bound, number) for number, (name, bound) in enumerate(bounds.items())}
    study = write_study(folder / "s", list(points.values()))
    for name, each in points.items():
        bound = bounds[name]
        given = {"bindings": encode(bindings(bound, folder / each.label)), "backend": "slurm", "launcher": each.layout.launcher}
        write_run(study, each, Recorded(step_ns=80 * MS, steps=40, launch=given | launch, gpu="A100" if bound.gpus else None))
    found = [verdict for verdict in find(load_study(study)).verdicts if verdict.name in BINDING]
    return {name: [verdict for verdict in found if each.label in verdict.runs[0]] for name, each in points.items()}


def _point(bound: Bound, number: int) -> Point:
    device = {} if bound.gpus else {"device": "cpu"}
    return point(1, 4, batch_per_gpu=number + 1, physical_cores_per_rank=bound.cores, **device, **bound.changes)


def bindings(bound: Bound, folder: Path) -> list[RankBinding]:
    """As each rank reads its own."""
    files = bound.node.write(folder / "node")
    return [
        bound.node.binding(files, cpus, rank if bound.gpus else None, bound.memory[rank], bound.policy[rank])
        for rank, cpus in enumerate(bound.cpus)
    ]


@pytest.mark.dear
def test_a_sound_binding_is_left_alone(tmp_path: Path) -> None:
    found = verdicts_of(SOUND, tmp_path)
    assert {name: verdicts for name, verdicts in found.items() if verdicts} == {}


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Verdict]]:
    """What is found of each fault."""
    return verdicts_of({name: bound for name, (bound, _) in FAULTS.items()}, tmp_path_factory.mktemp("planted"))


@pytest.mark.dear
def test_a_planted_fault_is_found(planted: dict[str, list[Verdict]]) -> None:
    assert {name: [verdict.name for verdict in found] for name, found in planted.items()} == {
        name: [expected] for name, (_, expected) in FAULTS.items()
    }
    advice = " ".join(verdict.advice for found in planted.values() for verdict in found)
    options = re.findall(r"`(--set [^`]+)`", advice)
    assert options
    for option in options:
        read_sweep(SWEEP, [shlex.split(option)[1]])


def test_the_evidence_names_rank_gpu_and_sockets(tmp_path: Path) -> None:
    name = "every rank on the other socket"
    (verdict,) = verdicts_of({name: FAULTS[name][0]}, tmp_path)[name]
    assert verdict.where.startswith("at 1x4")
    assert verdict.evidence.startswith("Rank 0 on r000 runs on socket 1; its GPU (0000:17:00.0) is on socket 0. 4 of 4 ranks ")
    assert "`--set 'slurm.srun_options=[\"--cpu-bind=map_ldom:0,0,1,1\"]'`, or for every sweep" in verdict.advice
    assert verdict.numbers == {"ranks": 4, "of": 4}


def test_the_evidence_names_the_cores_that_are_shared(planted: dict[str, list[Verdict]]) -> None:
    (verdict,) = planted["two on the same cores"]
    assert verdict.evidence == "Ranks 0 and 1 of r000 share 8 cores, and each requested 8 (run r1). The node has 32 cores."


def test_without_slurm_there_is_no_option_of_srun(tmp_path: Path) -> None:
    """The local runner binds no rank: what started it did."""
    bounds = {name: FAULTS[name][0] for name in ("every rank on the other socket", "all on the first core")}
    found = [verdict for verdicts in verdicts_of(bounds, tmp_path, backend="local").values() for verdict in verdicts]
    assert [("taskset" in verdict.advice, "--set" in verdict.advice) for verdict in found] == [(True, False)] * 2


def test_too_few_cores_are_one_fault(tmp_path: Path) -> None:
    bound = FAULTS["all on the first core"][0]
    telemetry = {"nodes": [{"host": "r000", "cpu_busy_share": 1.0, "cpu_job_share": 0.99, "cpu_foreign_share": 0.0}]}
    points = [point(1, 4, physical_cores_per_rank=8)]
    study = write_study(tmp_path / "s", points)
    profile = {"node_types": {"a100": {"physical_cores": 32, "smt": 2, "gpus": 4}}, "default_node_type": "a100"}
    launch = {"bindings": encode(bindings(bound, tmp_path)), "profile": profile, "cpus_of_ranks": [2] * 4}
    write_run(study, points[0], Recorded(step_ns=80 * MS, steps=40, launch=launch, end={"telemetry": telemetry}))
    names = [verdict.name for verdict in find(load_study(study)).verdicts]
    assert "CPU starvation" in names
    assert "shared cores" not in names


@pytest.mark.parametrize("damaged", [[], [{"cpus": "0-99999999999", "cores": "x"}] * 4, [{"cpus": ""}] * 3])
def test_damaged_bindings_say_nothing(tmp_path: Path, damaged: list[dict[str, str]]) -> None:
    each = point(1, 4)
    study = write_study(tmp_path / "s", [each])
    write_run(study, each, Recorded(step_ns=80 * MS, steps=40, launch={"bindings": damaged}))
    found = load_study(study)
    assert found.runs[0].state == "counts"
    assert {"far socket", "shared cores"}.isdisjoint(verdict.name for verdict in find(found).verdicts)
