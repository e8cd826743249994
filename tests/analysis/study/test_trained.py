from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hpcddp.analysis import analyze
from hpcddp.analysis.report.write import latex_text, markdown_text
from hpcddp.analysis.study.frames import runs_frame
from hpcddp.analysis.study.load import StudyRecords, load_study
from hpcddp.analysis.study.scaling import scaling_frame
from hpcddp.analysis.study.series import same_workload
from hpcddp.analysis.study.trained import fact_text, facts_line, trained
from hpcddp.core.point import Data, Layout, Measure, Optimizer, OwnScript, Point, Workload
from hpcddp.core.records import write_json
from hpcddp.core.run_root import Study
from tests.analysis.synthetic import FAILED, MS, START_NS, Recorded, point, write_run, write_study

DAY_NS = 86_400 * 10**9


def facts_of(folder: Path, runs: list[tuple[Point, dict[str, Any]]], **changes: Any) -> dict[str, list[str]]:
    study = write_study(folder / "s", list(dict.fromkeys(each for each, _ in runs)), **changes)
    for number, (each, recorded) in enumerate(runs, start=1):
        write_run(study, each, Recorded(**{"step_ns": 8 * MS, **recorded}), number)
    return trained(load_study(study).runs)


def test_a_built_in_workload_is_told_as_its_point_says(tmp_path: Path) -> None:
    each = point(1, 4, optimizer=Optimizer(lr=0.1, weight_decay=1e-4), compile=True, seed=7)
    assert facts_of(tmp_path, [(each, {})]) == {
        **{"model": ["resnet18"], "data": ["synthetic-imagenet"], "precision": ["fp32"], "batch": ["32 samples per GPU"]},
        **{"workers": ["2 per rank"], "parallel": ["ddp"], "optimizer": ["sgd"], "learning rate": ["0.1"], "momentum": ["0.9"]},
        **{"seed": ["7"], "compile": ["on"], "weight decay": ["0.0001"], "GPU": ["V100"], "cluster": ["marconi100"]},
        **{"date": ["2023-11-14"], "software": ["torch 2.7.1"]},
    }


def test_what_varies_has_all_its_values(tmp_path: Path) -> None:
    there = dataclasses.replace(point(1, 1), cluster="leonardo")
    later = {"gpu": "A100", "launch": {"started_unix_ns": START_NS + 3 * DAY_NS}}
    found = facts_of(
        tmp_path, [(point(1, 1, batch_per_gpu=128, gc="off"), {}), (point(1, 1, batch_per_gpu=64), {}), (there, later)]
    )
    assert (sorted(found["GPU"]), sorted(found["cluster"])) == (["A100", "V100"], ["leonardo", "marconi100"])
    assert found["date"] == ["2023-11-14 to 2023-11-17"]
    assert fact_text(found["batch"]) == "varies: 32, 64, 128 samples per GPU"
    assert fact_text(found["gc"]) == "varies: off, python"
    assert facts_line(found).startswith("resnet18 on synthetic-imagenet, batch 32-128/GPU, fp32, ")


def test_a_held_global_batch_is_named(tmp_path: Path) -> None:
    """Where the batch per GPU follows from it."""
    found = facts_of(tmp_path, [(point(1, 1, batch_per_gpu=64), {}), (point(1, 2), {})], hold="global_batch")
    assert found["global batch"] == ["64 samples"]


def test_sharded_training_of_whole_epochs(tmp_path: Path) -> None:
    each = point(1, 2, parallel="fsdp", work="train", epochs=3, optimizer=Optimizer(name="adamw"))
    found = facts_of(tmp_path, [(each, {"gates": FAILED})])
    assert (found["parallel"], found["epochs"], found["optimizer"]) == (["fsdp"], ["3"], ["adamw"])
    assert "momentum" not in found


def test_what_a_script_does_not_say_is_unknown(tmp_path: Path) -> None:
    """Its loop has an optimizer and a seed of its own: nothing is said of hpcddp's defaults."""
    workload = Workload(model="train:Net", data=Data(name="train:Cifar"), batch_per_gpu=16, loader_workers_per_rank=0)
    own = OwnScript(name="train.py", arguments=("--depth", "12"))
    each = Point(cluster="c", workload=workload, layout=Layout(), measure=Measure(warmup_steps=1, steps=5), script=own)
    found = facts_of(tmp_path, [(each, {})])
    assert {found.pop(name)[0] for name in ("optimizer", "seed")} == {"unknown (the script's own)"}
    assert (found["script"], found["workers"]) == (["train.py --depth 12"], ["none found per rank"])
    assert not {"parallel", "learning rate", "momentum", "compile"} & set(found)


def test_processors_stand_in_for_gpus(tmp_path: Path) -> None:
    each = point(1, 2, device="cpu")
    study = write_study(tmp_path / "s", [each])
    attempt = write_run(study, each, Recorded(step_ns=MS, gpu=None))
    assert not {"GPU", "CPU"} & set(trained(load_study(study).runs))
    write_json(attempt / "nodes/r000.json", {"schema": 1, "host": "r000", "cpu": "AMD EPYC 7763 64-Core Processor"})
    found = trained(load_study(study).runs)
    assert (found["CPU"], found["batch"]) == (["AMD EPYC 7763 64-Core Processor"], ["32 samples per rank"])
    assert facts_line(found) == "resnet18 on synthetic-imagenet, batch 32/rank, fp32, EPYC 7763, marconi100"


def test_runs_that_do_not_count_are_not_told_of(tmp_path: Path) -> None:
    assert facts_of(tmp_path / "a", [(point(1, 1), {}), (point(1, 1), {"gpu": "A40", "gates": FAILED})])["GPU"] == ["V100"]
    assert facts_of(tmp_path / "b", [(point(1, 1), {"gpu": "A40", "gates": FAILED})])["GPU"] == ["A40"]
    assert trained(load_study(write_study(tmp_path / "c", [point(1, 1)])).runs) == {}


@pytest.mark.usefixtures("undrawn")
def test_every_report_says_it_once(tmp_path: Path) -> None:
    found = facts_of(tmp_path, [(point(1, 1, batch_per_gpu=batch), {}) for batch in (32, 64)])
    (result,) = analyze(tmp_path)
    report = tmp_path / "s/report"
    assert json.loads((report / "report.json").read_text())["trained"] == found
    assert result.text_in(80).splitlines()[1] == facts_line(found)
    page, markdown = (report / "index.html").read_text(), (report / "report.md").read_text()
    tables = [file.read_text() for file in report.glob("*.tex")]
    assert len(tables) > 1
    for name, values in found.items():
        text = fact_text(values)
        assert page.count(f"<dt>{name}</dt><dd>{text}</dd>") == 1
        assert markdown.count(f"- **{markdown_text(name)}**: {markdown_text(text)}\n") == 1
        assert all(table.count(latex_text(f"{name} {text}")) == 1 for table in tables)


def script(gpus: int, **changes: object) -> Point:
    """`train.py --depth 12` on one node, as its sweep has it."""
    chosen = {"model": "", "data": Data(name=""), "script": "train.py", "args": {"depth": 12}, **changes}
    return point(1, gpus, **chosen)


def facts(samples: int) -> dict[str, object]:
    """As launch.json has them."""
    return {"script": {"model": "train:Net", "data": "train:Words", "precision": "bf16", "samples_per_step": samples}}


def measured(study: Study, each: Point, samples: int) -> None:
    """A run whose steps take 100 ms."""
    write_run(study, each, Recorded(step_ns=100 * MS, launch=facts(samples), end={"global_batch": samples * each.gpus}))


def planned(folder: Path, samples: Mapping[Point, int], *missing: Point, **changes: Any) -> StudyRecords:
    """A study of scripts, read twice: the second time from the cache."""
    study = write_study(folder, [*samples, *missing], **changes)
    for each, of_step in samples.items():
        measured(study, each, of_step)
    load_study(study)
    return load_study(study)


def test_what_the_jobs_found_completes_the_points(tmp_path: Path) -> None:
    records = planned(tmp_path / "s", {script(1): 8, script(2): 8}, script(4))
    assert [run.state for run in records.runs] == ["counts", "counts", "missing"]
    found = records.runs[0].point
    assert found is not None
    assert (found.workload.model, found.workload.precision, found.workload.batch_per_gpu) == ("train:Net", "bf16", 8)
    assert found.label == records.runs[0].label == script(1).label
    scaling = scaling_frame(runs_frame(records), records.points, records.hold)
    assert (list(scaling["samples_per_s"]), list(scaling["efficiency_1gpu"])) == ([80.0, 160.0], [1.0, 1.0])
    assert trained(records.runs)["script"] == ["train.py --depth 12"]


@pytest.mark.parametrize(("samples", "hold"), [((8, 8), "batch_per_gpu"), ((16, 8), "global_batch")])
def test_planned_points_are_of_the_series(tmp_path: Path, samples: tuple[int, int], hold: str) -> None:
    """Also one without a run: what is known of the same arguments at another size is known of it."""
    found = planned(tmp_path / "s", dict(zip((script(1), script(2)), samples, strict=True)), script(4), hold=hold)
    (series,) = runs_frame(found)["series"].dropna().unique()
    assert [same_workload(series, each, found.hold) for each in found.points] == [True] * 3


def test_another_argument_is_another_series(tmp_path: Path) -> None:
    found = planned(tmp_path / "s", {script(1): 8, script(1, args={"depth": 6}): 8})
    assert runs_frame(found)["series"].nunique() == 2


def test_samples_that_are_not_the_recorded_ones(tmp_path: Path) -> None:
    """end.json is held against launch.json, as against any point."""
    each = script(2)
    study = write_study(tmp_path / "s", [each])
    write_run(study, each, Recorded(step_ns=100 * MS, launch=facts(8), end={"global_batch": 99}))
    (run,) = load_study(study).runs
    assert run.reason == "end.json: global_batch is 99, and the point's is 16"
