from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.study.series import (
    differing,
    full_names,
    key_text,
    same_workload,
    series_key,
    series_order,
    short_names,
    workload_key,
)
from hpcddp.analysis.verdicts.findings import find
from hpcddp.core.point import Point
from tests.analysis.synthetic import MS, Recorded, point, write_run, write_study


def text(each: Point, hold: str = "batch_per_gpu", env_id: str = "e", gpu: str | None = "V100") -> str:
    return key_text(series_key(each, hold, env_id, gpu))


def test_environment_gpu_node_type_and_cores_make_other_series_layouts_do_not() -> None:
    assert text(point(1, 1)) == text(point(16, 4))
    assert "root" not in " ".join(workload_key(point(1, 1), "batch_per_gpu"))
    base = point(1, 4, node_type="a", physical_cores_per_rank=2)
    others = [point(1, 4, node_type="b", physical_cores_per_rank=2), point(1, 4, node_type="a", physical_cores_per_rank=8)]
    assert len({text(base), text(base, env_id="f"), text(base, gpu="A40"), *map(text, others)}) == 5


def test_with_a_held_global_batch_the_batch_per_gpu_follows() -> None:
    small, large = point(1, 4, batch_per_gpu=16), point(4, 4, batch_per_gpu=4)
    assert text(small, "global_batch") == text(large, "global_batch")
    assert text(small) != text(large)


def test_a_planned_point_joins_whatever_gpu_it_will_find() -> None:
    assert same_workload(text(point(1, 4)), point(1, 1), "batch_per_gpu")
    assert not same_workload(text(point(1, 4)), point(1, 1, batch_per_gpu=64), "batch_per_gpu")


def test_series_are_named_by_what_differs() -> None:
    texts = [text(point(1, 4)), text(point(1, 4, batch_per_gpu=64)), text(point(1, 4, loader_workers_per_rank=8))]
    assert list(short_names(differing(texts)).values()) == ["batch/GPU 32, workers 2", "batch/GPU 64", "workers 8"]
    assert full_names(differing(texts))[texts[1]] == "batch/GPU 64, workers 2"


def test_a_key_without_a_value_is_not_unknown() -> None:
    """It is left out, or said to be the default; what a launch finds may be unknown."""
    names: list[dict[str, Any]] = [{"base batch": None, "exclusive": True}, {"base batch": 64, "exclusive": False}, {"GPU": None}]
    found = full_names(dict(zip("abc", names, strict=True)))
    assert list(found.values()) == ["exclusive on", "base batch 64, exclusive off", "GPU unknown"]
    assert short_names({"a": names[1], "b": names[0]})["b"] == "base batch default, exclusive on"


RTX = "NVIDIA RTX PRO 6000 Blackwell"


@pytest.mark.parametrize(
    ("key", "values", "names"),
    [
        ("model", [f"mylab.networks.variants:resnet_{each}" for each in ("small", "large")], ["resnet_small", "resnet_large"]),
        ("model", [f"m:{'x' * 30}{each}" for each in "ab"], [f"m:{'x' * 30}{each}" for each in "ab"]),
        ("GPU", [f"{RTX} Server Edition", f"{RTX} Workstation Edition"], ["Server Edition", "Workstation Edition"]),
        ("GPU", [f"{RTX} Server Edition", "V100"], [f"{RTX[:24]}", "V100"]),
    ],
)
def test_long_values_keep_what_tells_them_apart(key: str, values: list[str], names: list[str]) -> None:
    texts = [text(point(1, 4, model=each)) if key == "model" else text(point(1, 4), gpu=each) for each in values]
    assert list(full_names(differing(texts)).values()) == [f"{key} {name}" for name in names]


def test_long_values_that_begin_and_end_alike_are_told_apart() -> None:
    apart = [text(point(1, 4, model=f"a_package_of_my_group.{each}_module:resnet50_with_a_long_name_{each}")) for each in "ab"]
    assert len(set(full_names(differing(apart)).values())) == 2


def test_keys_that_differ_together_are_named_once() -> None:
    """A node type and its GPU say the same; a single series needs no name."""
    texts = [text(point(1, 4, node_type="a40"), gpu="A40"), text(point(1, 4, node_type="v100"), gpu="V100")]
    assert list(full_names(differing(texts)).values()) == ["node type a40", "node type v100"]
    assert full_names(differing([text(point(1, 1))])) == {text(point(1, 1)): ""}


def test_series_sort_by_what_differs_then_by_number() -> None:
    first = text(point(1, 4))
    batches = [text(point(1, 4, batch_per_gpu=batch)) for batch in (8, 16, 64)]
    workers = [text(point(1, 4, loader_workers_per_rank=count)) for count in (1, 4, 16)]
    shuffled = [*workers[::-1], *batches[::-1], first]
    assert sorted(shuffled, key=lambda key: series_order(key, first)) == [first, *batches, *workers]


def test_software_is_named_by_what_differs_and_the_series_of_most_runs_leads(tmp_path: Path) -> None:
    layouts = [point(1, 1), point(1, 2)]
    study = write_study(tmp_path / "s", layouts, repeat=3)
    for each in layouts:
        for run, torch in enumerate(("2.10.0", "2.3.0", "2.3.0"), start=1):
            launch = {"versions": {"torch": torch}}
            write_run(study, each, Recorded(step_ns=8 * MS, env_id=f"hash{torch}", launch=launch), run)
    found = find(load_study(study))
    assert list(full_names(found.apart).values()) == ["torch 2.3.0", "torch 2.10.0"]
    assert [re.findall(r"\((torch \S+)\)", text)[0] for text in found.sentences] == ["torch 2.3.0", "torch 2.10.0"]
    assert any("2 software environments (torch 2.10.0, torch 2.3.0) form separate series." in note for note in found.notes)
    assert "hash" not in " ".join([*found.sentences, *found.notes, *(verdict.where for verdict in found.verdicts)])


def test_a_variable_has_its_own_name() -> None:
    apart = differing([key_text({"env.NCCL_ALGO": "Ring"}), key_text({})])
    assert list(full_names(apart).values()) == ["NCCL_ALGO Ring", "NCCL_ALGO default"]
