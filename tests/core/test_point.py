"""Points and their ids."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any

import pytest

from hpcddp.core.point import (
    Data,
    Layout,
    Measure,
    Optimizer,
    Workload,
    canonical,
    comm_point,
    point_from_dict,
    point_to_dict,
    scaling_kind,
)
from hpcddp.core.schema import SchemaError
from tests.golden import check

SMALL = {"cluster": "rcc", "workload": {"model": "mnist-cnn", "data": {"name": "bigmnist"}}}

POINTS: dict[str, dict[str, Any]] = {
    "all defaults": SMALL,
    "rcc, 4 nodes": {
        "cluster": "rcc",
        "workload": {
            "model": "mnist-cnn",
            "data": {"name": "bigmnist", "root": "/scratch/g/x"},
            "batch_per_gpu": 512,
            "loader_workers_per_rank": 8,
        },
        "layout": {"nodes": 4, "gpus_per_node": 4, "node_type": "v100", "physical_cores_per_rank": 12},
        "measure": {"warmup_steps": 100, "steps": 2000},
    },
    "marconi100, an epoch in bf16": {
        "cluster": "marconi100",
        "workload": {
            "model": "resnet50",
            "data": {"name": "imagenet"},
            "precision": "bf16",
            "accumulate": 2,
            "channels_last": True,
            "optimizer": {"lr": 0.1, "weight_decay": 0.0001},
            "seed": 7,
        },
        "layout": {"nodes": 16, "gpus_per_node": 4, "node_type": "ac922", "exclusive": False},
        "work": "epoch",
    },
    "local, on a CPU": {
        "cluster": "local",
        "workload": {
            "model": "my.models:tiny",
            "data": {"name": "my.data:füße", "copies": 1, "variants": ["plain", "flipped"]},
        },
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
    """The id, the text it is the hash of and every default stay what they are: records on disk go by them."""
    text = json.dumps({name: frozen(plain) for name, plain in POINTS.items()}, indent=1, ensure_ascii=True) + "\n"
    check("point_ids.json", text)


def test_later_keys_change_no_earlier_id() -> None:
    """Spelled out at their defaults they are the same point; at any other value another one."""
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
    """Data may move, or be copied to a node: that changes no sample, and no id."""
    point = point_from_dict(SMALL)
    moved = dataclasses.replace(point.workload.data, **change)
    assert dataclasses.replace(point, workload=dataclasses.replace(point.workload, data=moved)).id == point.id


@pytest.mark.parametrize("name", POINTS)
def test_defaults_may_be_spelled_out(name: str) -> None:
    """A point written out in full has the id of the one that leaves defaults out."""
    point = point_from_dict(POINTS[name])
    assert point_from_dict(point_to_dict(point)).id == point.id


def test_order_of_keys_changes_nothing() -> None:
    """The same keys in another order are the same point."""
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
    """What can change a number changes the id."""
    point = point_from_dict(SMALL)
    assert dataclasses.replace(point, **change).id != point.id


def test_label() -> None:
    """A folder and job name: nodes in two digits or more, GPUs per node, batch per GPU, id; safe in any path."""
    layout = Layout(nodes=4, gpus_per_node=4)
    point = dataclasses.replace(point_from_dict(SMALL), layout=layout)
    assert point.label == f"n04-g4-b32-{point.id}"
    assert re.fullmatch(r"[0-9a-f]{12}", point.id)
    assert dataclasses.replace(point, layout=dataclasses.replace(layout, nodes=128)).label.startswith("n128-g4-b32-")


def test_ranks_and_global_batch() -> None:
    """Ranks are nodes x GPUs per node; the global batch is that times the batch per GPU."""
    point = point_from_dict({**SMALL, "layout": {"nodes": 3, "gpus_per_node": 4}})
    assert (point.ranks, point.global_batch) == (12, 384)


def test_a_benchmark_of_collectives_depends_on_the_layout_alone() -> None:
    """Points that differ in what they train and how they are timed have one benchmark; one of another layout has its own."""
    point = point_from_dict(POINTS["rcc, 4 nodes"])
    other = dataclasses.replace(point, workload=Workload(model="resnet50", data=Data(name="imagenet")), measure=Measure(steps=7))
    bench = comm_point(point)
    assert (bench, bench.work, bench.layout) == (comm_point(other), "comm", point.layout)
    assert bench.label == f"n04-g4-comm-{bench.id}"
    assert comm_point(dataclasses.replace(point, layout=Layout(nodes=2))).id != bench.id


def test_unknown_key_of_a_point() -> None:
    """A point of a later version, with a key this one does not know, is refused, not misread."""
    with pytest.raises(SchemaError, match="unknown key `layers`"):
        point_from_dict({**SMALL, "layers": 1})


def test_strong_and_weak_follow_from_hold_and_work() -> None:
    """Strong where the work of a run is the same at every size."""
    assert scaling_kind("batch_per_gpu", "epoch") == "strong scaling (fixed epoch)"
    assert scaling_kind("global_batch", "steps") == "strong scaling (fixed global batch)"
    assert scaling_kind("batch_per_gpu", "steps") == "weak scaling (fixed batch per GPU)"
