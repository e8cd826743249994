"""The typical step of a run, found without reading the others."""

from __future__ import annotations

import errno
import itertools
from pathlib import Path

import pandas as pd
import pytest

from hpcddp.analysis.figures.breakdown import MAX_RANKS, rank_names, shown_ranks, timeline_figure, title
from hpcddp.analysis.runs import timeline
from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.runs.timeline import BucketStep, RankStep, Timeline, lines_of_step
from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.verdicts.findings import MOST_RUNS, find
from tests.analysis.report.test_damaged_folders import quote_totals
from tests.analysis.synthetic import MS, Bucket, Recorded, point, write_run, write_study

PARTS = {"data_wait": 0.1, "forward": 0.3, "backward": 0.4, "comm_exposed": 0.2}


def run_of(folder: Path, recorded: Recorded, **changes: object) -> Run:
    """Of a study of one run on two ranks."""
    where = point(1, 2, **changes)
    study = write_study(folder, [where])
    write_run(study, where, recorded)
    return load_study(study).runs[0]


def timeline_of(folder: Path, recorded: Recorded, **changes: object) -> Timeline:
    found = run_of(folder, recorded, **changes).timeline
    assert found is not None
    return found


def found_in(file: Path, step: int) -> list[bytes]:
    (found,) = lines_of_step([file], step)
    return found


def test_every_step_is_found(tmp_path: Path) -> None:
    file = tmp_path / "f.csv"
    there = set(range(3000)) - {1234}
    lines = {step: [f"{step},{line},{'x' * (step % 70)}\n" for line in range(1 + step % 5)] for step in sorted(there)}
    file.write_text("step,line,more\n" + "".join(itertools.chain(*lines.values())))
    for step in (*range(0, 3000, 7), 1234, 2999, 3000):
        assert b"".join(found_in(file, step)).decode() == "".join(lines.get(step, ()))


def test_it_is_found_wherever_the_file_before_had_it(tmp_path: Path) -> None:
    files = [tmp_path / name for name in "abcde"]
    for file, (first, last) in zip(files, [(0, 2000), (900, 5000), (0, 900), (1, 1), (0, 5000)], strict=True):
        file.write_text("step,more\n" + "".join(f"{step},{'x' * 50}\n" for step in range(first, last)))
    for step in range(0, 2000, 100):
        there = [step < 2000, step >= 900, step < 900, False, True]
        assert [len(found) for found in lines_of_step(files, step)] == [int(each) for each in there]


def test_a_torn_line_ends_the_file(tmp_path: Path) -> None:
    file = tmp_path / "f.csv"
    file.write_text("step\n" + "".join(f"{step},\n" for step in range(2000)) + "20")
    assert found_in(file, 1999) == [b"1999,\n"]
    assert found_in(file, 20) == [b"20,\n"]


def test_a_run_counts_without_its_typical_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start that was not written; numbers in quotes, as a program that wrote rows anew has them; a disk that fails then."""
    runs = [run_of(tmp_path / "starts", Recorded(step_ns=100 * MS, shares=PARTS, starts=False))]
    where = point(1, 2)
    study = write_study(tmp_path / "quotes", [where])
    quote_totals(write_run(study, where, Recorded(step_ns=MS, shares=PARTS)))
    runs += load_study(study).runs

    def fails(files: list[Path], step: int) -> list[bytes]:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(timeline, "lines_of_step", fails)
    runs.append(run_of(tmp_path / "disk", Recorded(step_ns=MS, shares=PARTS)))
    assert [(run.state, run.timeline) for run in runs] == [("counts", None)] * 3


def test_it_is_the_step_nearest_to_the_median(tmp_path: Path) -> None:
    """Of timed steps of 10, 20, ..., 50 ms the third; its parts follow each other."""
    found = timeline_of(tmp_path / "s", Recorded(step_ns=lambda rank, step: max(step, 1) * 10 * MS, shares=PARTS))
    assert found.step == 3
    assert found.aligned
    parts = (("data_wait", 3 * MS), ("forward", 9 * MS), ("backward", 12 * MS), ("comm_exposed", 6 * MS))
    assert found.ranks == (RankStep(0, "r000", 0, parts), RankStep(1, "r001", 0, parts))
    assert found.buckets == ()


def test_all_is_on_rank_0s_clock(tmp_path: Path) -> None:
    buckets = [lambda rank: Bucket(size_bytes=8, ready_ns=(40 + 10 * rank) * MS, done_ns=(70 + rank) * MS)]
    recorded = Recorded(step_ns=100 * MS, shares=PARTS, clocks={1: 5 * MS}, buckets=buckets)
    found = timeline_of(tmp_path / "s", recorded, comm="on")
    assert [rank.start_ns for rank in found.ranks] == [0, 0]
    assert found.buckets == (BucketStep(0, 8, 40 * MS, 50 * MS, 71 * MS),)


def test_bars_are_where_parts_and_all_reduces_were(tmp_path: Path) -> None:
    """In ms from the step's begin: a lane per rank, below them the bucket that waits for rank 1 and travels."""
    where = point(1, 2, comm="on")
    study = write_study(tmp_path / "s", [where])
    buckets = [lambda rank: Bucket(size_bytes=8, ready_ns=(40 + 10 * rank) * MS, done_ns=70 * MS)]
    write_run(study, where, Recorded(step_ns=100 * MS, shares=PARTS, buckets=buckets))
    detail = find(load_study(study)).detail
    (ax,) = timeline_figure(detail.parts, detail.travels).axes
    boxes = [bar.get_path().get_extents(bar.get_patch_transform()) for bar in ax.patches]
    wanted = [(0, 10), (10, 40), (40, 80), (80, 100)]
    assert [(round(box.x0), round(box.x1)) for box in boxes] == [*wanted, *wanted, (40, 50), (50, 70)]
    assert [round((box.y0 + box.y1) / 2, 2) for box in boxes] == [0.0] * 4 + [1.0] * 4 + [2.4] * 2


def test_without_clocks_ranks_begin_together(tmp_path: Path) -> None:
    recorded = Recorded(step_ns=100 * MS, shares=PARTS, clocks={1: 5 * MS}, of_rank={"clock": {"start": None, "end": None}})
    found = timeline_of(tmp_path / "s", recorded)
    assert not found.aligned
    assert [rank.start_ns for rank in found.ranks] == [0, 0]


def test_a_step_with_all_reduces_is_taken_where_not_all_have_them(tmp_path: Path) -> None:
    """Recorded of the longest step only: that one, though it is not the median."""
    bucket = Bucket(size_bytes=8, ready_ns=40 * MS, done_ns=70 * MS)
    recorded = Recorded(step_ns=lambda rank, step: (100 + step) * MS, shares=PARTS, buckets=[bucket], bucket_steps=(5,))
    assert timeline_of(tmp_path / "s", recorded, comm="on").step == 5


def test_of_many_ranks_the_fastest_and_the_slowest_are_shown(tmp_path: Path) -> None:
    """Rank 7 waits least, rank 3 most; each host is named once."""
    where = point(4, 4)
    study = write_study(tmp_path / "s", [where])
    shares = {7: {**PARTS, "backward": 0.55, "comm_exposed": 0.05}, 3: {**PARTS, "backward": 0.3, "comm_exposed": 0.3}}
    write_run(study, where, Recorded(step_ns=100 * MS, shares=PARTS, shares_of_rank=shares))
    parts = find(load_study(study)).detail.parts
    ranks = shown_ranks(parts)
    assert len(ranks) == MAX_RANKS
    assert {3, 7} <= set(ranks)
    assert rank_names(parts, ranks)[ranks.index(7)] == "r007 rank 7"
    assert title(parts).endswith("; 12 of 16 ranks, the fastest and the slowest among them")


def test_few_runs_are_looked_at_closely(tmp_path: Path) -> None:
    points = [point(1, 1), point(1, 2), point(1, 4)]
    study = write_study(tmp_path / "s", points, 3)
    for each in points:
        for run, step_ms in enumerate((100, 90, 95), start=1):
            write_run(study, each, Recorded(step_ns=step_ms * MS, shares=PARTS, job=str(run)), run)
    detail = find(load_study(study)).detail
    assert detail.parts["panel"].unique().tolist() == ["1 x 4 GPUs, run 3"]
    assert MOST_RUNS == 2


def test_hosts_whose_names_begin_alike_are_each_named() -> None:
    """The second one was taken for the first, whose first letters it has."""
    panel = pd.DataFrame({"rank": range(4), "host": [f"ip-172-31-12-{host}" for host in (99, 99, 134, 134)]})
    assert rank_names(panel, range(4)) == ["…99 rank 0", "rank 1", "…134 rank 2", "rank 3"]
