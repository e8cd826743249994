from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from hpcddp.core.epoch_plan import EpochPlan
from hpcddp.core.errors import UsageError
from hpcddp.core.launch_record import ScriptFacts
from hpcddp.core.own_script import arguments, completed, digest_with_modules, facts_of, script_files, script_text
from hpcddp.core.point import (
    Data,
    Layout,
    Measure,
    Optimizer,
    Point,
    Workload,
    canonical,
    comm_point,
    flat_keys,
    point_from_dict,
    point_to_dict,
    scaling_kind,
)
from hpcddp.core.point_rules import check_point
from hpcddp.core.run_root import RunKey, run_ranges, spans
from hpcddp.core.schema import SchemaError
from tests import check_golden

SMALL = {"cluster": "rcc", "workload": {"model": "mnist-cnn", "data": {"name": "bigmnist"}}}
LOADED = {"batch_per_gpu": 512, "loader_workers_per_rank": 8}

POINTS: dict[str, dict[str, Any]] = {
    "all defaults": SMALL,
    "rcc, 4 nodes": {
        "cluster": "rcc",
        "workload": {"model": "mnist-cnn", "data": {"name": "bigmnist", "root": "/scratch/g/x"}, **LOADED},
        "layout": {"nodes": 4, "gpus_per_node": 4, "node_type": "v100", "physical_cores_per_rank": 12},
        "measure": {"warmup_steps": 100, "steps": 2000},
    },
    "marconi100, an epoch in bf16": {
        "cluster": "marconi100",
        "workload": {
            **{"model": "resnet50", "data": {"name": "imagenet"}, "precision": "bf16", "accumulate": 2, "channels_last": True},
            **{"optimizer": {"lr": 0.1, "weight_decay": 0.0001}, "seed": 7},
        },
        "layout": {"nodes": 16, "gpus_per_node": 4, "node_type": "ac922", "exclusive": False},
        "work": "epoch",
    },
    "local, on a CPU": {
        "cluster": "local",
        "workload": {"model": "my.models:tiny", "data": {"name": "my.data:füße", "copies": 1, "variants": ["plain", "flipped"]}},
        "measure": {"evaluate": True},
        "device": "cpu",
    },
    "a script of the user's own": {
        "cluster": "rcc",
        "workload": {
            "script": "train.py",
            "args": {"depth": 12, "lr": 0.1, "amp": True, "sizes": [1, 2], "name": "füße", "off": False},
            "samples_per_step": 32,
        },
        "layout": {"nodes": 2},
    },
    "a script that says its batch itself": {"cluster": "rcc", "workload": {"script": "../src/train.py"}},
}


def frozen(plain: dict[str, Any]) -> dict[str, Any]:
    point = point_from_dict(plain)
    return {"id": point.id, "label": point.label, "canonical": canonical(point), "in full": point_to_dict(point)}


def test_ids_are_frozen() -> None:
    text = json.dumps({name: frozen(plain) for name, plain in POINTS.items()}, indent=1, ensure_ascii=True) + "\n"
    check_golden("point_ids.json", text)


def test_later_keys_change_no_earlier_id() -> None:
    given: dict[str, Any] = dict(SMALL)
    plain = point_from_dict(given)
    later = {"name": "sgd", "nesterov": False, "betas": [0.9, 0.999], "scaling": "none", "schedule": "constant", "ema_decay": 0}
    optimizer = {**given["workload"].get("optimizer", {}), **later}
    spelled: dict[str, Any] = {**given, "workload": {**given["workload"], "optimizer": optimizer}}
    spelled["measure"] = {**given.get("measure", {}), "epochs": None, "evaluate_every": 1, "target_accuracy": None}
    assert point_from_dict(spelled).id == plain.id
    for key, value in {"nesterov": True, "label_smoothing": 0.1, "weight_decay_on": "weights", "name": "lars"}.items():
        other = {**spelled, "workload": {**spelled["workload"], "optimizer": {key: value}}}
        assert point_from_dict(other).id != plain.id


@pytest.mark.parametrize("change", [{"root": "/elsewhere"}, {"stage": "tmpdir"}], ids=["root", "stage"])
def test_where_data_lie_is_outside_the_id(change: dict[str, Any]) -> None:
    point = point_from_dict(SMALL)
    moved = dataclasses.replace(point.workload.data, **change)
    assert dataclasses.replace(point, workload=dataclasses.replace(point.workload, data=moved)).id == point.id


@pytest.mark.parametrize("name", POINTS)
def test_defaults_may_be_spelled_out(name: str) -> None:
    point = point_from_dict(POINTS[name])
    assert point_from_dict(point_to_dict(point)).id == point.id


def test_order_of_keys_changes_nothing() -> None:
    plain = POINTS["rcc, 4 nodes"]
    turned = {key: dict(reversed(list(plain[key].items()))) if isinstance(plain[key], dict) else plain[key] for key in plain}
    assert point_from_dict(dict(reversed(list(turned.items())))).id == point_from_dict(plain).id


@pytest.mark.parametrize(
    "change",
    [
        {"cluster": "other"},
        {"work": "epoch"},
        {"device": "cpu"},
        {"layout": Layout(nodes=2)},
        {"layout": Layout(exclusive=False)},
        {"measure": Measure(warmup_steps=0)},
        {"workload": Workload(model="mnist-cnn", data=Data(name="bigmnist", copies=199))},
        {"workload": Workload(model="mnist-cnn", data=Data(name="bigmnist", variants=("plain",)))},
        {"workload": Workload(model="mnist-cnn", data=Data(name="bigmnist"), optimizer=Optimizer(momentum=0.0))},
    ],
)
def test_everything_else_is_in_the_id(change: dict[str, Any]) -> None:
    point = point_from_dict(SMALL)
    assert dataclasses.replace(point, **change).id != point.id


def test_label_ranks_and_global_batch() -> None:
    layout = Layout(nodes=4, gpus_per_node=4)
    point = dataclasses.replace(point_from_dict(SMALL), layout=layout)
    assert point.label == f"n04-g4-b32-{point.id}"
    assert re.fullmatch(r"[0-9a-f]{12}", point.id)
    assert (point.ranks, point.global_batch) == (16, 512)
    assert dataclasses.replace(point, layout=dataclasses.replace(layout, nodes=128)).label.startswith("n128-g4-b32-")


def test_a_benchmark_of_collectives_depends_on_the_layout_alone() -> None:
    point = point_from_dict(POINTS["rcc, 4 nodes"])
    other = dataclasses.replace(point, workload=Workload(model="resnet50", data=Data(name="imagenet")), measure=Measure(steps=7))
    bench = comm_point(point)
    assert (bench, bench.work, bench.layout) == (comm_point(other), "comm", point.layout)
    assert bench.label == f"n04-g4-comm-{bench.id}"
    assert comm_point(dataclasses.replace(point, layout=Layout(nodes=2))).id != bench.id


def test_unknown_key_of_a_point() -> None:
    with pytest.raises(SchemaError, match="unknown key `layers`"):
        point_from_dict({**SMALL, "layers": 1})


def test_strong_and_weak_follow_from_hold_and_work() -> None:
    assert scaling_kind("batch_per_gpu", "epoch") == "strong scaling (fixed epoch)"
    assert scaling_kind("global_batch", "steps") == "strong scaling (fixed global batch)"
    assert scaling_kind("batch_per_gpu", "steps") == "weak scaling (fixed batch per GPU)"


def test_neighbours_are_a_range_and_points_beyond_three_are_counted() -> None:
    assert run_ranges(RunKey(*key) for key in [("b", 1), ("a", 5), ("a", 3), ("a", 1), ("a", 2)]) == "a r1-3, r5, b r1"
    assert run_ranges(RunKey(label, 1) for label in "abcde") == "a r1, b r1, c r1 and 2 points more"
    assert run_ranges(RunKey(label, 1) for label in "abcd") == "a r1, b r1, c r1 and 1 point more"


def test_runs_sort_by_the_numbers_of_their_points_and_their_own() -> None:
    keys = [RunKey(label, 1) for label in ("n100-g4-b8", "n16-g4-b128", "n16-g4-b8")]
    assert run_ranges([*keys, RunKey("n16-g4-b8", 10)]) == "n16-g4-b8 r1, r10, n16-g4-b128 r1, n100-g4-b8 r1"
    assert sorted([RunKey("b", 1), RunKey("a", 10), RunKey("a", 2)]) == [("a", 2), ("a", 10), ("b", 1)]
    assert f"{RunKey('n01-g4', 2)}" == "n01-g4 r2"
    assert (spans([3, 1, 2, 5, 2]), spans([])) == ([(1, 3), (5, 5)], [])


@pytest.mark.parametrize(
    ("samples", "batch", "grows_at", "factor"), [(330, 16, (), 1), (330, 16, (2,), 2), (100, 3, (1, 2, 5), 3)]
)
def test_a_plan_is_the_list_of_its_steps(samples: int, batch: int, grows_at: tuple[int, ...], factor: int) -> None:
    plan, listed = EpochPlan(samples, batch, grows_at, factor), list[tuple[int, int, int]]()
    for epoch in range(7):
        batch *= factor if epoch in grows_at else 1
        assert (plan.batch_of(epoch), plan.steps_of(epoch), plan.first_step(epoch)) == (batch, samples // batch, len(listed))
        listed += [(epoch, within, batch) for within in range(samples // batch)]
    batches = [batch for *_, batch in listed]
    for step, (epoch, within, batch) in enumerate(listed):
        assert (*plan.epoch_at(step), plan.batch_at(step)) == (epoch, within, batch)
        assert plan.samples_before(step) == sum(batches[:step])
        assert plan.grows_after(step) == next((later for later in range(step, len(listed)) if batches[later] > batch), None)
    assert plan.largest_batch == batches[-1]


FACTS = ScriptFacts(model="train:Net", data="train:Words", precision="bf16", samples_per_step=8, iterations_per_step=4)


def script_point(**changes: object) -> Point:
    """Of two ranks whose script has one argument."""
    workload = {"script": "src/train.py", "args": {"depth": 12}, **changes}
    return Point(cluster="local", workload=Workload(**workload), device="cpu")  # type: ignore[arg-type]


def test_arguments_are_words() -> None:
    args = {"depth": 12, "lr": 0.1, "amp": True, "plain": False, "nothing": None, "sizes": [1, 2], "name": "a b"}
    words = ["--depth", "12", "--lr", "0.1", "--amp", "--sizes", "1", "2", "--name", "a b"]
    assert arguments(Workload(script="train.py", args=args)) == words
    assert script_text(script_point().workload) == "train.py --depth 12"


def test_what_the_job_finds_changes_no_id() -> None:
    planned = script_point()
    found = completed(planned, FACTS)
    assert (found.id, found.label) == (planned.id, planned.label)
    assert found.label.startswith("n01-g1-script-")
    assert found.global_batch == 8
    assert facts_of(found.workload) == FACTS


def test_what_is_not_known_is_no_key() -> None:
    planned = {key for key in flat_keys(script_point()) if key.startswith("workload.")}
    assert planned == {"workload.script", "workload.args.depth", "workload.samples_per_step"}
    found = flat_keys(completed(script_point(), FACTS))
    assert (found["workload.precision"], found["workload.batch_per_gpu"], found["workload.accumulate"]) == ("bf16", 8, 4)
    assert "workload.optimizer.lr" not in found
    assert not any(key.startswith("workload.args") or key == "workload.script" for key in flat_keys(own_loop()))


def own_loop() -> Point:
    return dataclasses.replace(script_point(), workload=Workload(model="resnet18"))


def test_arguments_are_hashed() -> None:
    others = [
        script_point(),
        script_point(args={"depth": 13}),
        script_point(args={}),
        script_point(script="train.py"),
        script_point(samples_per_step=8),
    ]
    assert len({each.id for each in others}) == len(set(others)) == len(others)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"precision": "bf16"}, "workload.precision is defined by the script. Pass it as an argument"),
        ({"batch_per_gpu": 8}, "Set workload.samples_per_step instead"),
        ({"args": {"depth": {"of": 1}}}, r"workload.args.depth is \{'of': 1\}: write text, a number"),
        ({"args": {"--depth": 1}}, "`--depth` cannot be the name of an argument"),
        ({"script": None, "model": "resnet18"}, "workload.args goes with workload.script"),
    ],
)
def test_what_a_script_cannot_have(changes: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_point(script_point(**changes))


def test_what_only_hpcddps_own_loop_does() -> None:
    with pytest.raises(UsageError, match=r"measure\.input.*\n.*measure\.evaluate"):
        check_point(dataclasses.replace(script_point(), measure=Measure(input="synthetic", evaluate=True)))


def test_files_of_a_script(tmp_path: Path) -> None:
    src = tmp_path / "src"
    (src / "nets").mkdir(parents=True)
    files = {
        "src/train.py": "import torch\nimport nets.small\nfrom tools import lr\ndef late():\n    import late_one\n",
        "src/nets/small.py": "from . import other\nimport shapes\n",
        "tools.py": "never = True",
        **dict.fromkeys(("src/nets/__init__.py", "src/tools.py", "src/unused.py", "shapes.py", "late_one.py"), ""),
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    found = script_files(src / "train.py", [tmp_path])
    assert set(found) == {"train.py", "nets/__init__.py", "nets/small.py", "tools.py", "shapes.py", "late_one.py"}
    assert found["tools.py"] == src / "tools.py"


def test_the_digest_is_of_all_files(tmp_path: Path) -> None:
    script, nets = tmp_path / "train.py", tmp_path / "nets.py"
    script.write_text("import nets\n")
    assert digest_with_modules(script) == hashlib.sha256(b"import nets\n").hexdigest()[:12]
    nets.write_text("depth = 1\n")
    before = digest_with_modules(script)
    nets.write_text("depth = 2\n")
    assert digest_with_modules(script) != before


def test_a_script_that_is_no_python(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\nfor\n")
    with pytest.raises(UsageError, match=r"train.py: not valid Python: .*line 2"):
        script_files(tmp_path / "train.py")
