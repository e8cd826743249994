from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcddp.cluster.profile import ClusterProfile
from hpcddp.cluster.profile_file import load_profile
from hpcddp.cluster.yamlfile import parse_yaml
from hpcddp.core.errors import UsageError
from hpcddp.core.point import Data, Layout, Measure, Point, Workload, comm_point
from hpcddp.sweep.disk_usage import EPOCH_ROW_BYTES, STEP_ROW_BYTES, run_bytes, run_files, run_steps
from hpcddp.sweep.expand import expand
from hpcddp.sweep.file import make_sweep, read_sweep

BASE = {
    "schema": 1,
    "cluster": "rcc",
    "workload": {"model": "mnist-cnn", "data": {"name": "bigmnist"}},
    "layout": {"node_type": "v100"},
}
AXES = {"layout.nodes": [1, 2], "layout.gpus_per_node": [1, 4], "workload.batch_per_gpu": [8, 16]}
RCC = load_profile("rcc")
M100 = load_profile("marconi100")


def ids(group: Mapping[str, object], **changes: object) -> list[str]:
    source = make_sweep({**BASE, "baselines": False, **changes, "points": {"g": group}}, (), Path("told"))
    return [planned.point.id for planned in expand(source, RCC)]


conditions = st.builds(
    "{} {} {}".format,
    st.sampled_from(["layout.nodes", "layout.gpus_per_node", "workload.batch_per_gpu", "ranks", "global_batch"]),
    st.sampled_from(["<=", ">=", "==", "!=", "<", ">"]),
    st.sampled_from([1, 2, 4, 8, 16]),
)

EVERY = ids(AXES)
BESIDES = {"layout.nodes": 3}
"""A point that is not in the product; included, it keeps a group from being empty."""


@settings(max_examples=20)
@given(st.lists(conditions, min_size=1, max_size=3))
def test_what_is_excluded_is_what_where_would_keep(texts: list[str]) -> None:
    besides = ids({"include": [BESIDES]})

    def left(**words: object) -> list[str]:
        *points, last = ids({**AXES, **words, "include": [BESIDES]})
        assert [last] == besides
        return points

    joined = " and ".join(texts)
    included, dropped = left(where=joined), left(exclude=joined)
    assert [id_ for id_ in EVERY if id_ in included] == included
    assert [id_ for id_ in EVERY if id_ not in included] == dropped
    assert left(where=texts) == included
    each = [set(left(exclude=text)) for text in texts]
    assert left(exclude=texts) == [id_ for id_ in EVERY if all(id_ in one for one in each)]


def test_ids_do_not_know_how_points_were_listed() -> None:
    axis = ids({"layout.nodes": [1, 2]})
    assert ids({"zip": {"layout.nodes": [1, 2]}}) == axis
    assert ids({"include": [{"layout.nodes": 1}, {"layout.nodes": 2}, {"layout.nodes": 2}]}) == axis


def test_a_training_is_evaluated_in_any_case() -> None:
    """`evaluate` and `steps` mean nothing beside its epochs: equal work has equal ids."""
    training = {"work": "train", "measure": {"epochs": 3}}
    also = {"work": "train", "measure": {"epochs": 3, "evaluate": True, "steps": 9}}
    assert ids({"layout.nodes": [1, 2]}, **training) == ids({"layout.nodes": [1, 2]}, **also)


def test_what_cannot_be_may_be_excluded() -> None:
    held = {"hold": "global_batch", "workload": {**BASE["workload"], "global_batch": 16}}  # type: ignore[dict-item]
    axes = {"layout.gpus_per_node": [1, 2, 3, 4]}
    with pytest.raises(UsageError, match="16 cannot be shared equally by 3 GPUs"):
        ids(axes, **held)
    assert len(ids({**axes, "exclude": "gpus == 3"}, **held)) == 3
    pairs = {"workload.parallel": ["ddp", "none"], "layout.gpus_per_node": [1, 4]}
    assert len(ids({**pairs, "exclude": "workload.parallel == none and gpus > 1"})) == 3


TEXT = """\
schema: 1
cluster: rcc
workload: {model: mnist-cnn, data: {name: bigmnist}}
points:
  g:
    layout.nodes: [1, 2]
    zip: {workload.batch_per_gpu: [8, 16], workload.seed: [1, 2]}
    where: layout.nodes <= 2
    exclude:
      - layout.nodes == 2 and workload.seed == 2
    include: [{layout.nodes: 4}]
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("where: layout.nodes <= 2", "where: layout.node <= 2", "8:5: `layout.node <= 2`: no key `layout.node` in a point; did"),
        ("where: layout.nodes <= 2", "where: layout.nodes", "8:5: `layout.nodes`: write KEY OP VALUE, such as"),
        ("seed == 2", "seed < two", "9:5: `.*`: workload.seed is 1, which `<` cannot compare with 'two'"),
        ("include: [{layout.nodes: 4}]", "include: [{layout.nodes: 0}]", "11:16: 0 is below the minimum 1"),
        ("workload.seed: [1, 2]", "workload.seed: [1, no]", "7:44: 'no' is text; a whole number is expected"),
        ("workload.seed: [1, 2]", "workload.seed: [1, 2, 3]", "7:44: `workload.seed` has 3 values, but"),
    ],
)
def test_complaints_name_the_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    file = tmp_path / "study.yaml"
    file.write_text(TEXT.replace(old, new))
    with pytest.raises(UsageError, match=f"study.yaml:{message}"):
        expand(read_sweep(file), RCC)


def test_the_group_that_the_page_on_sweeps_shows() -> None:
    page = (Path(__file__).parents[2] / "docs" / "sweeps.md").read_text()
    block = next(text for text in page.split("\n\n") if text.startswith("    points:\n      shrinking:"))
    points = parse_yaml(textwrap.dedent(block), "sweeps.md")["points"]
    document = {**BASE, "baselines": False, "cluster": "marconi100", "layout": {}, "points": points}
    planned = expand(make_sweep(document, (), Path("x")), M100)
    found = [(p.point.layout.nodes, p.point.workload.batch_per_gpu, p.point.workload.optimizer.lr) for p in planned]
    assert found == [(1, 64, 0.1), (1, 128, 0.2), (2, 64, 0.1), (2, 128, 0.2), (4, 64, 0.1), (8, 32, 0.01)]


def test_a_group_without_a_point_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "study.yaml"
    file.write_text(TEXT)
    assert len(expand(read_sweep(file), RCC)) == 4
    file.write_text(TEXT.replace("<= 2", "> 9"))
    assert len(expand(read_sweep(file), RCC)) == 1  # the included point is left
    file.write_text(TEXT.replace("<= 2", "> 9").partition("    include")[0])
    with pytest.raises(UsageError, match=r"study.yaml:5:3: `where` and `exclude` remove every point of group `g`"):
        expand(read_sweep(file), RCC)


def sizes(points: Mapping[str, Mapping[str, object]], *groups: str, **changes: object) -> tuple[list[str], list[str]]:
    planned = expand(make_sweep({**BASE, **changes, "points": points}, (), Path("told")), RCC, groups)
    named = [(p.is_added, f"{p.point.layout.nodes}x{p.point.layout.gpus_per_node}") for p in planned]
    return [size for added, size in named if not added], [size for added, size in named if added]


def test_baselines_are_added_where_missing() -> None:
    assert sizes({"g": {"layout.nodes": [2, 4], "layout.gpus_per_node": [4]}}) == (["2x4", "4x4"], ["1x1", "1x4"])
    assert sizes({"g": {"layout.nodes": [1, 4], "layout.gpus_per_node": [4]}}) == (["1x4", "4x4"], ["1x1"])
    assert sizes({"g": {"layout.nodes": [2, 4]}}) == (["2x1", "4x1"], ["1x1"])
    assert sizes({"g": {"layout.gpus_per_node": [1, 2, 4]}}) == (["1x1", "1x2", "1x4"], [])
    assert sizes({"g": {"layout.nodes": [4], "workload.seed": [1, 2]}}) == (["4x1", "4x1"], [])
    assert sizes({"g": {"layout.nodes": [2, 4]}}, baselines=False) == (["2x1", "4x1"], [])


def test_what_is_compared_has_baselines_of_its_own() -> None:
    """Runs with the communication hook are the breakdown of those without, and need none besides."""
    batches = {"layout.nodes": [2, 4], "workload.batch_per_gpu": [8, 16]}
    assert sizes({"g": batches})[1] == ["1x1", "1x1"]
    assert sizes({"g": {"layout.nodes": [2, 4], "measure.comm": ["off", "on"]}})[1] == ["1x1"]
    held = {"hold": "global_batch", "workload": {**BASE["workload"], "global_batch": 16}}  # type: ignore[dict-item]
    source = make_sweep({**BASE, **held, "points": {"g": {"layout.nodes": [2, 4]}}}, (), Path("told"))
    assert [p.point.workload.batch_per_gpu for p in expand(source, RCC)] == [8, 4, 16]


def test_baselines_of_a_group_that_is_not_chosen_are_not_added() -> None:
    points = {"in-node": {"layout.gpus_per_node": [1, 4]}, "nodes": {"layout.nodes": [2, 4], "layout.gpus_per_node": [4]}}
    assert sizes(points, "nodes") == (["2x4", "4x4"], [])
    points["in-node"] = {"layout.gpus_per_node": [2]}
    assert sizes(points, "nodes") == (["2x4", "4x4"], ["1x1", "1x4"])
    others = {f"seed {seed}": {"layout.nodes": [2, 4], "workload.seed": [seed]} for seed in (1, 2)}
    assert sizes(others, "seed 1") == (["2x1", "4x1"], ["1x1"])
    planned = expand(make_sweep({**BASE, "points": points}, (), Path("told")), RCC)
    assert [p.groups for p in planned if p.is_added] == [("in-node", "nodes")] * 2


def test_what_cannot_be_in_a_group_that_is_not_chosen_does_not_matter() -> None:
    odd = {"layout.nodes": [1], "workload.model": ["mnist-cnn", "resnet500"]}
    points: dict[str, Mapping[str, object]] = {"nodes": {"layout.nodes": [2, 4]}, "odd": odd}
    assert sizes(points, "nodes") == (["2x1", "4x1"], [])
    with pytest.raises(UsageError, match="resnet500"):
        sizes(points, "odd")


def test_a_baseline_that_cannot_be_is_left_out() -> None:
    """A profile of rank 3 cannot be had of one GPU."""
    profiled = {"measure": {"profile_steps": 2, "profile_ranks": [0, 3]}}
    assert sizes({"g": {"layout.nodes": [2, 4], "layout.gpus_per_node": [4]}}, **profiled)[1] == ["1x4"]


def workers_of(profile: ClusterProfile, **changes: object) -> list[object]:
    document = {**BASE, "cluster": profile.name, "baselines": False, **changes}
    source = make_sweep(document, ("workload.loader_workers_per_rank=auto",), Path("auto"))
    return [planned.point.workload.loader_workers_per_rank for planned in expand(source, profile)]


def test_auto_workers_are_the_cores_of_a_rank_less_one() -> None:
    digits = {"model": "resnet18", "data": {"name": "digits", "resident": True}}
    assert workers_of(M100, layout={}) == [32 // 4 - 1]
    assert workers_of(M100, layout={"physical_cores_per_rank": 5}) == [4]
    assert workers_of(M100, layout={"physical_cores_per_rank": 1}) == [1]
    assert workers_of(M100, layout={}, workload=digits) == [0]


def test_auto_workers_are_a_point_as_their_number_is() -> None:
    assert ids({"workload.loader_workers_per_rank": ["auto"]}) == ids({"workload.loader_workers_per_rank": [11]})
    assert len(ids({"workload.loader_workers_per_rank": ["auto", 11, 12]})) == 2


def test_auto_workers_need_known_cores() -> None:
    local = load_profile("local")
    with pytest.raises(UsageError, match=r"loader_workers_per_rank is auto.*Set layout\.physical_cores_per_rank"):
        workers_of(local, layout={}, device="cuda")
    assert workers_of(local, layout={"physical_cores_per_rank": 3}, device="cuda") == [2]
    assert workers_of(local, layout={}, device="cpu") == workers_of(M100, layout={}, device="cpu") == [1]
    with pytest.raises(UsageError, match=r"'many' is text; a whole number is expected"):
        make_sweep(BASE, ("workload.loader_workers_per_rank=many",), Path("many"))


def test_variables_are_of_the_point() -> None:
    found = ids({"env.NCCL_ALGO": [None, "Ring", "Tree"]})
    assert (len(set(found)), found[:1]) == (3, ids({}))
    assert ids({}, env={"A": 1, "B": None}) == ids({"env.A": ["1"]}) == ids({"env": [{"A": "1"}]}) != ids({})
    assert ids({"env.A": [1, None], "where": "env.A == null"}) == ids({})


def test_variables_are_compared_with_their_own_baselines() -> None:
    assert sizes({"g": {"env.NCCL_ALGO": ["Ring", "Tree"], "layout.nodes": [2, 4]}})[1] == ["1x1", "1x1"]
    source = make_sweep({**BASE, "env": {"NCCL_ALGO": "Tree"}}, (), Path("told"))
    assert [comm_point(planned.point).env for planned in expand(source, RCC)] == [{"NCCL_ALGO": "Tree"}]


MNIST, FEW = Workload(model="mnist-cnn", data=Data(name="mnist"), batch_per_gpu=32), Measure(warmup_steps=10, telemetry_hz=0.0)
EPOCH = Point(cluster="local", workload=MNIST, measure=FEW, work="epoch")


def test_a_training_has_the_steps_of_its_epochs_and_a_file_of_them() -> None:
    training = replace(EPOCH, work="train", measure=replace(EPOCH.measure, epochs=3))
    assert (run_steps(EPOCH), run_steps(training)) == (1875, 5625)
    assert run_files(training) == run_files(EPOCH) + 1
    assert run_bytes(training, 30) - run_bytes(EPOCH, 30) == 2 * 1875 * STEP_ROW_BYTES + 3 * EPOCH_ROW_BYTES


def test_a_checkpoint_of_shards_has_a_file_for_each_rank_of_a_copy() -> None:
    layout = Layout(nodes=2, gpus_per_node=4)
    workload = EPOCH.workload
    for chosen, shards in ((workload, 0), (replace(workload, parallel="fsdp"), 8), (replace(workload, parallel="hsdp"), 4)):
        without = replace(EPOCH, workload=chosen, layout=layout)
        resumed = replace(without, measure=replace(without.measure, resume=True))
        assert run_files(resumed) - run_files(without) == 3 * (1 + shards)
