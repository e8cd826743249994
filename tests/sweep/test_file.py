"""From a sweep file to points, of hpcddp's loop or of a script of the user's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpcddp.cluster.profile import ClusterProfile
from hpcddp.cluster.profile_file import load_profile
from hpcddp.core.errors import UsageError
from hpcddp.core.point import Point
from hpcddp.submit.choose import choose_points
from hpcddp.submit.options import PointOptions
from hpcddp.submit.remarks import remarks
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
    assert shapes(read_sweep(written(tmp_path)), rcc) == [(1, 1, ("in-node",)), (1, 4, ("in-node", "nodes")), (2, 4, ("nodes",))]


def test_points_of_a_group_that_are_equal_name_it_once(tmp_path: Path, rcc: ClusterProfile) -> None:
    """Loading alone has no exchange: two values of measure.comm are one point of the group then."""
    source = read_sweep(written(tmp_path, TEXT.replace("nodes: [1, 2]", "nodes: [2], measure.comm: [off, on]")))
    loading = {"measure.input": ("io",)}
    assert [p.groups for p in expand(source, rcc, ("nodes",), loading)] == [("nodes",)]


def test_group_chosen(tmp_path: Path, rcc: ClusterProfile) -> None:
    assert shapes(read_sweep(written(tmp_path)), rcc, groups=("nodes",)) == [(1, 4, ("nodes",)), (2, 4, ("nodes",))]
    with pytest.raises(UsageError, match="no group `node` in points; did you mean `nodes`"):
        expand(read_sweep(written(tmp_path)), rcc, ("node",))


def test_no_groups_is_one_point(tmp_path: Path, rcc: ClusterProfile) -> None:
    source = read_sweep(written(tmp_path, TEXT.partition("points:")[0]))
    assert shapes(source, rcc) == [(1, 4, ())]


def test_set_goes_under_the_groups(tmp_path: Path, rcc: ClusterProfile) -> None:
    settings = ["layout.nodes=2", "workload.batch_per_gpu=64", "repeat=3", "baselines=false"]
    source = read_sweep(written(tmp_path), settings)
    assert shapes(source, rcc) == [(2, 1, ("in-node",)), (2, 4, ("in-node", "nodes")), (1, 4, ("nodes",))]
    assert source.sweep.repeat == 3
    assert {p.point.workload.batch_per_gpu for p in expand(source, rcc)} == {64}


def test_set_does_not_reach_the_id_by_account_repeat_or_slurm(tmp_path: Path, rcc: ClusterProfile) -> None:
    before = [p.point.id for p in expand(read_sweep(written(tmp_path)), rcc)]
    outside = ["account=me", "repeat=6", "slurm.walltime_min=5", "slurm.qos=dev", "workload.data.root=/elsewhere"]
    assert [p.point.id for p in expand(read_sweep(written(tmp_path), outside), rcc)] == before
    on_cpu = [p.point.id for p in expand(read_sweep(written(tmp_path), ["device=cpu"]), rcc)]
    assert not set(on_cpu) & set(before)


def test_default_node_type_is_named(tmp_path: Path, rcc: ClusterProfile) -> None:
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
    with pytest.raises(UsageError, match=message):
        read_sweep(written(tmp_path), [setting])


def test_global_batch_is_shared(tmp_path: Path, rcc: ClusterProfile) -> None:
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
    with pytest.raises(UsageError, match=message):
        expand(read_sweep(written(tmp_path), settings), rcc)


def test_an_epoch_ignores_steps(tmp_path: Path, rcc: ClusterProfile) -> None:
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
    ids = [{p.point.id for p in expand(read_sweep(written(tmp_path), given), rcc)} for given in (settings, settings + unused)]
    assert ids[0] == ids[1]
    used = ["measure.stop=interval", "measure.max_steps=9000"]
    assert ids[0] != {p.point.id for p in expand(read_sweep(written(tmp_path), used), rcc)}


def comms(source: SweepFile, profile: ClusterProfile, **chosen: Any) -> list[tuple[int, str]]:
    return [(p.point.gpus, p.point.measure.comm) for p in expand(source, profile, **chosen)]


def test_one_more_product_over_all_groups(tmp_path: Path, rcc: ClusterProfile) -> None:
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
    source = read_sweep(file)
    ranks = [p.point.ranks for p in expand(source, load_profile(str(source.sweep.cluster)))]
    assert min(ranks) == 1 or not source.sweep.baselines
    assert max(ranks) >= (2 if file.stem == "ec2-resnet18" else 4)  # its study had two instances of one GPU


def test_document_is_not_changed() -> None:
    document = {"schema": 1, "cluster": "rcc", "workload": {"model": "mnist-cnn", "data": {"name": "mnist"}}}
    before = repr(document)
    make_sweep(document, ["workload.data.name=bigmnist", "layout.nodes=2"], Path("x"))
    assert repr(document) == before


ROOT = Path(__file__).parents[2]

SWEEP = """\
schema: 1
cluster: local
workload: {script: train.py, args: {depth: 12, lr: 0.1}}
layout: {gpus_per_node: 2}
device: cpu
"""


def written_script(folder: Path, text: str = SWEEP) -> Path:
    """The sweep, with its script beside it."""
    file = folder / "study.yaml"
    file.write_text(text)
    (folder / "train.py").write_text("")
    return file


def script_points(file: Path, *settings: str) -> list[Point]:
    """Of the sweep, with these values."""
    return [planned.point for planned in expand(read_sweep(file, settings), load_profile("local"))]


def test_a_scripts_loader_is_not_remarked_on(tmp_path: Path) -> None:
    profile, core = load_profile("local"), "layout.physical_cores_per_rank=1"
    script = expand(read_sweep(written_script(tmp_path), [core]), profile)
    built_in = expand(read_sweep(ROOT / "jobs/local-mnist.yaml", [core, "workload.loader_workers_per_rank=2"]), profile)
    assert not any("loader_workers" in text for text in remarks(profile, script))
    assert any("loader_workers" in text for text in remarks(profile, built_in))


def test_an_argument_is_an_axis(tmp_path: Path) -> None:
    file = written_script(
        tmp_path,
        SWEEP + "points:\n  scale:\n    workload.args.depth: [6, 12, 24]\n    where: workload.args.depth <= 12\n"
        "    layout.gpus_per_node: [2, 4]\n",
    )
    found = [(point.gpus, dict(point.workload.args)) for point in script_points(file)]
    expected = [(gpus, {"depth": depth, "lr": 0.1}) for depth in (6, 12) for gpus in (2, 4)]
    assert found[:4] == expected
    assert sorted(str(args["depth"]) for gpus, args in found[4:] if gpus == 1) == ["12", "6"]


def test_samples_are_a_known_batch(tmp_path: Path) -> None:
    file = written_script(tmp_path)
    (known,), (unknown,) = script_points(file, "workload.samples_per_step=16"), script_points(file)
    assert (known.label[:11], known.global_batch) == ("n01-g2-b16-", 32)
    assert (unknown.label[:14], unknown.workload.known_batch) == ("n01-g2-script-", None)


def test_the_work_of_all_ranks_may_stay_the_same(tmp_path: Path) -> None:
    file = written_script(tmp_path, SWEEP + "hold: global_batch\npoints: {scale: {layout.gpus_per_node: [1, 2, 4]}}\n")
    assert [point.workload.samples_per_step for point in script_points(file, "workload.global_batch=64")] == [64, 32, 16]
    assert len(script_points(file)) == 3
    with pytest.raises(UsageError, match="leave one of them out"):
        script_points(file, "workload.global_batch=64", "workload.samples_per_step=64")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{script: train.py, model: resnet18}", r"`script` is train.py, which has a model of its own: leave `model` out"),
        ("{script: train.py, data: {name: mnist}}", "leave `data` out"),
        ("{model: resnet18}", "`data` is missing"),
        ("{data: {name: mnist}}", "`model` is missing"),
        ("{script: train.py, argz: {depth: 1}}", "unknown key `argz` in workload; did you mean `args`"),
    ],
)
def test_a_script_or_a_model(tmp_path: Path, text: str, message: str) -> None:
    file = written_script(tmp_path, f"schema: 1\ncluster: local\nworkload: {text}\n")
    with pytest.raises(UsageError, match=rf"study.yaml:3.*{message}"):
        read_sweep(file)


def test_a_script_that_is_not_there(tmp_path: Path) -> None:
    file = written_script(tmp_path)
    choose_points(file, PointOptions())
    (tmp_path / "train.py").unlink()
    with pytest.raises(UsageError, match=rf"study.yaml:3.*no file `train.py` in {tmp_path}"):
        choose_points(file, PointOptions())
