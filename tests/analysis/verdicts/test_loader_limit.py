"""Which limit of the loaders is named for a step that waits for data, and which change."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.verdicts.context import Verdict
from hpcddp.analysis.verdicts.findings import Findings, find
from hpcddp.core.data_bench_record import DataBenchRecord, LoaderRate
from hpcddp.core.loader_record import LoaderTimes
from hpcddp.core.point import Data, Layout
from hpcddp.core.records import write_json
from hpcddp.core.schema import encode
from tests.analysis.synthetic import MS, Recorded, point, write_run, write_study

PROFILE = {"node_types": {"ac922": {"physical_cores": 32, "smt": 4, "gpus": 4}}, "default_node_type": "ac922"}
WAITS = {"data_wait": 0.5, "forward": 0.2, "backward": 0.3}
RATE = 320.0
"""Samples/s of 32 in 100 ms."""


def times(workers: int = 8, rate: float = 330.0, **parts_s: Any) -> LoaderTimes:
    """Of a hundred batches in 80 s of processes, all of it computing unless said otherwise."""
    parts: dict[str, Any] = {"read_s": 80.0, "compute_s": 80.0, "processor_wait_s": 0.0, **parts_s}
    return LoaderTimes(workers=workers, samples_per_s=rate, samples=3200, batches=100, **parts)


def study_of(
    folder: Path,
    loader: LoaderTimes,
    *,
    loading: tuple[float, LoaderTimes] | None = None,
    cpus: int = 32,
    decoder: str | None = None,
    **changes: Any,
) -> Findings:
    """A point whose step of 100 ms waits for half its time; `loading`: the step in ms with `input: io`, and its loaders."""
    full = point(1, 1, loader_workers_per_rank=loader.workers, **changes)
    points: dict[Any, tuple[float, LoaderTimes, Mapping[str, float]]] = {full: (100, loader, WAITS)}
    if loading:
        only = point(1, 1, loader_workers_per_rank=loader.workers, input="io", **changes)
        points[only] = (*loading, {"data_wait": 0.95})
    study = write_study(folder / "s", list(points))
    data = {"data": {"name": full.workload.data.name, "samples": 50_000, "decoder": decoder}}
    for each, (step_ms, found, shares) in points.items():
        launch = {"profile": PROFILE, "cpus_of_ranks": [cpus], **data}
        recorded = Recorded(step_ns=round(step_ms * MS), steps=20, shares=shares, launch=launch, end={"loader": encode(found)})
        write_run(study, each, recorded)
    return find(load_study(study))


def verdict_of(findings: Findings) -> Verdict:
    (verdict,) = [each for each in findings.verdicts if each.name == "input-bound"]
    return verdict


IMAGENET: dict[str, Any] = {"data": Data(name="imagenet")}
CIFAR10: dict[str, Any] = {"data": Data(name="cifar10")}
FULL = 7
"""Loader workers on eight cores of a rank: the rank has one for itself."""


@pytest.mark.parametrize(
    ("loader", "given", "limit", "advice"),
    [
        (times(4), {}, "loader processes", "--set workload.loader_workers_per_rank=7`; 330 samples/s become up to 578"),
        (times(FULL), {"decoder": "pillow 12.0", **IMAGENET}, "decoder", "pip install simplejpeg"),
        (times(FULL, compute_s=50.0, processor_wait_s=30.0), {}, "cores", ""),
        (times(FULL), {"decoder": "simplejpeg 1.9", **IMAGENET}, "cores", ""),
        (times(FULL, compute_s=5.0), IMAGENET, "storage", "hpcddp data pack imagenet"),
        (times(FULL, compute_s=5.0, read_bytes=10**7), IMAGENET, "storage", "hpcddp data pack imagenet"),
        (times(FULL, compute_s=5.0, read_bytes=40_000), IMAGENET, "other waits", "--set workload.loader_workers_per_rank=14"),
        (times(FULL, compute_s=5.0), {}, "other waits", "find what reading a sample waits for"),
        (times(2, hand_over_s=100.0), {}, "hand-over", "--set workload.loader_workers_per_rank=0"),
        (
            times(2, hand_over_s=100.0),
            CIFAR10,
            "hand-over",
            "`--set workload.data.resident=true --set workload.loader_workers_per_rank=0`",
        ),
        (times(4, receive_s=30.0), {}, "hand-over", "--set workload.loader_workers_per_rank=0"),
        (times(0), {}, "loader processes", "--set workload.loader_workers_per_rank=7"),
    ],
    ids=[
        "few processes",
        "slow decoder",
        "few processors",
        "every core has one",
        "files",
        "files that are read",
        "a sleep",
        "without files",
        "passing on",
        "in memory",
        "taking",
        "none",
    ],
)
def test_what_is_named(tmp_path: Path, loader: LoaderTimes, given: dict[str, Any], limit: str, advice: str) -> None:
    """In the verdict's evidence, with what was measured, and in the table; the advice is for that limit."""
    findings = study_of(tmp_path, loader, **given)
    verdict = verdict_of(findings)
    assert f"; the limit: {limit} (" in verdict.evidence
    assert advice in verdict.advice
    assert verdict.advice
    assert findings.loaders["limit"].tolist() == [limit]


def test_more_cores_are_advised_where_the_node_has_them(tmp_path: Path) -> None:
    """Four of a node's eight a rank, three loaders on them that wait for a processor."""
    verdict = verdict_of(study_of(tmp_path, times(3, compute_s=50.0, processor_wait_s=30.0), cpus=16))
    assert "the limit: cores (loaders wait for a free processor 38 % of their time)" in verdict.evidence
    assert "--set layout.physical_cores_per_rank=8 --set workload.loader_workers_per_rank=7" in verdict.advice


def test_the_run_that_only_loads_decides(tmp_path: Path) -> None:
    """Beside training loaders seem to compute; by themselves they wait for files."""
    loading = (98, times(FULL, rate=335.0, compute_s=5.0))
    findings = study_of(tmp_path, times(FULL), loading=loading, **IMAGENET)
    assert "the limit: storage (loaders wait for files 94 % of their time)" in verdict_of(findings).evidence
    assert dict(zip(findings.loaders["input"], findings.loaders["limit"].isna(), strict=True)) == {"full": False, "io": True}


def test_loaders_that_would_do_by_themselves_lack_what_training_takes(tmp_path: Path) -> None:
    """Alone they give 640 samples/s, beside training 320."""
    verdict = verdict_of(study_of(tmp_path, times(FULL), loading=(50, times(FULL, rate=650.0))))
    assert "the limit: cores (loaders give 640 samples/s by themselves, beside training 320)" in verdict.evidence


def test_passing_on_comes_before_what_training_takes(tmp_path: Path) -> None:
    """Small batches: by themselves loaders give three times as much, and still mostly pass them on."""
    verdict = verdict_of(study_of(tmp_path, times(1), loading=(30, times(1, rate=1500.0, hand_over_s=160.0))))
    assert "the limit: hand-over (" in verdict.evidence
    assert "--set workload.loader_workers_per_rank=0" in verdict.advice


def test_no_process_is_advised_for_batches_that_are_read_at_once(tmp_path: Path) -> None:
    """A tenth of a millisecond each: passing them on would take longer."""
    verdict = verdict_of(study_of(tmp_path, times(0, read_s=0.01, compute_s=0.01)))
    assert (
        "the limit: hand-over (a rank reads a batch in 100 µs, and a process would need longer to pass it on)" in verdict.evidence
    )
    assert "workload.batch_per_gpu" in verdict.advice
    assert "loader_workers" not in verdict.advice


def test_nothing_is_named_where_loaders_could_give_more(tmp_path: Path) -> None:
    """Twice what is trained: it is not their rate that the step waits for."""
    findings = study_of(tmp_path, times(FULL, rate=2 * RATE))
    assert "the limit" not in verdict_of(findings).evidence
    assert findings.loaders["limit"].isna().all()


def test_nothing_is_named_where_the_kernel_does_not_say_for_what_loaders_wait(tmp_path: Path) -> None:
    """For a processor, or for files: only that they hardly compute is known."""
    unknown = dataclasses.replace(times(FULL, compute_s=5.0), processor_wait_s=None)
    assert "the limit" not in verdict_of(study_of(tmp_path, unknown)).evidence


def test_records_without_times_name_none(tmp_path: Path) -> None:
    """Those of before loaders were timed."""
    full = point(1, 1, loader_workers_per_rank=FULL)
    study = write_study(tmp_path / "s", [full])
    write_run(study, full, Recorded(step_ns=100 * MS, steps=20, shares=WAITS, launch={"profile": PROFILE, "cpus_of_ranks": [32]}))
    findings = find(load_study(study))
    assert "the limit" not in verdict_of(findings).evidence
    assert not len(findings.loaders)


def test_data_on_the_device_are_advised_no_loaders(tmp_path: Path) -> None:
    """Where they are waited for, their batches are gathered too often; more processes would be refused."""
    resident = point(1, 1, data=Data(name="cifar10", resident=True), loader_workers_per_rank=0)
    study = write_study(tmp_path / "s", [resident])
    launch = {"profile": PROFILE, "cpus_of_ranks": [32]}
    write_run(study, resident, Recorded(step_ns=100 * MS, steps=20, shares=WAITS, launch=launch))
    advice = verdict_of(find(load_study(study))).advice
    assert "`--set workload.batch_per_gpu=64` needs fewer of them" in advice
    assert "loader" not in advice


def test_more_workers_than_cpus_are_noted(tmp_path: Path) -> None:
    """With the numbers and what takes as many as there is room for; not where each has one."""
    planned = study_of(tmp_path / "a", times(12), cpus=8, physical_cores_per_rank=2)
    (note,) = [note for note in planned.notes if "loader workers on" in note]
    assert (
        "has 12 loader workers on 8 CPUs, which reading and training share: `--set workload.loader_workers_per_rank=auto`" in note
    )
    assert not [note for note in study_of(tmp_path / "b", times(8), cpus=8).notes if "loader workers on" in note]


@pytest.mark.parametrize("planned", [None, 16], ids=["on this machine", "more than the job gave"])
def test_auto_is_not_advised_where_it_would_not_help(tmp_path: Path, planned: int | None) -> None:
    """It is refused where a sweep does not know the cores, and takes too many where the rank has fewer than it was to have."""
    notes = study_of(tmp_path, times(12), cpus=8, physical_cores_per_rank=planned).notes
    (note,) = [note for note in notes if "loader workers on 8 CPUs" in note]
    assert note.endswith("`--set workload.loader_workers_per_rank=1`")


def test_what_was_not_read_ahead_is_noted(tmp_path: Path) -> None:
    """In the words of the run."""
    notes = study_of(tmp_path, times(prefetch_cut="2 batches would take much: each reads 1 ahead")).notes
    assert [note for note in notes if note.endswith(": 2 batches would take much: each reads 1 ahead")]


def test_one_run_stands_for_others(tmp_path: Path) -> None:
    """Named, with the number of those that have the same."""
    full = point(1, 1, loader_workers_per_rank=12)
    study = write_study(tmp_path / "s", [full], repeat=3)
    end = {"loader": encode(times(12, prefetch_cut="each reads 1 ahead"))}
    for run in (1, 2, 3):
        launch = {"profile": PROFILE, "cpus_of_ranks": [8]}
        write_run(study, full, Recorded(step_ns=100 * MS, steps=20, job=str(run), launch=launch, end=end), run)
    notes = find(load_study(study)).notes
    assert [note for note in notes if note.endswith(" and 2 more runs: each reads 1 ahead")]
    assert [note for note in notes if ", and of 2 more runs, has 12 loader workers on 8 CPUs" in note]


def benchmark(*rates: LoaderRate) -> DataBenchRecord:
    """Of ImageNet on one GPU with 8 CPUs."""
    return DataBenchRecord(
        job="77",
        unix_ns=1,
        took_s=60.0,
        cluster="marconi100",
        layout=Layout(),
        device="cuda",
        hosts=("r000",),
        cpus_of_ranks=(8,),
        model="resnet18",
        precision="fp32",
        data=Data(name="imagenet"),
        samples=50_000,
        bytes_per_sample=1e5,
        rates=rates,
    )


def gave(workers: int, samples_per_s: float, **changes: Any) -> LoaderRate:
    """With pictures in memory decoded as fast as that, and read ten times as fast."""
    given: dict[str, Any] = {"batch_per_gpu": 32, "decoder": "pillow 12.0", "cache": "warm", "samples": 1000, **changes}
    given |= {"read_samples_per_s": 10 * samples_per_s, "decode_samples_per_s": 1.1 * samples_per_s}
    return LoaderRate(loader_workers_per_rank=workers, samples_per_s=samples_per_s, **given)


def with_benchmark(folder: Path, loader: LoaderTimes | None, *rates: LoaderRate) -> Findings:
    """A point with four workers and Pillow, and the benchmark's record beside it."""
    full = point(1, 1, loader_workers_per_rank=4, **IMAGENET)
    study = write_study(folder / "s", [full])
    data = {"data": {"name": "imagenet", "samples": 50_000, "decoder": "pillow 12.0"}}
    launch = {"profile": PROFILE, "cpus_of_ranks": [32], **data}
    end = {"loader": encode(loader)} if loader else {}
    write_run(study, full, Recorded(step_ns=100 * MS, steps=20, shares=WAITS, launch=launch, end=end))
    write_json(study.data_bench_file("77"), encode(benchmark(*rates)))
    return find(load_study(study))


def test_the_advice_is_what_a_benchmark_measured(tmp_path: Path) -> None:
    """The one key that gives most, cold or warm as the runs; not what gives less than a tenth more, nor two keys at once."""
    faster = gave(4, 500.0, decoder="simplejpeg 1.9")
    rates = (gave(4, 330.0), gave(7, 350.0), faster, gave(7, 900.0, decoder="simplejpeg 1.9"), gave(4, 90.0, cache="cold"))
    advice = verdict_of(with_benchmark(tmp_path, times(4), *rates)).advice
    assert advice == "`--set workload.data.decoder=simplejpeg`: `hpcddp bench data` (job 77) gave 500 samples/s instead of 330"


def test_without_times_of_loaders_a_benchmark_names_the_limit(tmp_path: Path) -> None:
    """Four processes that decode, on eight CPUs."""
    verdict = verdict_of(with_benchmark(tmp_path, None, gave(4, 330.0), gave(7, 520.0)))
    assert "the limit: loader processes (by `hpcddp bench data`, job 77)" in verdict.evidence
    assert verdict.advice.startswith(
        "`--set workload.loader_workers_per_rank=7`: `hpcddp bench data` (job 77) gave 520 samples/s"
    )
