"""NCCL Inspector as a witness of the communication hook, on JSON in the format that its README documents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hpcddp.analysis.records.inspector_files import InspectedSize, read_inspector
from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.verdicts.inspector_notes import inspector_notes
from hpcddp.core.records import inspector_folder
from tests.analysis.runs.test_exchange import hooked
from tests.analysis.synthetic import point, write_run, write_study

SIZE = 25_000_000


def line(rank: int, number: int, time_us: int, **changes: Any) -> str:
    """As version v4.0 of the format has a collective."""
    header = {"id": "0x7f8c496ae9f661", "rank": rank, "n_ranks": changes.pop("n_ranks", 2), "nnodes": 1}
    metadata = {"inspector_output_format_version": "v4.0", "git_rev": "", "rec_mechanism": "nccl_profiler_interface"}
    performance = {
        "coll": "AllReduce",
        "coll_sn": number,
        "coll_msg_size_bytes": SIZE,
        "coll_exec_time_us": time_us,
        "coll_timing_source": "kernel_gpu",
        "coll_algobw_gbs": 277.210914,
        "coll_busbw_gbs": 485.119099,
        **changes,
    }
    return json.dumps({"header": header, "metadata": metadata, "coll_perf": performance})


def write(attempt: Path, rank: int, *lines: str) -> None:
    file = inspector_folder(attempt) / f"node0-pid{100 + rank}.log"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{each}\n" for each in lines))


def test_by_size_on_the_rank_that_came_last(tmp_path: Path) -> None:
    """What waits in its kernel for others is no time of the network; the median is over all-reduces."""
    write(tmp_path, 0, line(0, 1, 45_000), line(0, 2, 24_000), line(0, 3, 99_000), line(0, 4, 7, coll_msg_size_bytes=8192))
    write(tmp_path, 1, line(1, 1, 25_000), line(1, 2, 90_000), line(1, 3, 27_000))
    assert read_inspector(tmp_path, 2) == (InspectedSize(SIZE, 0.025, 3), InspectedSize(8192, 7e-6, 1))


def test_what_is_no_all_reduce_of_all_ranks_is_passed_over(tmp_path: Path) -> None:
    """Other operations and groups, times that the host measured, a line that a killed process left torn."""
    others = (line(0, 1, 5, coll="AllGather"), line(0, 2, 5, n_ranks=4), line(0, 3, 5, coll_timing_source="collective_cpu"))
    p2p = json.dumps({"header": {"id": "0x1", "n_ranks": 2}, "p2p_perf": {"p2p": "Send"}})
    write(tmp_path, 0, *others, p2p, line(0, 4, 30)[:-20])
    assert read_inspector(tmp_path, 2) == ()


def test_what_cannot_be_true_is_passed_over(tmp_path: Path) -> None:
    """A bundle brings files of anybody: numbers that are none or too long, depth without end, a folder in a file's place."""
    endless, huge = line(0, 1, 30).replace("30,", "1e999,"), line(0, 2, 10**400)
    words = line(0, 3, 30, coll_exec_time_us="9" * 400)
    write(tmp_path, 0, endless, huge, words, "[" * 100_000)
    (inspector_folder(tmp_path) / "node0-pid7.log").mkdir()
    assert read_inspector(tmp_path, 2) == ()


@pytest.mark.parametrize(("time_us", "words"), [(24_000, "which agree"), (40_000, "which do not agree: do not rely on")])
def test_what_it_says_of_a_run(tmp_path: Path, time_us: int, words: str) -> None:
    """The hook's bucket travels for 25 ms."""
    checked = point(1, 2, comm="check")
    study = write_study(tmp_path / "s", [checked])
    attempt = write_run(study, checked, hooked())
    for rank in (0, 1):
        write(attempt, rank, *(line(rank, number, time_us) for number in range(8)))
    (note,) = inspector_notes(load_study(study).runs)
    times = f"{time_us / 1e3:.3g} ms by NCCL Inspector, 25 ms by the communication hook"
    assert f"8 all-reduces of 25 MB take {times}, {words}" in note


def test_without_it_nothing_is_said(tmp_path: Path) -> None:
    """Nor where the sweep did not ask."""
    plain, checked = point(1, 2, comm="on"), point(1, 2, comm="check")
    study = write_study(tmp_path / "s", [plain, checked])
    write(write_run(study, plain, hooked()), 0, line(0, 1, 24_000))
    write_run(study, checked, hooked())
    assert list(inspector_notes(load_study(study).runs)) == []
