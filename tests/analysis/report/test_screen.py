"""The first screen of `hpcddp analyze`: 24 lines of 80 columns, the prompt among them, whatever the study."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from hpcddp.analysis.report.answer import answer_of
from hpcddp.analysis.report.screen import first_screen
from hpcddp.analysis.report.tables import study_tables
from hpcddp.analysis.study.comm_bench import OPS
from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.util.files import Failure
from hpcddp.analysis.verdicts.findings import Findings, find
from hpcddp.cluster.profile_file import load_profile
from hpcddp.core.point import comm_point
from hpcddp.core.run_root import Study
from hpcddp.sweep.expand import expand
from hpcddp.sweep.file import read_sweep
from tests.analysis.study.test_comm_bench import operation, write_benchmark
from tests.analysis.synthetic import FAILED, MS, Recorded, point, write_measured, write_run, write_study

JOBS = Path(__file__).parents[3] / "jobs"
REPORT = Path("jobs/s/report")


def screen(found: Findings, *failures: Failure) -> list[str]:
    found.failures.extend(failures)
    table = study_tables(found)["collectives"] if found.shown.empty else None
    lines = first_screen(found, answer_of(found, Path("jobs/s")), table, REPORT).splitlines()
    assert len(lines) < 24
    assert max(map(len, lines)) <= 80
    assert lines[-1] == f"more: --full; {REPORT}/index.html"
    return lines


@pytest.mark.dear
@pytest.mark.parametrize("file", sorted(JOBS.glob("*.yaml")), ids=lambda file: file.stem)
def test_a_study_of_every_shipped_sweep_fits(tmp_path: Path, file: Path) -> None:
    """Each point once. All sizes of the first series are there, and rows that are not are counted."""
    source = read_sweep(file)
    points = [each.point for each in expand(source, load_profile(str(source.sweep.cluster)))]
    study = write_measured(tmp_path / file.stem, points, steps=3)
    found = find(load_study(study))
    lines, shown = screen(found), found.shown
    assert [line.split()[0] for line in lines[-4:-1]] == ["WHY", "NEXT", "TRUST"]
    rows = [line for line in lines if re.match(r" +[\d,]+ .* [\d,.]+ ", line)]
    left = [int(line.split()[0]) for line in lines if line.endswith(" more rows: --full")]
    assert len(rows) + sum(left) == len(shown)
    assert len(rows) >= (shown["series"] == shown["series"].iloc[0]).sum()


def benchmarks(folder: Path) -> Study:
    benches = [comm_point(point(nodes, 4)) for nodes in (1, 2, 3, 4, 5, 6)]
    study = write_study(folder, benches)
    for bench in benches:
        write_benchmark(study, bench, {op: operation(op, bench.ranks, 20e-6, 1e10) for op in OPS})
    return study


def loading(workers: int) -> Callable[[Path], Study]:
    return lambda folder: write_measured(
        folder, [point(1, 2, input="io", loader_workers_per_rank=n) for n in range(workers)], range(90, 93)
    )


LONG = "my_package.models_of_a_very_long_name:" + "deep_" * 20 + "resnet"

ODD: Mapping[str, tuple[Callable[[Path], Study], tuple[str, ...]]] = {
    "no runs": (lambda folder: write_study(folder, [point(1, 1)]), ("NEXT    hpcddp status jobs/s", "no run of 1 has finished")),
    "all rejected": (
        lambda folder: write_measured(folder, [point(1, 1), point(1, 2)], gates=FAILED),
        ("NOTE    2 runs rejected: check `equal steps`: rank 1 made 4 of 6 steps", "TRUST   0 of 2 runs pass"),
    ),
    "no baseline": (
        lambda folder: write_measured(folder, [point(2, 4), point(4, 4)]),
        ("GPUs  nodes  samples/s\n",),
    ),
    "one point": (lambda folder: write_measured(folder, [point(1, 1)]), ("1      1        320",)),
    "one loader": (loading(1), ("GPUs  nodes  samples/s\n",)),
    "loaders": (loading(9), ("effect of workers on 2 GPUs", "workers  samples/s  of the fastest")),
    "many sizes": (
        lambda folder: write_measured(folder, [point(nodes, 1) for nodes in range(1, 41)], steps=3),
        ("  1      1 ", "  40     40 ", "24 more rows: --full"),
    ),
    "many loaders": (loading(25), ("more rows: --full",)),
    "benchmarks": (benchmarks, ("all-reduce", "more rows: --full")),
    "long names": (
        lambda folder: write_measured(
            folder.parent / ("study-" * 20), [point(n, 1, model=f"{LONG}{i}") for n in (1, 2) for i in (1, 2)], gpu="V\x1b[2J100"
        ),
        ("V\\x1b[2J100",),
    ),
    "many keys": (
        lambda folder: write_measured(
            folder, [point(1, 1, model=f"{LONG}{i}", precision=p) for i in (1, 2) for p in ("fp16", "bf16", "fp32")]
        ),
        ("of the fastest",),
    ),
}


@pytest.mark.parametrize("study", ODD)
def test_odd_studies_fit_and_say_what_matters(tmp_path: Path, study: str) -> None:
    make, words = ODD[study]
    text = "\n".join(screen(find(load_study(make(tmp_path / "s")))))
    for each in words:
        assert each in text


def test_why_runs_were_rejected_is_on_it(tmp_path: Path) -> None:
    study = write_measured(tmp_path / "s", [point(1, 1), point(1, 2)], [100, 101])
    write_run(study, point(1, 2), Recorded(step_ns=MS, gates=FAILED, job="200"), 2)
    *_, trust, note, _ = screen(find(load_study(study)))
    assert trust.startswith("TRUST   3 of 4 runs pass; 1 to 2 runs each: no spread")
    assert note == "NOTE    1 run rejected: check `equal steps`: rank 1 made 4 of 6 steps"


def test_why_a_run_is_missing_is_on_it(tmp_path: Path) -> None:
    """What stopped it comes before what has not begun."""
    study = write_measured(tmp_path / "s", [point(1, 1), point(1, 2), point(1, 4)], [100, 101])
    for each in (point(1, 2), point(1, 4)):
        shutil.rmtree(study.run_dir(each.label, 2))
    write_run(study, point(1, 4), Recorded(step_ns=MS, state="failed", reason="CUDA out of memory", job="300"), 2)
    assert screen(find(load_study(study)))[-2] == "MISSING 1 run: attempt 300.0 failed: CUDA out of memory"


def test_what_failed_is_on_it(tmp_path: Path) -> None:
    study = write_measured(tmp_path / "s", [point(1, 1), point(1, 2)])
    lines = screen(
        find(load_study(study)), Failure("scaling.csv", "No space left on device; " * 9), Failure("runs.csv", "No space left")
    )
    assert lines[-2] == "FAILED  2 parts: scaling.csv: No space left on device; No space left on ..."


def test_a_part_is_not_cut_within_a_command(tmp_path: Path) -> None:
    """Of a path with spaces that is longer than a line."""
    study = write_study(tmp_path / "s", [point(1, 1)])
    folder, found = Path("a folder" * 20), find(load_study(study))
    assert f"NEXT    hpcddp status '{folder}'" in first_screen(found, answer_of(found, folder), None, None).splitlines()
