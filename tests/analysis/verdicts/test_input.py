"""Steps that wait for data: which limit of the loaders is named, and which change."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from hpcddp.analysis.report.tables import study_tables
from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.verdicts.context import Verdict
from hpcddp.analysis.verdicts.findings import Findings, find
from hpcddp.analysis.verdicts.input import IN_WORDS, LoaderLimit
from hpcddp.analysis.verdicts.verdicts import verdict_lines
from hpcddp.core.attempt_records import LoaderTimes
from hpcddp.core.point import Data, Point
from hpcddp.core.schema import encode
from tests.analysis.synthetic import MS, Recorded, point, write_run, write_runs, write_study
from tests.analysis.verdict_studies import PROFILE, STARVED, Model, measured, write

WAITS = {"data_wait": 0.5, "forward": 0.2, "backward": 0.3}
RATE = 320.0
"""Samples/s of 32 in 100 ms."""


def times(workers: int = 8, rate: float = 330.0, **parts_s: Any) -> LoaderTimes:
    """Of a hundred batches in 80 s of processes, all of it computing unless said otherwise."""
    parts: dict[str, Any] = {"read_s": 80.0, "compute_s": 80.0, "processor_wait_s": 0.0, **parts_s}
    return LoaderTimes(workers=workers, samples_per_s=rate, samples=3200, batches=100, **parts)


def study_of(
    folder: Path,
    loader: LoaderTimes | None,
    *,
    loading: tuple[float, LoaderTimes] | None = None,
    cpus: int = 32,
    decoder: str | None = None,
    **changes: Any,
) -> Findings:
    """A point whose step of 100 ms waits for half its time; `loading`: the step in ms with `input: io`, and its loaders."""
    workers = loader.workers if loader else FULL
    full = point(1, 1, loader_workers_per_rank=workers, **changes)
    points: dict[Any, tuple[float, LoaderTimes | None, Mapping[str, float]]] = {full: (100, loader, WAITS)}
    if loading:
        points[point(1, 1, loader_workers_per_rank=workers, input="io", **changes)] = (*loading, {"data_wait": 0.95})
    study = write_study(folder / "s", list(points))
    data = {"data": {"name": full.workload.data.name, "samples": 50_000, "decoder": decoder}}
    for each, (step_ms, found, shares) in points.items():
        launch = {"profile": PROFILE, "cpus_of_ranks": [cpus], **data}
        end = {"loader": encode(found)} if found else {}
        write_run(study, each, Recorded(step_ns=round(step_ms * MS), steps=20, shares=shares, launch=launch, end=end))
    return find(load_study(study))


def verdict_of(findings: Findings) -> Verdict:
    (verdict,) = [each for each in findings.verdicts if each.name == "input-bound"]
    return verdict


IMAGENET: dict[str, Any] = {"data": Data(name="imagenet")}
CIFAR10: dict[str, Any] = {"data": Data(name="cifar10")}
FULL = 7
"""Loader workers on eight cores of a rank: the rank has one for itself."""


LIMITS: Sequence[tuple[LoaderTimes, dict[str, Any], LoaderLimit, str]] = (
    (times(4), {}, "loader processes", "--set workload.loader_workers_per_rank=7`. The loaders' rate would rise"),
    (times(FULL), {"decoder": "pillow 12.0", **IMAGENET}, "decoder", "pip install simplejpeg"),
    (times(FULL, compute_s=50.0, processor_wait_s=30.0), {}, "cores", ""),
    (times(FULL), {"decoder": "simplejpeg 1.9", **IMAGENET}, "cores", ""),
    (times(FULL, compute_s=5.0), IMAGENET, "storage", "hpcddp data pack imagenet"),
    (times(FULL, compute_s=5.0, read_bytes=10**7), IMAGENET, "storage", "hpcddp data pack imagenet"),
    (times(FULL, compute_s=5.0, read_bytes=40_000), IMAGENET, "other waits", "--set workload.loader_workers_per_rank=14"),
    (times(FULL, compute_s=5.0), {}, "other waits", "Find what reading a sample waits for"),
    (times(2, hand_over_s=100.0), {}, "hand-over", "--set workload.loader_workers_per_rank=0"),
    (times(2, hand_over_s=100.0), CIFAR10, "hand-over", "--set workload.data.resident=true --set workload.loader_"),
    (times(4, receive_s=30.0), {}, "hand-over", "--set workload.loader_workers_per_rank=0"),
    (times(0), {}, "loader processes", "--set workload.loader_workers_per_rank=7"),
)
"""What loaders did, the study, the limit, and a part of the advice."""


@pytest.mark.parametrize(("loader", "given", "limit", "advice"), LIMITS)
def test_what_is_named(tmp_path: Path, loader: LoaderTimes, given: dict[str, Any], limit: LoaderLimit, advice: str) -> None:
    findings = study_of(tmp_path, loader, **given)
    verdict = verdict_of(findings)
    assert f"The limit is {IN_WORDS[limit]}. " in verdict.evidence
    assert advice in verdict.advice
    assert verdict.advice
    assert findings.loaders["limit"].tolist() == [limit]


def test_more_cores_are_advised_where_the_node_has_them(tmp_path: Path) -> None:
    verdict = verdict_of(study_of(tmp_path, times(3, compute_s=50.0, processor_wait_s=30.0), cpus=16))
    assert "number of cores. Loader processes spend 38 % of their time waiting for a free CPU" in verdict.evidence
    assert "--set layout.physical_cores_per_rank=8 --set workload.loader_workers_per_rank=7" in verdict.advice


def test_the_run_that_only_loads_decides(tmp_path: Path) -> None:
    """Beside training loaders seem to compute; by themselves they wait for files."""
    loading = (98, times(FULL, rate=335.0, compute_s=5.0))
    findings = study_of(tmp_path, times(FULL), loading=loading, **IMAGENET)
    assert "The limit is storage. Loader processes spend 94 % of their time waiting for files" in verdict_of(findings).evidence
    assert dict(zip(findings.loaders["input"], findings.loaders["limit"].isna(), strict=True)) == {"full": False, "io": True}


def test_loaders_that_would_do_by_themselves_lack_what_training_takes(tmp_path: Path) -> None:
    verdict = verdict_of(study_of(tmp_path, times(FULL), loading=(50, times(FULL, rate=650.0))))
    assert "number of cores. Loaders reach 640 samples/s alone and 320 samples/s while the model trains." in verdict.evidence


def test_passing_on_comes_before_what_training_takes(tmp_path: Path) -> None:
    """Small batches: by themselves loaders give three times as much, and still mostly pass them on."""
    verdict = verdict_of(study_of(tmp_path, times(1), loading=(30, times(1, rate=1500.0, hand_over_s=160.0))))
    assert "The limit is batch transfer." in verdict.evidence
    assert "--set workload.loader_workers_per_rank=0" in verdict.advice


def test_no_process_is_advised_for_batches_that_are_read_at_once(tmp_path: Path) -> None:
    verdict = verdict_of(study_of(tmp_path, times(0, read_s=0.01, compute_s=0.01)))
    assert "The limit is batch transfer. A rank reads a batch in 100 µs" in verdict.evidence
    assert "workload.batch_per_gpu" in verdict.advice
    assert "loader_workers" not in verdict.advice


@pytest.mark.parametrize(
    "loader",
    [times(FULL, rate=2 * RATE), times(FULL, compute_s=5.0, processor_wait_s=None), None],
    ids=["loaders could give more", "the kernel does not say for what they wait", "loaders were not timed"],
)
def test_nothing_is_named_where_it_is_not_known(tmp_path: Path, loader: LoaderTimes | None) -> None:
    findings = study_of(tmp_path, loader)
    assert "The limit" not in verdict_of(findings).evidence
    assert findings.loaders["limit"].isna().tolist() == ([True] if loader else [])


def test_data_on_the_device_are_advised_no_loaders(tmp_path: Path) -> None:
    """Where they are waited for, their batches are gathered too often; more processes would be refused."""
    advice = verdict_of(study_of(tmp_path, times(0), data=Data(name="cifar10", resident=True))).advice
    assert "`--set workload.batch_per_gpu=64`" in advice
    assert "loader" not in advice


@pytest.mark.parametrize(
    ("planned", "workers", "setting"),
    [(2, 12, "auto`, as its cores allow."), (None, 12, "1`."), (16, 12, "1`."), (2, 8, "")],
)
def test_more_workers_than_cpus_are_noted(tmp_path: Path, planned: int | None, workers: int, setting: str) -> None:
    """`auto` is refused where a sweep does not know the cores, and takes too many where the rank has fewer than it should."""
    notes = study_of(tmp_path, times(workers), cpus=8, physical_cores_per_rank=planned).notes
    label = point(1, 1, loader_workers_per_rank=workers, physical_cores_per_rank=planned).label
    begin = f"A rank of r1 of {label} has 12 loader workers on 8 CPUs, which reading and training share. Use fewer with `--set "
    expected = [f"{begin}workload.loader_workers_per_rank={setting}"] if setting else []
    assert [note for note in notes if "loader workers on" in note] == expected


def test_one_run_stands_for_others(tmp_path: Path) -> None:
    full = point(1, 1, loader_workers_per_rank=12)
    study = write_study(tmp_path / "s", [full], repeat=3)
    end = {"loader": encode(times(12, prefetch_cut="each reads 1 ahead"))}
    for run in (1, 2, 3):
        launch = {"profile": PROFILE, "cpus_of_ranks": [8]}
        write_run(study, full, Recorded(step_ns=100 * MS, steps=20, job=str(run), launch=launch, end=end), run)
    notes = find(load_study(study)).notes
    assert [note for note in notes if note.startswith("Each reads 1 ahead (r1 of ") and note.endswith(" for 2 more runs.")]
    assert [note for note in notes if "12 loader workers on 8 CPUs" in note and " The same holds for 2 more runs." in note]


def of_loaders(folder: Path, full: Mapping[int, float], io: Mapping[int, float], *, cores: int = 8, runs: int = 3) -> Findings:
    """Loader workers -> samples/s, of points that train, waiting for half of the step, and of points that only load; a GPU of the
    node has so many cores."""
    rates: dict[Point, tuple[float, float]] = {
        point(1, 1, loader_workers_per_rank=n, **IMAGENET): (rate, 0.5) for n, rate in full.items()
    }
    rates |= {point(1, 1, loader_workers_per_rank=n, input="io", **IMAGENET): (rate, 0.95) for n, rate in io.items()}
    study = write_study(folder / "s", list(rates), runs)
    node = {"physical_cores": 4 * cores, "smt": 1, "gpus": 4}
    launch = {"profile": {"node_types": {"one": node}, "default_node_type": "one"}, "cpus_of_ranks": [cores]}
    for run in range(1, runs + 1):
        for each, (rate, wait) in rates.items():
            step_ns = round(1e9 * each.global_batch / rate) + (run - (1 + runs) // 2) * MS // 100
            shares = {"data_wait": wait, "forward": 0.05}
            write_run(study, each, Recorded(step_ns=step_ns, steps=20, job=str(run), shares=shares, launch=launch), run)
    return find(load_study(study))


def test_the_fastest_of_points_that_load_is_advised(tmp_path: Path) -> None:
    findings = of_loaders(tmp_path, {2: 400}, {1: 200, 2: 400, 4: 900})
    verdict, fastest = verdict_of(findings), point(1, 1, loader_workers_per_rank=4, input="io", **IMAGENET)
    assert "Loaders alone reach 400 samples/s. The fastest loaders (workers 4) reach 900 samples/s." in verdict.evidence
    assert verdict.numbers["fastest_loader"] == pytest.approx(900, rel=0.01)
    reach = f"Loaders alone then reach 900 samples/s instead of 400 (runs r1-r3 of {fastest.label})."
    assert verdict.advice == f"Load with `--set workload.loader_workers_per_rank=4`. {reach}"
    (sentence,) = [each for each in findings.sentences if "loader" in each]
    assert sentence.startswith("Fastest loader: workers 4 with 900 samples/s, 2.2")
    assert " that of workers 2 (the default)" in sentence


def test_a_tenth_more_is_what_loaders_must_give_to_be_advised(tmp_path: Path) -> None:
    assert "workers_per_rank=4" not in verdict_of(of_loaders(tmp_path, {2: 400}, {2: 400, 4: 430})).advice


def test_no_value_is_advised_that_trains_slower(tmp_path: Path) -> None:
    findings = of_loaders(tmp_path, {0: 200, 2: 400}, {0: 900, 2: 500})
    of_two = [each for each in findings.verdicts if each.name == "input-bound" and "workers 2" in each.where]
    assert [each.advice for each in of_two] == ["Keep workers 2. It is the fastest of the values measured at 1x1, input full."]


def test_rates_of_loading_are_not_contradicted(tmp_path: Path) -> None:
    findings = of_loaders(tmp_path, {}, {0: 856, 1: 100, 2: 90}, cores=1, runs=1)
    assert findings.sentences[0].startswith("Fastest loader in these runs: workers 0 with 856 samples/s, 9.51 times ")
    of_one, of_two = sorted((v for v in findings.verdicts if v.name == "CPU starvation"), key=lambda v: v.where)
    assert of_two.advice.startswith(
        "Use `--set workload.loader_workers_per_rank=0`. At 1x1, throughput is 9.51 times that with 2"
    )
    assert of_two.advice.endswith(" Each value has one run. Set `repeat: 6` to see whether this is more than chance.")
    assert "per_rank=0" in of_one.advice
    assert not [note for note in findings.notes if "loader workers on" in note]


def test_what_loads_at_one_size_has_no_efficiency(tmp_path: Path) -> None:
    tables = study_tables(of_loaders(tmp_path, {}, {2: 400}))
    assert [column.head for column in tables["scaling"].columns if column.head in ("speedup", "efficiency")] == []
    assert tables["scaling"].title == "Throughput"


def of_workers(folder: Path, runs: int) -> Verdict:
    """Of a study with one, four and eight workers: a step of 400, 110 and 108 ms, of which the first waits for data."""
    points = {point(1, 4, loader_workers_per_rank=workers): ms for workers, ms in ((1, 400), (4, 110), (8, 108))}
    study = write_study(folder, list(points), runs)
    for each, ms in points.items():
        shares = {"data_wait": 0.6 if ms == 400 else 0.02, "forward": 0.1, "backward": 0.2}
        write_runs(study, each, [ms * MS + run * MS // 4 for run in range(runs)], shares=shares, steps=20)
    return verdict_of(find(load_study(study)))


def test_the_value_that_was_measured_is_the_advice(tmp_path: Path) -> None:
    """Four, where more stops paying, not eight; with the gain, its interval, and its runs. Of one run each it is no advice."""
    verdict = of_workers(tmp_path / "six", 6)
    assert verdict.advice.startswith("Use `--set workload.loader_workers_per_rank=4`. At 1x4, throughput is 3.6")
    assert " times (95 % 3." in verdict.advice
    assert f"(runs r1-r6 of {point(1, 4, loader_workers_per_rank=4).label})" in verdict.advice
    verdict = of_workers(tmp_path / "one", 1)
    assert "loader_workers_per_rank=4" not in verdict.advice


def test_a_loader_that_was_timed_by_itself_is_not_timed_again(tmp_path: Path) -> None:
    points = {point(1, 4, input=given): share for given, share in (("full", 0.4), ("io", 0.1))}
    study = write_study(tmp_path / "s", list(points))
    for each, share in points.items():
        write_runs(study, each, [100 * MS], shares={"data_wait": share, "forward": 0.1}, steps=20)
    verdict = verdict_of(find(load_study(study)))
    assert "Loaders alone reach" in verdict.evidence
    assert "`hpcddp init loaders`" in verdict.advice
    assert "measure.input" not in verdict.advice


def verdicts(model: Model, folder: Path) -> dict[str, Verdict]:
    return {verdict.name: verdict for verdict in find(load_study(write(model, folder / "s"))).verdicts}


def test_the_marconi100_request_is_told_as_it_was(tmp_path: Path) -> None:
    found = verdicts(STARVED, tmp_path)
    starved, bound = found["CPU starvation"], found["input-bound"]
    assert starved.evidence.startswith(
        "A rank has 2 physical cores (8 Slurm CPUs, 4 per core) and needs 17. Its CPUs are busy 96 %"
    )
    assert starved.advice == bound.advice
    assert bound.advice == "Request 8 physical cores per rank instead of 2 with `--set layout.physical_cores_per_rank=8`."
    assert bound.where == "at every point"
    assert bound.numbers["wait_share_high"] == pytest.approx(0.6, abs=0.01)
    assert "\n".join(verdict_lines([starved, bound])).count("--set") == 1


def of_cores(folder: Path, workers: int, cores_of: Mapping[int, int], busy: float) -> dict[str, Verdict]:
    """Of points that all wait for data; `cores_of`: GPUs -> cores of each rank."""
    points = {point(1, gpus, loader_workers_per_rank=workers): cores for gpus, cores in cores_of.items()}
    study = write_study(folder / "s", list(points))
    node = {"host": "r000", "cpu_busy_share": busy + 0.01, "cpu_job_share": busy, "cpu_foreign_share": 0.01}
    for each, cores in points.items():
        launch, end = {"profile": PROFILE, "cpus_of_ranks": [4 * cores] * each.ranks}, {"telemetry": {"nodes": [node]}}
        write_run(study, each, Recorded(step_ns=80 * MS, steps=20, shares={"data_wait": 0.4}, launch=launch, end=end))
    return {verdict.name: verdict for verdict in find(load_study(study)).verdicts}


def test_waiting_for_data_and_lacking_cores_have_one_advice(tmp_path: Path) -> None:
    """On the full node there are as few cores as workers: no verdict may ask for more of them while the other asks for fewer."""
    found = of_cores(tmp_path, 10, {1: 32, 2: 16, 4: 8}, busy=0.96)
    assert (found["CPU starvation"].where, found["input-bound"].where) == ("at 1x4", "at every point")
    assert found["input-bound"].advice == found["CPU starvation"].advice
    assert found["CPU starvation"].advice.startswith("Use fewer loader workers with `--set workload.loader_workers_per_rank=7`")


def test_workers_are_advised_that_the_widest_point_has_cores_for(tmp_path: Path) -> None:
    bound = of_cores(tmp_path, 2, {1: 32, 4: 8}, busy=0.1)["input-bound"]
    assert bound.advice.startswith("Use more loader workers with `--set workload.loader_workers_per_rank=7`.")


def test_as_many_cores_as_processes_are_no_starvation(tmp_path: Path) -> None:
    """Eight cores with four threads each run 17 processes that leave half of them idle: the loader waits for something else."""
    model = dataclasses.replace(STARVED, cpus_per_rank=32, job_share=0.12, changes={"loader_workers_per_rank": 16})
    assert set(verdicts(model, tmp_path)) == {"input-bound"}


def test_limits_are_those_of_the_points_own_series(tmp_path: Path) -> None:
    """Two numbers of workers train equally fast; only with 4 does a resident batch train faster: only these wait for data."""
    points = {
        point(1, 1, loader_workers_per_rank=workers, input=given): [step_ms]
        for workers, given, step_ms in ((2, "full", 64), (2, "synthetic", 64), (4, "full", 64), (4, "synthetic", 30))
    }
    shares = {"data_wait": 0.5, "forward": 0.5}
    verdict = verdict_of(find(load_study(measured(tmp_path / "s", points, steps=20, shares=shares))))
    assert verdict.where == "at 1x1 (workers 4)"
    assert verdict.numbers["trainer"] == pytest.approx(32 / 0.03)
