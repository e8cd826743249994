"""Which limit of the loaders is named for a step that waits for data, and which change."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hpcddp.analysis.report.tables import study_tables
from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.verdicts.context import Verdict
from hpcddp.analysis.verdicts.findings import Findings, find
from hpcddp.core.attempt_records import LoaderTimes
from hpcddp.core.point import Data, Point
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
    """With their rates, which the evidence has, too; the sentence names it."""
    findings = of_loaders(tmp_path, {2: 400}, {1: 200, 2: 400, 4: 900})
    verdict, fastest = verdict_of(findings), point(1, 1, loader_workers_per_rank=4, input="io", **IMAGENET)
    assert "; the loader alone reaches 400 samples/s, the fastest loader (workers 4) 900 samples/s" in verdict.evidence
    assert verdict.numbers["fastest_loader"] == pytest.approx(900, rel=0.01)
    gave = "loaders by themselves give 900 samples/s instead of 400"
    assert verdict.advice == f"`--set workload.loader_workers_per_rank=4`: {gave} (runs r1-r3 of {fastest.label})"
    (sentence,) = [each for each in findings.sentences if each.startswith("Fastest loader")]
    assert sentence.startswith("Fastest loader: workers 4 loads 900 samples/s, 2.2")
    assert " as fast as workers 2 (the default)" in sentence


def test_a_tenth_more_is_what_loaders_must_give_to_be_advised(tmp_path: Path) -> None:
    """Two measurements of equal settings differ by as much."""
    assert "workers_per_rank=4" not in verdict_of(of_loaders(tmp_path, {2: 400}, {2: 400, 4: 430})).advice


def test_no_value_is_advised_that_trains_slower(tmp_path: Path) -> None:
    """Loaders by themselves are fastest without processes; training is not."""
    findings = of_loaders(tmp_path, {0: 200, 2: 400}, {0: 900, 2: 500})
    of_two = [each for each in findings.verdicts if each.name == "input-bound" and "workers 2" in each.where]
    assert [each.advice for each in of_two] == ["keep workers 2, the fastest of the values measured at 1x1, input full"]


def test_rates_of_loading_are_not_contradicted(tmp_path: Path) -> None:
    """Two processes on one core, and none is eight times as fast as one: one is not advised, nor `auto`."""
    findings = of_loaders(tmp_path, {}, {0: 856, 1: 100, 2: 90}, cores=1, runs=1)
    assert findings.sentences[0].startswith("Fastest loader in these runs: workers 0 loads 856 samples/s, 9.51 times as fast as")
    of_one, of_two = sorted((v for v in findings.verdicts if v.name == "CPU starvation"), key=lambda v: v.where)
    assert of_two.advice.startswith(
        "`--set workload.loader_workers_per_rank=0`: at 1x1 it is 9.51 times as fast as 2 (run r1 of "
    )
    assert of_two.advice.endswith(", with one run each. Set `repeat: 6` to see whether this is more than chance")
    assert "per_rank=0" in of_one.advice
    assert not [note for note in findings.notes if "loader workers on" in note]


def test_what_loads_at_one_size_has_no_efficiency(tmp_path: Path) -> None:
    """It would be that of a size against itself: 1.00 times, 100 %."""
    tables = study_tables(of_loaders(tmp_path, {}, {2: 400}))
    assert [column.head for column in tables["scaling"].columns if column.head in ("speedup", "efficiency")] == []
    assert tables["scaling"].title == "Throughput"
