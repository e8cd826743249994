"""From a sweep file to points."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpcddp.cluster.profile import ClusterProfile
from hpcddp.cluster.profile_file import load_profile
from hpcddp.core.errors import UsageError
from hpcddp.sweep.expand import expand
from hpcddp.sweep.file import SweepFile, make_sweep, read_sweep

SHIPPED = sorted((Path(__file__).parents[2] / "jobs").glob("*.yaml"))

TEXT = """\
schema: 1
cluster: rcc
workload:
  model: mnist-cnn
  data: {name: bigmnist}
layout: {gpus_per_node: 4}
points:
  in-node: {layout.gpus_per_node: [1, 4]}
  nodes: {layout.nodes: [1, 2]}
"""


@pytest.fixture
def rcc() -> ClusterProfile:
    return load_profile("rcc")


def written(tmp_path: Path, text: str = TEXT) -> Path:
    file = tmp_path / "study.yaml"
    file.write_text(text)
    return file


def shapes(source: SweepFile, profile: ClusterProfile, **chosen: Any) -> list[tuple[int, int, tuple[str, ...]]]:
    return [(p.point.layout.nodes, p.point.layout.gpus_per_node, p.groups) for p in expand(source, profile, **chosen)]


def test_union_of_groups(tmp_path: Path, rcc: ClusterProfile) -> None:
    """Points are the union of the groups' products in the file's order; equal ones are one point with both groups."""
    assert shapes(read_sweep(written(tmp_path)), rcc) == [(1, 1, ("in-node",)), (1, 4, ("in-node", "nodes")), (2, 4, ("nodes",))]


def test_points_of_a_group_that_are_equal_name_it_once(tmp_path: Path, rcc: ClusterProfile) -> None:
    """Loading alone has no exchange: two values of measure.comm are one point of the group then."""
    source = read_sweep(written(tmp_path, TEXT.replace("nodes: [1, 2]", "nodes: [2], measure.comm: [off, on]")))
    loading = {"measure.input": ("io",)}
    assert [p.groups for p in expand(source, rcc, ("nodes",), loading)] == [("nodes",)]


def test_group_chosen(tmp_path: Path, rcc: ClusterProfile) -> None:
    """`--group` keeps the points of that group; an unknown one is refused with the nearest."""
    assert shapes(read_sweep(written(tmp_path)), rcc, groups=("nodes",)) == [(1, 4, ("nodes",)), (2, 4, ("nodes",))]
    with pytest.raises(UsageError, match="no group `node` in points; did you mean `nodes`"):
        expand(read_sweep(written(tmp_path)), rcc, ("node",))


def test_no_groups_is_one_point(tmp_path: Path, rcc: ClusterProfile) -> None:
    """A sweep without groups is its one point."""
    source = read_sweep(written(tmp_path, TEXT.partition("points:")[0]))
    assert shapes(source, rcc) == [(1, 4, ())]


def test_set_goes_under_the_groups(tmp_path: Path, rcc: ClusterProfile) -> None:
    """`--set` changes what groups do not vary; an axis wins over it."""
    settings = ["layout.nodes=2", "workload.batch_per_gpu=64", "repeat=3", "baselines=false"]
    source = read_sweep(written(tmp_path), settings)
    assert shapes(source, rcc) == [(2, 1, ("in-node",)), (2, 4, ("in-node", "nodes")), (1, 4, ("nodes",))]
    assert source.sweep.repeat == 3
    assert {p.point.workload.batch_per_gpu for p in expand(source, rcc)} == {64}


def test_set_does_not_reach_the_id_by_account_repeat_or_slurm(tmp_path: Path, rcc: ClusterProfile) -> None:
    """Account, repeat, slurm.* and data.root stand outside the id; device is in it."""
    before = [p.point.id for p in expand(read_sweep(written(tmp_path)), rcc)]
    outside = ["account=me", "repeat=6", "slurm.walltime_min=5", "slurm.qos=dev", "workload.data.root=/elsewhere"]
    assert [p.point.id for p in expand(read_sweep(written(tmp_path), outside), rcc)] == before
    on_cpu = [p.point.id for p in expand(read_sweep(written(tmp_path), ["device=cpu"]), rcc)]
    assert not set(on_cpu) & set(before)


def test_default_node_type_is_named(tmp_path: Path, rcc: ClusterProfile) -> None:
    """Leaving the node type out and naming the default one is the same point, and the point names it."""
    left_out = expand(read_sweep(written(tmp_path)), rcc)
    named = expand(read_sweep(written(tmp_path), ["layout.node_type=v100"]), rcc)
    assert [p.point for p in left_out] == [p.point for p in named]
    assert left_out[0].point.layout.node_type == "v100"
    assert left_out[0].point.layout.physical_cores_per_rank == 12


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("model:", "modle:", r"study.yaml:4:3: unknown key `modle` in workload; did you mean `model`\?"),
        ("{gpus_per_node: 4}", "{gpus_per_node: 0}", "study.yaml:6:10: 0 is below 1"),
        ("{gpus_per_node: 4}", "{gpus_per_node: four}", "study.yaml:6:10: 'four' is text; a whole number is expected"),
        ("[1, 2]", "[1, 0]", "study.yaml:9:11: 0 is below 1"),
        ("layout.nodes: [1, 2]", "layout.node: [1, 2]", "study.yaml:9:11: unknown key `node`"),
        ("layout.nodes: [1, 2]", "slurm.qos: [a]", "study.yaml:9:11: `slurm.qos` cannot be an axis"),
        ("name: bigmnist", "name: bigmnits", "no data set `bigmnits`; did you mean `bigmnist`"),
        ("model: mnist-cnn", "model: resnet18", "takes images of 3 channels; data `bigmnist` has 1"),
        ("layout: {", "work: comm\nlayout: {", "study.yaml:6:1: comm trains nothing, .*`hpcddp bench comm SWEEP`"),
        ("layout.nodes: [1, 2]", "work: [comm]", "study.yaml:9:11: comm trains nothing, .*`hpcddp bench comm SWEEP`"),
        (
            "layout: {",
            "env: {A: a, RANK: 1}\nlayout: {",
            "study.yaml:6:13: RANK is not a study's to set: hpcddp or Slurm sets it",
        ),
        ("layout: {", "env: {slurm-x: 1}\nlayout: {", "study.yaml:6:7: `slurm-x` is no name of a variable"),
        ("layout: {", "env: {A: false}\nlayout: {", "study.yaml:6:7: A is false, and a variable is text: write it in quotes"),
        ("layout: {", 'env: {A: "a\\nb"}\nlayout: {', "study.yaml:6:7: A has a line break"),
        ("layout.nodes: [1, 2]", "env.SLURM_NNODES: [1]", "study.yaml:9:11: SLURM_NNODES is not a study's to set"),
        ("layout.nodes: [1, 2]", "env.HF_TOKEN: [x]", "study.yaml:9:11: HF_TOKEN is not .*export it in the shell that submits"),
        ("layout.nodes: [1, 2]", "env.OMP_NUM_THREADS: [1]", "study.yaml:9:11: OMP_NUM.*layout.physical_cores_per_rank"),
        ("schema: 1", "schema: 2", "study.yaml:1:1: 2 is not one of 1"),
        ("layout: {", "layout: [", "study.yaml:6:"),
    ],
)
def test_complaints_name_the_line(tmp_path: Path, rcc: ClusterProfile, old: str, new: str, message: str) -> None:
    """What does not fit is refused with file:line:column, the value and the nearest known key."""
    with pytest.raises(UsageError, match=message):
        expand(read_sweep(written(tmp_path, TEXT.replace(old, new))), rcc)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("workload.batchsize=3", r"--set workload.batchsize=3: unknown key `batchsize` in workload"),
        ("layout.nodes=two", "--set layout.nodes=two: 'two' is text"),
        ("layout.nodes", "write key=value"),
        ("points.nodes=1", "write key=value"),
        ("cluster.name=x", "not a mapping"),
    ],
)
def test_complaints_about_set_name_it(tmp_path: Path, setting: str, message: str) -> None:
    """A wrong `--set` is named as it was given, not as a line of the file."""
    with pytest.raises(UsageError, match=message):
        read_sweep(written(tmp_path), [setting])


def test_global_batch_is_shared(tmp_path: Path, rcc: ClusterProfile) -> None:
    """`hold: global_batch` divides it among the ranks; the point is the same one a fixed batch per GPU gives."""
    held = read_sweep(written(tmp_path), ["hold=global_batch", "workload.global_batch=64"])
    points = [p.point for p in expand(held, rcc)]
    assert [(p.ranks, p.workload.batch_per_gpu) for p in points] == [(1, 64), (4, 16), (8, 8)]
    plain = read_sweep(written(tmp_path), ["workload.batch_per_gpu=16"])
    assert points[1] in [p.point for p in expand(plain, rcc)]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["hold=global_batch"], "needs workload.global_batch"),
        (["hold=global_batch", "workload.global_batch=30"], "30 cannot be shared equally by 4 GPUs"),
        (["workload.global_batch=64"], "needs `hold: global_batch`"),
    ],
)
def test_global_batch_must_fit(tmp_path: Path, rcc: ClusterProfile, settings: list[str], message: str) -> None:
    """A global batch that is missing, unwanted or not divisible is refused."""
    with pytest.raises(UsageError, match=message):
        expand(read_sweep(written(tmp_path), settings), rcc)


def test_an_epoch_ignores_steps(tmp_path: Path, rcc: ClusterProfile) -> None:
    """With `work: epoch` the number of steps follows from the data, so it is not in the id."""
    ids = [
        [p.point.id for p in expand(read_sweep(written(tmp_path), ["work=epoch", f"measure.steps={steps}"]), rcc)]
        for steps in (5, 9)
    ]
    assert ids[0] == ids[1]


@pytest.mark.parametrize(
    ("settings", "unused"),
    [
        ([], ["measure.max_steps=9000", "measure.interval_percent=1", "measure.profile_ranks=[0, 3]"]),
        (["measure.stop=seconds", "measure.seconds=9"], ["measure.steps=77", "measure.interval_percent=1"]),
        (["measure.input=io"], ["measure.evaluate=true", "measure.comm=on"]),
    ],
)
def test_what_has_no_say_is_not_in_the_id(tmp_path: Path, rcc: ClusterProfile, settings: list[str], unused: list[str]) -> None:
    """A value that nothing reads in this run does not make it another point; where it is read, it does."""
    ids = [{p.point.id for p in expand(read_sweep(written(tmp_path), given), rcc)} for given in (settings, settings + unused)]
    assert ids[0] == ids[1]
    used = ["measure.stop=interval", "measure.max_steps=9000"]
    assert ids[0] != {p.point.id for p in expand(read_sweep(written(tmp_path), used), rcc)}


def comms(source: SweepFile, profile: ClusterProfile, **chosen: Any) -> list[tuple[int, str]]:
    return [(p.point.gpus, p.point.measure.comm) for p in expand(source, profile, **chosen)]


def test_one_more_product_over_all_groups(tmp_path: Path, rcc: ClusterProfile) -> None:
    """`also` gives every point each of its values; what a group varies itself stays as the group says."""
    also = {"measure.comm": ("off", "on")}
    both = [(gpus, comm) for gpus in (1, 4, 8) for comm in ("off", "on")]
    assert comms(read_sweep(written(tmp_path)), rcc, also=also) == both
    own = TEXT.replace("{layout.nodes: [1, 2]}", "{layout.nodes: [1, 2], measure.comm: [check]}")
    source = read_sweep(written(tmp_path, own))
    assert comms(source, rcc, also=also, groups=("nodes",)) == [(4, "check"), (8, "check")]
    without = read_sweep(written(tmp_path, TEXT.partition("points:")[0]))
    assert comms(without, rcc, also=also) == [(4, "off"), (4, "on")]


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_shipped_sweeps_expand(file: Path) -> None:
    """Every sweep that comes with hpcddp is valid on its cluster, with its baselines of one GPU and one node if it has any."""
    source = read_sweep(file)
    ranks = [p.point.ranks for p in expand(source, load_profile(str(source.sweep.cluster)))]
    assert min(ranks) == 1 or not source.sweep.baselines
    assert max(ranks) >= (2 if file.stem == "ec2-resnet18" else 4)  # its study had two instances of one GPU


def test_document_is_not_changed() -> None:
    """Expanding leaves the document as it was: a second expansion gives the same points."""
    document = {"schema": 1, "cluster": "rcc", "workload": {"model": "mnist-cnn", "data": {"name": "mnist"}}}
    before = repr(document)
    make_sweep(document, ["workload.data.name=bigmnist", "layout.nodes=2"], Path("x"))
    assert repr(document) == before
