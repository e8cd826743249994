"""Bus bandwidth against message size: collectives alone, gradients while training, and what the fabric allows."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from hpcddp.analysis import analyze
from hpcddp.analysis.figures.comm import MAX_PANELS, Panel, comm_figure, panels
from hpcddp.analysis.study.comm_bench import fabric_limit
from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.verdicts.findings import find
from hpcddp.core.point import comm_point
from hpcddp.core.run_root import Study
from tests.analysis.study.test_comm_bench import operation, write_benchmark
from tests.analysis.synthetic import MS, Bucket, Recorded, point, write_run, write_study

PROFILE = {"fabric": {"gbps_per_node": 200.0}}
GB = 10**9
BIG, SMALL = 24_000_000, 2_000_000


def write(folder: Path, nodes: Sequence[int], profile: Mapping[str, Any], bench: bool = True, **changes: Any) -> Study:
    """Points of 4 GPUs per node; a step's two buckets travel for 9 ms and 1 ms, one after the other."""
    trained = [point(each, 4, comm="on", **changes) for each in nodes]
    benched = [comm_point(each) for each in trained] if bench else []
    study = write_study(folder, [*trained, *benched])
    buckets = [
        Bucket(size_bytes=BIG, ready_ns=50 * MS, done_ns=59 * MS),
        Bucket(size_bytes=SMALL, ready_ns=70 * MS, done_ns=71 * MS),
    ]
    shares = {"forward": 0.25, "backward": 0.5, "comm_exposed": 0.1}
    gpu = None if changes.get("device") == "cpu" else "V100"
    for each in trained:
        write_run(study, each, Recorded(step_ns=100 * MS, shares=shares, buckets=buckets, launch={"profile": profile}, gpu=gpu))
    for each in benched:
        attempt = write_benchmark(study, each, {"all_reduce": operation("all_reduce", each.ranks, 30e-6, 10 * GB)})
        launch = json.loads((attempt / "launch.json").read_text())
        (attempt / "launch.json").write_text(json.dumps({**launch, "profile": profile, "gpus": [gpu] if gpu else []}))
    return study


def shown(study: Study) -> list[Panel]:
    found = find(load_study(study))
    return panels(found.collectives, found.detail.trained)[0]


def test_the_fabrics_limit_is_between_nodes() -> None:
    """200 Gbit/s of a node are 25 GB/s."""
    assert fabric_limit(200.0, 2) == 25 * GB
    assert fabric_limit(200.0, 1) is None
    assert fabric_limit(None, 2) is None


def test_buckets_stand_beside_the_collectives_of_their_layout(tmp_path: Path) -> None:
    """Each at its own size with 2 (N - 1) / N of its bytes per time, on NCCL, where they travel one after the other."""
    one, two = shown(write(tmp_path / "s", [1, 2], PROFILE))
    assert [one.limit, two.limit] == [None, 25.0]
    assert two.trained["bytes"].tolist() == [SMALL, BIG]
    assert two.trained["busbw_bytes_per_s"].tolist() == pytest.approx([SMALL / 1e-3 * 14 / 8, BIG / 9e-3 * 14 / 8])
    assert one.trained["nodes"].unique().tolist() == [1]


def test_on_gloo_they_stand_for_all_at_once(tmp_path: Path) -> None:
    """Two may be under way at a time: a bucket's own time says nothing."""
    (panel,) = shown(write(tmp_path / "s", [2], PROFILE, device="cpu"))
    assert panel.trained["kind"].tolist() == ["together"]
    assert panel.trained["bytes"].tolist() == [(BIG + SMALL) / 2]
    assert panel.trained["busbw_bytes_per_s"].tolist() == pytest.approx([(BIG + SMALL) / 10e-3 * 14 / 8])


@pytest.mark.dear
def test_without_a_benchmark_buckets_have_a_figure_of_their_own(tmp_path: Path) -> None:
    assert [panel.layout for panel in shown(write(tmp_path / "s", [1, 2], PROFILE, bench=False))] == [
        "1 node x 4 GPUs",
        "2 nodes x 4 GPUs",
    ]
    assert shown(write(tmp_path / "gloo", [2], PROFILE, bench=False, device="cpu")) == []
    analyze(tmp_path / "s")
    text = (tmp_path / "s/report/index.html").read_text()
    places = [text.index(each) for each in ("More figures", "Gradient all-reduce", "bucket&#09;24.0 MB")]
    assert places == sorted(places)


def test_the_limit_is_drawn_or_said_to_be_unknown(tmp_path: Path) -> None:
    figure = comm_figure(shown(write(tmp_path / "s", [1, 2], PROFILE)))
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["Points: medians over batches of calls."]
    one, two = figure.axes
    dashed = [line for line in two.lines if line.get_linestyle() == "--"]
    assert [np.asarray(line.get_ydata()).tolist() for line in dashed] == [[25.0, 25.0]]
    assert two.get_ylim()[1] > 25
    assert "unknown" not in two.get_title(loc="left")
    assert "limit unknown" in one.get_title(loc="left")
    assert [line for line in one.lines if line.get_linestyle() == "--"] == []


def test_a_profile_without_a_fabric_has_no_limit(tmp_path: Path) -> None:
    """A number that is text rejects the run like any other wrong type."""
    assert [panel.limit for panel in shown(write(tmp_path / "a", [2], {}))] == [None]
    assert [panel.limit for panel in shown(write(tmp_path / "b", [2], {"fabric": {"gbps_per_node": None}}))] == [None]
    runs = load_study(write(tmp_path / "c", [2], {"fabric": {"gbps_per_node": "fast"}})).runs
    assert {run.state for run in runs} == {"rejected"}


@pytest.mark.dear
def test_the_page_says_the_same(tmp_path: Path) -> None:
    study = write(tmp_path / "s", [1, 2], PROFILE)
    analyze(study.folder)
    text = html.unescape((study.folder / "report/index.html").read_text())
    assert "fabric 25.0" in text
    assert "limit unknown" in text
    assert "bucket\t24.0 MB" in text


def test_a_second_analysis_says_the_same(tmp_path: Path) -> None:
    study = write(tmp_path / "s", [1, 2], PROFILE)
    first, second = load_study(study), load_study(study)
    assert [run.collectives for run in first.runs] == [run.collectives for run in second.runs]
    assert [run.timeline for run in first.runs] == [run.timeline for run in second.runs]
    assert [run.fabric_gbps for run in second.runs] == [200.0] * len(second.runs)


def test_of_many_layouts_some_are_shown() -> None:
    rows = pd.DataFrame({"label": [f"n{n}" for n in range(9)], "layout": [f"n{n}" for n in range(9)], "busbw_bytes_per_s": 1.0})
    rows = rows.assign(nodes=1, gpus_per_node=4, gpu="V100", limit_bytes_per_s=float("nan"))
    nothing = pd.DataFrame(columns=["bytes", "busbw_bytes_per_s", "nodes", "gpus_per_node", "gpu"])
    found, note = panels(rows, nothing)
    assert len(found) == MAX_PANELS
    assert (found[0].layout, found[-1].layout) == ("n0", "n8")
    assert note == f"the figure of collectives shows {MAX_PANELS} of 9 layouts"


def test_an_axis_of_less_than_a_decade_has_ticks_too(tmp_path: Path) -> None:
    (ax,) = comm_figure(shown(write(tmp_path / "s", [2], {}, bench=False))).axes
    low, high = ax.get_ylim()
    assert high / low < 10
    assert len([tick for tick in ax.get_yticks() if low <= tick <= high]) >= 2
