from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from hpcddp.cluster.profile_file import load_profile
from hpcddp.core.errors import UsageError
from hpcddp.core.point import Point
from hpcddp.submit.choose import choose_points
from hpcddp.submit.options import PointOptions
from hpcddp.submit.remarks import remarks
from hpcddp.sweep.expand import PlannedPoint, expand
from hpcddp.sweep.file import make_sweep, read_sweep

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


RCC = load_profile("rcc")


def written(folder: Path, text: str = TEXT) -> Path:
    file = folder / "study.yaml"
    file.write_text(text)
    return file


def planned(folder: Path, *settings: str, text: str = TEXT, **chosen: Any) -> Sequence[PlannedPoint]:
    return expand(read_sweep(written(folder, text), settings), RCC, **chosen)


def ids(folder: Path, *settings: str) -> list[str]:
    return [each.point.id for each in planned(folder, *settings)]


def shapes(found: Sequence[PlannedPoint]) -> list[tuple[int, int, tuple[str, ...]]]:
    return [(each.point.layout.nodes, each.point.layout.gpus_per_node, each.groups) for each in found]


def test_points_are_the_union_of_groups_or_one(tmp_path: Path) -> None:
    assert shapes(planned(tmp_path)) == [(1, 1, ("in-node",)), (1, 4, ("in-node", "nodes")), (2, 4, ("nodes",))]
    assert shapes(planned(tmp_path, text=TEXT.partition("points:")[0])) == [(1, 4, ())]


def test_points_of_a_group_that_are_equal_name_it_once(tmp_path: Path) -> None:
    """Loading alone has no exchange: two values of measure.comm are one point of the group then."""
    text = TEXT.replace("nodes: [1, 2]", "nodes: [2], measure.comm: [off, on]")
    found = planned(tmp_path, text=text, groups=("nodes",), also={"measure.input": ("io",)})
    assert [each.groups for each in found] == [("nodes",)]


def test_group_chosen(tmp_path: Path) -> None:
    assert shapes(planned(tmp_path, groups=("nodes",))) == [(1, 4, ("nodes",)), (2, 4, ("nodes",))]
    with pytest.raises(UsageError, match="no group `node` in points; did you mean `nodes`"):
        planned(tmp_path, groups=("node",))


def test_set_goes_under_the_groups(tmp_path: Path) -> None:
    settings = ["layout.nodes=2", "workload.batch_per_gpu=64", "repeat=3", "baselines=false"]
    found = planned(tmp_path, *settings)
    assert shapes(found) == [(2, 1, ("in-node",)), (2, 4, ("in-node", "nodes")), (1, 4, ("nodes",))]
    assert read_sweep(written(tmp_path), settings).sweep.repeat == 3
    assert {each.point.workload.batch_per_gpu for each in found} == {64}


def test_set_does_not_reach_the_id_by_account_repeat_or_slurm(tmp_path: Path) -> None:
    outside = ["account=me", "repeat=6", "slurm.walltime_min=5", "slurm.qos=dev", "workload.data.root=/elsewhere"]
    assert ids(tmp_path, *outside) == ids(tmp_path)
    assert not set(ids(tmp_path, "device=cpu")) & set(ids(tmp_path))


def test_default_node_type_is_named(tmp_path: Path) -> None:
    left_out = planned(tmp_path)
    assert [each.point for each in left_out] == [each.point for each in planned(tmp_path, "layout.node_type=v100")]
    assert (left_out[0].point.layout.node_type, left_out[0].point.layout.physical_cores_per_rank) == ("v100", 12)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("model:", "modle:", r"study.yaml:4:3: unknown key `modle` in workload; did you mean `model`\?"),
        ("{gpus_per_node: 4}", "{gpus_per_node: 0}", "study.yaml:6:10: 0 is below the minimum 1"),
        ("{gpus_per_node: 4}", "{gpus_per_node: four}", "study.yaml:6:10: 'four' is text; a whole number is expected"),
        ("[1, 2]", "[1, 0]", "study.yaml:9:11: 0 is below the minimum 1"),
        ("layout.nodes: [1, 2]", "layout.node: [1, 2]", "study.yaml:9:11: unknown key `node`"),
        ("layout.nodes: [1, 2]", "slurm.qos: [a]", "study.yaml:9:11: `slurm.qos` cannot be an axis"),
        ("name: bigmnist", "name: bigmnits", "no data set `bigmnits`; did you mean `bigmnist`"),
        ("model: mnist-cnn", "model: resnet18", "takes images of 3 channels; data `bigmnist` has 1"),
        ("layout: {", "work: comm\nlayout: {", "study.yaml:6:1: a sweep cannot have `work: comm`.*`hpcddp bench comm SWEEP`"),
        ("layout.nodes: [1, 2]", "work: [comm]", "study.yaml:9:11: a sweep cannot have `work: comm`.*`hpcddp bench comm SWEEP`"),
        ("layout: {", "env: {A: a, RANK: 1}\nlayout: {", "study.yaml:6:13: a sweep cannot set RANK: hpcddp or Slurm sets"),
        ("layout: {", "env: {slurm-x: 1}\nlayout: {", "study.yaml:6:7: `slurm-x` is not a variable name"),
        ("layout: {", "env: {A: false}\nlayout: {", "study.yaml:6:7: A is false, but a variable is text. Write it in quotes"),
        ("layout: {", 'env: {A: "a\\nb"}\nlayout: {', "study.yaml:6:7: A has a line break"),
        ("layout.nodes: [1, 2]", "env.SLURM_NNODES: [1]", "study.yaml:9:11: a sweep cannot set SLURM_NNODES"),
        ("layout.nodes: [1, 2]", "env.HF_TOKEN: [x]", "study.yaml:9:11: a sweep cannot set HF_TOKEN.*Export it in the shell"),
        ("layout.nodes: [1, 2]", "env.OMP_NUM_THREADS: [1]", "study.yaml:9:11: a sweep cannot set OMP_.*physical_cores_per_rank"),
        ("schema: 1", "schema: 2", "study.yaml:1:1: 2 is not one of 1"),
        ("layout: {", "layout: [", "study.yaml:6:"),
    ],
)
def test_complaints_name_the_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        planned(tmp_path, text=TEXT.replace(old, new))


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("workload.batchsize=3", r"--set workload.batchsize=3: unknown key `batchsize` in workload"),
        ("layout.nodes=two", "--set layout.nodes=two: 'two' is text"),
        ("layout.nodes", "give a key of the sweep and a value"),
        ("points.nodes=1", "give a key of the sweep and a value"),
        ("cluster.name=x", "not a mapping"),
    ],
)
def test_complaints_about_set_name_it(tmp_path: Path, setting: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_sweep(written(tmp_path), [setting])


def test_global_batch_is_shared(tmp_path: Path) -> None:
    points = [each.point for each in planned(tmp_path, "hold=global_batch", "workload.global_batch=64")]
    assert [(point.ranks, point.workload.batch_per_gpu) for point in points] == [(1, 64), (4, 16), (8, 8)]
    assert points[1].id in ids(tmp_path, "workload.batch_per_gpu=16")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["hold=global_batch"], "needs workload.global_batch"),
        (["hold=global_batch", "workload.global_batch=30"], "30 cannot be shared equally by 4 GPUs"),
        (["workload.global_batch=64"], "needs `hold: global_batch`"),
    ],
)
def test_global_batch_must_fit(tmp_path: Path, settings: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        planned(tmp_path, *settings)


@pytest.mark.parametrize(
    ("settings", "unused"),
    [
        ([], ["measure.max_steps=9000", "measure.interval_percent=1", "measure.profile_ranks=[0, 3]"]),
        (["measure.stop=seconds", "measure.seconds=9"], ["measure.steps=77", "measure.interval_percent=1"]),
        (["measure.input=io"], ["measure.evaluate=true", "measure.comm=on"]),
        (["work=epoch"], ["measure.steps=9"]),
    ],
)
def test_what_has_no_say_is_not_in_the_id(tmp_path: Path, settings: list[str], unused: list[str]) -> None:
    assert set(ids(tmp_path, *settings)) == set(ids(tmp_path, *settings, *unused))
    assert set(ids(tmp_path, *settings)) != set(ids(tmp_path, "measure.stop=interval", "measure.max_steps=9000"))


def test_one_more_product_over_all_groups(tmp_path: Path) -> None:
    def comms(**chosen: Any) -> list[tuple[int, str]]:
        found = planned(tmp_path, also={"measure.comm": ("off", "on")}, **chosen)
        return [(each.point.gpus, each.point.measure.comm) for each in found]

    assert comms() == [(gpus, comm) for gpus in (1, 4, 8) for comm in ("off", "on")]
    own = TEXT.replace("{layout.nodes: [1, 2]}", "{layout.nodes: [1, 2], measure.comm: [check]}")
    assert comms(text=own, groups=("nodes",)) == [(4, "check"), (8, "check")]
    assert comms(text=TEXT.partition("points:")[0]) == [(4, "off"), (4, "on")]


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


SWEEP = """\
schema: 1
cluster: local
workload: {script: train.py, args: {depth: 12, lr: 0.1}}
layout: {gpus_per_node: 2}
device: cpu
"""


def written_script(folder: Path, text: str = SWEEP) -> Path:
    (folder / "train.py").write_text("")
    return written(folder, text)


def script_points(file: Path, *settings: str) -> list[Point]:
    return [planned.point for planned in expand(read_sweep(file, settings), load_profile("local"))]


def test_a_scripts_loader_is_not_remarked_on(tmp_path: Path) -> None:
    profile, core = load_profile("local"), "layout.physical_cores_per_rank=1"
    script = expand(read_sweep(written_script(tmp_path), [core]), profile)
    built_in = expand(read_sweep(SHIPPED[0].with_name("local-mnist.yaml"), [core, "workload.loader_workers_per_rank=2"]), profile)
    assert not any("loader_workers" in text for text in remarks(profile, script))
    assert any("loader_workers" in text for text in remarks(profile, built_in))


def test_an_argument_is_an_axis(tmp_path: Path) -> None:
    file = written_script(
        tmp_path,
        SWEEP + "points:\n  scale:\n    workload.args.depth: [6, 12, 24]\n    where: workload.args.depth <= 12\n"
        "    layout.gpus_per_node: [2, 4]\n",
    )
    found = [(point.gpus, dict(point.workload.args)) for point in script_points(file)]
    assert found[:4] == [(gpus, {"depth": depth, "lr": 0.1}) for depth in (6, 12) for gpus in (2, 4)]
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
    with pytest.raises(UsageError, match="Remove one of them"):
        script_points(file, "workload.global_batch=64", "workload.samples_per_step=64")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{script: train.py, model: resnet18}", r"`script` is train.py, which has its own model. Remove `model`"),
        ("{script: train.py, data: {name: mnist}}", "Remove `data`"),
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
