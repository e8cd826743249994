"""Benchmarks of loaders in a report: beside what runs load, and which setting feeds the GPUs."""

from __future__ import annotations

import csv
import dataclasses
import json
from pathlib import Path

import pandas as pd
import pytest

from hpcddp.analysis import analyze
from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.verdicts.findings import find
from hpcddp.core.data_bench_record import DataBenchRecord, StorageRate
from hpcddp.core.point import Data, Layout
from hpcddp.core.records import write_json
from hpcddp.core.run_root import Study
from hpcddp.core.schema import encode
from hpcddp.share.bundle import pack
from hpcddp.share.unbundle import opened_study
from tests.analysis.synthetic import MS, Recorded, point, write_run, write_runs, write_study
from tests.core.test_data_bench_judgement import bench, rate

pytestmark = pytest.mark.usefixtures("undrawn")

IMAGES = Data(name="imagenet", root="/scratch/imagenet")


def benched(**changes: object) -> DataBenchRecord:
    """Of one node with 4 ranks: 2 workers a rank load 1,280 samples/s cold, 4 of them 1,600."""
    pictures = {"decoder": "simplejpeg 1.9", "read_samples_per_s": 9000.0}
    rates = (
        rate(2, 1280.0, decode_samples_per_s=1500.0, **pictures),
        rate(2, 1300.0, cache="warm", decode_samples_per_s=1500.0, **pictures),
        rate(4, 1600.0, decode_samples_per_s=2000.0, **pictures),
        rate(4, 1650.0, cache="warm", decode_samples_per_s=2000.0, **pictures),
    )
    found = bench(*rates, storage=StorageRate(bytes_per_s=9e8, again_bytes_per_s=5e9), hosts=("r001",))
    given = {"layout": Layout(gpus_per_node=4), "data": IMAGES, "cpus_of_ranks": (4,) * 4, **changes}
    return dataclasses.replace(found, **given)  # type: ignore[arg-type]


def study_of(folder: Path, *records: DataBenchRecord) -> Study:
    """Steps of 128 samples: 100 ms with everything, 80 ms without loading, and the loaders alone 105 ms."""
    points = {text: point(1, 4, data=IMAGES, input=text) for text in ("full", "synthetic", "io")}
    study = write_study(folder / "s", list(points.values()))
    for text, step_ms in (("full", 100), ("synthetic", 80), ("io", 105)):
        write_runs(study, points[text], [step_ms * MS])
    for record in records:
        write_json(study.data_bench_file(record.job), encode(record))
    return study


def test_the_newest_stands_beside_the_runs(tmp_path: Path) -> None:
    """A row per setting; runs with `input: io` beside the one they have; which one feeds the GPUs."""
    study = study_of(tmp_path, benched(job="7", unix_ns=5), benched(job="9", unix_ns=3, problems=("nothing",)))
    text = str(analyze(study.folder))
    assert "how fast loaders are (hpcddp bench data)" in text
    rows = list(csv.DictReader((study.folder / "report" / "data_bench.csv").read_text().splitlines()))
    assert [(row["job"], row["workers"], row["cache"], row["limit"]) for row in rows] == [
        ("7", "2", "cold", "loader processes"),
        ("7", "2", "warm", "loader processes"),
        ("7", "4", "cold", "cores"),
        ("7", "4", "warm", "cores"),
    ]
    assert [row["io_samples_per_s"] and round(float(row["io_samples_per_s"])) for row in rows] == [1219, 1219, "", ""]
    assert "imagenet on 1 node x 4: 1,600 samples/s are needed (what runs with input synthetic train)" in " ".join(text.split())
    assert "cold: 4 workers, batch 32, simplejpeg 1.9 will do" in " ".join(text.split())
    assert "How fast loaders are" in (study.folder / "report" / "index.html").read_text()
    plain = json.loads((study.folder / "report" / "report.json").read_text())
    assert [row["samples_per_s"] for row in plain["data_benches"]] == [1280.0, 1300.0, 1600.0, 1650.0]


@pytest.mark.dear
def test_folders_stand_beside_each_other(tmp_path: Path) -> None:
    """The same pictures where two file systems have them; where there is one folder, none is named."""
    slow, fast = (dataclasses.replace(IMAGES, root=root) for root in ("/work/in", "/scratch/in"))
    one = study_of(tmp_path / "one", benched(job="7", data=slow))
    assert "/work/in" not in analyze(one.folder)[0].text
    two = study_of(tmp_path / "two", benched(job="7", data=slow), benched(job="9", data=fast, problems=("nothing",)))
    text = " ".join(analyze(two.folder)[0].text.split())
    assert "imagenet in /work/in on 1 node x 4: 1,600 samples/s are needed" in text
    assert "bench data of imagenet in /scratch/in on 1 node x 4, job 9: nothing" in text
    rows = list(csv.DictReader((two.folder / "report" / "data_bench.csv").read_text().splitlines()))
    assert [(row["job"], row["root"]) for row in rows] == [("9", "/scratch/in")] * 4 + [("7", "/work/in")] * 4


def loading_runs(folder: Path, *records: DataBenchRecord, **layout: int) -> list[float | None]:
    """What stands beside each setting, of runs with `input: io` where Pillow decoded, and then simplejpeg."""
    loading = point(1, 4, data=IMAGES, input="io", **layout)
    study = write_study(folder / "s", [loading])
    for run, (decoder, step_ms) in enumerate((("pillow 12.0", 200), ("simplejpeg 1.9", 100)), start=1):
        launch = {"data": {"name": "imagenet", "samples": 5000, "decoder": decoder}}
        write_run(study, loading, Recorded(step_ns=step_ms * MS, env_id=decoder, job=str(run), launch=launch), run)
    for record in records:
        write_json(study.data_bench_file(record.job), encode(record))
    rates = find(load_study(study)).data_benches["io_samples_per_s"]
    return [None if pd.isna(each) else round(float(each)) for each in rates]


def test_runs_stand_beside_the_decoder_that_they_had(tmp_path: Path) -> None:
    """`auto` took the one, and where it was installed the other."""
    rates = (rate(2, 1280.0, decoder="simplejpeg 1.9"), rate(2, 500.0, decoder="pillow 12.0"))
    assert loading_runs(tmp_path, benched(rates=rates)) == [1280, 640]


def test_runs_stand_beside_the_cores_that_they_had(tmp_path: Path) -> None:
    """Two cores of a rank do not load what eight do."""
    rates = (rate(2, 1280.0, decoder="simplejpeg 1.9"),)
    by_cores = (benched(job=str(n), rates=rates, layout=Layout(gpus_per_node=4, physical_cores_per_rank=n)) for n in (2, 8))
    assert loading_runs(tmp_path, *by_cores, physical_cores_per_rank=8) == [None, 1280]


def test_a_damaged_one_is_a_note(tmp_path: Path) -> None:
    """And a study without any has no table of them."""
    study = study_of(tmp_path)
    study.data_bench_file("3").parent.mkdir(parents=True)
    study.data_bench_file("3").write_text('{"job": 3}')
    text = str(analyze(study.folder))
    assert "bench-data/3/bench-data.json cannot be read" in " ".join(text.split())
    assert not (study.folder / "report" / "data_bench.csv").exists()


def test_it_travels_in_a_bundle(tmp_path: Path) -> None:
    """Its hosts under other names where the study's are."""
    study = study_of(tmp_path, benched())
    pack(study, tmp_path / "s.tar.gz", pseudonymise=True)
    with opened_study(tmp_path / "s.tar.gz") as unpacked:
        text = Study(unpacked).data_bench_file("7").read_text()
    assert json.loads(text)["hosts"] != ["r001"]
    assert "/scratch" not in text
