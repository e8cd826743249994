"""From files to files: everything a reader of a study sees."""

from __future__ import annotations

import csv
import io
import json
import random
import shutil
import statistics
import subprocess
import sys
import tarfile
from collections import defaultdict
from fractions import Fraction
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner

from hpcddp.analysis import StudyResult, analyze
from hpcddp.cli import main
from hpcddp.core.errors import UsageError
from tests.analysis.synthetic import FAILED, MS, Recorded, point, write_marconi100, write_measured, write_run, write_study

pytestmark = pytest.mark.usefixtures("undrawn")

SIZES = [(1, 1), (1, 2), (1, 3), (2, 3), (7, 3), (16, 3)]


@pytest.fixture(scope="module")
def marconi(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, StudyResult]:
    """The Marconi100 thesis's epochs, one run each, analyzed."""
    root = tmp_path_factory.mktemp("runs")
    write_marconi100(root / "m100")
    return root / "m100" / "report", analyze(root)[0]


def one(root: Path) -> StudyResult:
    (result,) = analyze(root)
    return result


def files(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


@pytest.mark.dear
def test_marconi100_in_one_sentence_and_in_numbers(marconi: tuple[Path, StudyResult]) -> None:
    """24.9 times one GPU (39 %), 13.86 times one node (87 %), as the thesis derives them from the same epochs."""
    sentence = (
        "16 nodes train about 25 times as fast as one GPU (39 % efficiency). Perfect scaling would be 64 times. They train about "
        "14 times as fast as one node (87 % efficiency). This is not certain yet: only 1 run each."
    )
    assert marconi[1].plain["sentences"] == [sentence]
    first, gates, *_ = marconi[1].text.split("\n\n")
    head, trained, *lines = first.splitlines()
    assert trained == "resnet18 on synthetic-imagenet, batch 32/GPU, fp32, V100, marconi100"
    assert (head, " ".join(lines), gates) == ("m100: strong scaling (fixed epoch)", sentence, "checks    8 of 8 runs pass")
    last = pd.read_csv(marconi[0] / "scaling.csv").iloc[-1]
    assert last["speedup_1node"] == pytest.approx(13.856, abs=0.001)
    assert last["efficiency_1node"] == pytest.approx(0.866, abs=0.0005)
    assert last["speedup_1gpu"] == pytest.approx(3466 / 139, rel=1e-6)
    assert last["samples_per_s"] == pytest.approx(1_281_167 / 139, rel=1e-6)


@pytest.mark.dear
def test_the_table_fits_a_terminal(marconi: tuple[Path, StudyResult]) -> None:
    result = marconi[1]
    for width in (100, 80):
        assert max(len(line) for line in result.text_in(width).splitlines() if not line.startswith("report:")) <= width
    assert "     16          4    64  1      9,217  24.9x  39 %     13.9x  87 %" in marconi[1].text


def test_a_wider_terminal_never_shows_less(tmp_path: Path) -> None:
    own = [{"model": f"my_package.models:{name}"} for name in ("one", "two")]
    write_measured(
        tmp_path / "s",
        [point(nodes, 4, **each) for each in (*own, {"model": "resnet18", "precision": "bf16"}) for nodes in (1, 2)],
    )
    result = one(tmp_path)
    heads = [result.text_in(width).partition("  nodes")[2].splitlines()[0] for width in range(60, 140)]
    costs = ["node h" in head for head in heads]
    assert costs == sorted(costs)
    assert (costs[-1], "model" in heads[0], "model" in heads[-1]) == (True, False, True)


@pytest.mark.dear
def test_the_command_asks_how_wide_the_terminal_is(tmp_path: Path) -> None:
    write_marconi100(tmp_path / "m100", 3)
    texts = {
        width: CliRunner().invoke(main, ["analyze", str(tmp_path), "--full"], env={"COLUMNS": width}).stdout
        for width in ("90", "120")
    }
    assert "vs 1 node of 4\n" in texts["90"]
    assert "node h\n" in texts["120"]


@pytest.mark.dear
def test_the_report_holds_what_it_says(marconi: tuple[Path, StudyResult]) -> None:
    """Every file named is there, and no other but report.json itself, which is strictly JSON: no NaN."""

    def refuse(word: str) -> Any:
        raise AssertionError(f"{word} in report.json")

    assert sorted(files(marconi[0])) == sorted([*marconi[1].plain["files"], "report.json"])
    assert "figures/scaling.svg" in marconi[1].plain["files"]
    assert json.loads((marconi[0] / "report.json").read_bytes(), parse_constant=refuse) == marconi[1].plain


@pytest.mark.dear
@pytest.mark.parametrize("step_ns", [62_500_000, 99_999_999, 33_333_337])
def test_perfect_scaling_is_exactly_one(tmp_path: Path, step_ns: int) -> None:
    write_measured(tmp_path / "s", {point(*size): [step_ns / MS, (step_ns + 2) / MS] for size in SIZES})
    rows = one(tmp_path).plain["points"]
    assert [row["efficiency_1gpu"] for row in rows] == [1.0] * 6
    assert [row["efficiency_1node"] for row in rows] == [None, None, 1.0, 1.0, 1.0, 1.0]
    assert rows[-1]["speedup_1gpu"] == 48.0


@pytest.mark.dear
@pytest.mark.usefixtures("drawn")
def test_nothing_depends_on_order_or_place(tmp_path: Path) -> None:
    points = [point(*size) for size in SIZES[:4]]
    jobs = [(each, run) for each in points for run in (1, 2)]
    random.Random(4).shuffle(jobs)
    for folder, order in (("a", jobs), ("b", sorted(jobs, key=lambda job: (job[0].id, -job[1])))):
        study = write_study(tmp_path / folder / "s", points[:: 1 if folder == "a" else -1], repeat=2)
        for each, run in order:
            write_run(study, each, Recorded(step_ns=(50 + each.ranks + run) * MS, job=str(run)), run)
    analyze(tmp_path / "a")
    first = files(tmp_path / "a/s/report")
    analyze(tmp_path / "b")
    assert files(tmp_path / "b/s/report") == first
    (tmp_path / "elsewhere").mkdir()
    shutil.move(tmp_path / "a/s", tmp_path / "elsewhere/renamed")
    analyze(tmp_path / "elsewhere/renamed")
    assert files(tmp_path / "elsewhere/renamed/report") == first
    assert not any(str(tmp_path).encode() in data for data in first.values())


def test_a_rejected_run_is_shown_and_not_averaged(tmp_path: Path) -> None:
    study = write_measured(tmp_path / "s", [point(1, 1), point(1, 2)], [32, 32, 32])
    write_run(study, point(1, 2), Recorded(step_ns=9 * MS, gates=FAILED, job="200"), 3)
    result = one(tmp_path)
    assert "checks    5 of 6 runs pass" in result.text
    assert f"rejected  r3 of {point(1, 2).label}: check `equal steps`: rank 1 made 4 of 6 steps" in result.text
    assert [(row["n"], row["samples_per_s"]) for row in result.plain["points"]] == [(3, 1000.0), (2, 2000.0)]
    assert result.missing == ()


def test_missing_runs_are_listed_with_their_state(tmp_path: Path) -> None:
    """The command ends with 3 for these; not for a point whose folder was removed: it is taken out of the study."""
    write_measured(tmp_path / "s", {point(1, 1): [1, 1]})
    study = write_study(tmp_path / "s", [point(1, 1), point(2, 1), point(4, 1)], repeat=2)
    write_run(study, point(2, 1), Recorded(step_ns=MS, state="failed", reason="node r001 lost"), 1)
    shutil.rmtree(study.point_file(point(4, 1).label).parent)
    result = one(tmp_path)
    label = point(2, 1).label
    assert result.missing == (f"r1 of {label}", f"r2 of {label}")
    assert f"missing   r1 of {label}: attempt 100.0 failed: node r001 lost\n          r2 of {label}: not started" in result.text


def test_runs_of_one_reason_are_told_together(tmp_path: Path) -> None:
    """By their point where they follow each other; three such names, and how many there are besides; the first eight reasons."""
    points = [point(1, 1), point(2, 1), point(4, 1), point(8, 1)]
    write_run(write_study(tmp_path / "s", points, repeat=3), points[0], Recorded(step_ns=MS), 2)
    one_node, two_nodes = points[0].label, points[1].label
    text = " ".join(one(tmp_path).text.split())
    assert f"missing r1 of {one_node}, r3 of {one_node}, r1-r3 of {two_nodes} and 6 more: not started" in text
    study = write_measured(tmp_path / "s", {point(1, 1): [1] * 10})
    write_study(tmp_path / "s", points[:2], repeat=10)
    for run in range(1, 11):
        write_run(study, point(2, 1), Recorded(step_ns=MS, state="failed", reason=f"node r{min(run, 9):03d} lost"), run)
    text = one(tmp_path).text
    assert "node r008 lost\n          and 2 more of 10" in text
    assert "node r009" not in text


def test_a_study_with_nothing_done_says_so(tmp_path: Path) -> None:
    write_study(tmp_path / "s", [point(1, 1)], repeat=9)
    result = one(tmp_path)
    assert "no run has finished; `hpcddp status" in result.text
    assert f"missing   r1-r9 of {point(1, 1).label}: not started" in result.text
    assert len(result.missing) == 9
    assert not (tmp_path / "s/report").exists()


@pytest.mark.dear
@pytest.mark.usefixtures("drawn")
def test_rejected_runs_alone_make_no_figure(tmp_path: Path) -> None:
    study = write_measured(tmp_path / "s", [point(1, 1), point(1, 2)])
    analyze(tmp_path)
    assert (tmp_path / "s/report/figures/scaling.svg").is_file()
    for each in (point(1, 1), point(1, 2)):
        write_run(study, each, Recorded(step_ns=MS, gates=FAILED, job="200"))
    assert "checks    0 of 2 runs pass" in one(tmp_path).text
    assert sorted(files(tmp_path / "s/report")) == [
        *("breakdown.csv", "index.html", "report.json", "report.md", "runs.csv", "scaling.csv"),
    ]


@pytest.mark.parametrize("folder", ["empty", "absent"])
def test_no_study_is_the_users_to_mend(tmp_path: Path, folder: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=rf"{folder}: no .*hpcddp submit"):
        analyze(tmp_path / folder)


def test_several_studies_go_to_folders_of_their_names(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_measured(tmp_path / "runs" / name, [point(1, 1)])
    before = files(tmp_path / "runs")
    assert [result.name for result in analyze(tmp_path / "runs", tmp_path / "out")] == ["one", "two"]
    assert files(tmp_path / "runs") == before
    assert (tmp_path / "out/two/scaling.csv").is_file()


@pytest.mark.dear
@pytest.mark.parametrize("way", ["file", "read-only"])
def test_a_report_that_cannot_be_written_beside_goes_to_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for folder in ("mine", "theirs"):
        write_measured(tmp_path / folder / "s", [point(1, 1)])
    beside = tmp_path / "theirs/s/report"
    beside.write_text("") if way == "file" else beside.symlink_to("/sys/kernel")  # root may write anywhere but there
    one(tmp_path / "mine")
    result = one(tmp_path / "theirs")
    (report,) = (tmp_path / "cache/hpcddp/reports").iterdir()
    assert f"report: {report}" in result.text
    assert files(report) == files(tmp_path / "mine/s/report")
    assert one(tmp_path / "theirs").text == result.text


def test_a_report_that_cannot_be_written_where_asked_is_a_mistake(tmp_path: Path) -> None:
    write_measured(tmp_path / "s", [point(1, 1)])
    (tmp_path / "out").write_text("")
    with pytest.raises(UsageError, match=r"cannot be written.*-o"):
        analyze(tmp_path, tmp_path / "out")


@pytest.mark.parametrize("other", [{"gpu": "A40"}, {"env_id": "env-2"}], ids=["gpu", "env_id"])
def test_what_was_found_different_is_never_pooled(tmp_path: Path, other: dict[str, Any]) -> None:
    points = [point(1, 1), point(1, 2)]
    study = write_measured(tmp_path / "s", points, [32, 32])
    write_run(study, points[1], Recorded(step_ns=16 * MS, job="200", **other), 2)
    result = one(tmp_path)
    rows = [(row["ranks"], row["n"], row["samples_per_s"], row["efficiency_1gpu"]) for row in result.plain["points"]]
    assert rows == [(1, 2, 1000.0, 1.0), (2, 1, 2000.0, 1.0), (2, 1, 4000.0, None)]
    remarks = [*result.plain["notes"], *(verdict["evidence"] for verdict in result.plain["verdicts"])]
    assert any("never averaged or compared" in each or "never pooled or compared" in each for each in remarks)


def test_a_missing_baseline_names_the_point_to_add(tmp_path: Path) -> None:
    write_measured(tmp_path / "s", [point(1, 4), point(2, 4)])
    result = one(tmp_path)
    (missing,) = [verdict for verdict in result.plain["verdicts"] if verdict["name"] == "baseline missing"]
    assert missing["where"] == "at 1x1"
    assert missing["advice"].startswith(
        "Add the point to the sweep with `baseline: {layout.nodes: [1], layout.gpus_per_node: [1]}`"
    )
    assert [row["speedup_1gpu"] for row in result.plain["points"]] == [None, None]
    (sentence,) = result.plain["sentences"]
    assert sentence.startswith("2 nodes train about 2.0 times as fast as one node (100 % efficiency).")


def test_a_baseline_that_is_not_done_is_named(tmp_path: Path) -> None:
    points = [point(1, 2), point(2, 2), point(1, 4)]
    write_measured(tmp_path / "s", points[:2])
    write_study(tmp_path / "s", points)
    result = one(tmp_path)
    missing = [verdict["evidence"] for verdict in result.plain["verdicts"] if verdict["where"] == "at 1x4"]
    assert missing == [
        f"Speedup and efficiency against one full node (4 GPUs) are unknown. No run of {point(1, 4).label} is done."
    ]
    assert [row["speedup_1node"] for row in result.plain["points"]] == [None, None]


def test_with_a_held_global_batch_scaling_is_strong(tmp_path: Path) -> None:
    steps = {point(1, 1, batch_per_gpu=32): [10], point(1, 2, batch_per_gpu=16): [5]}
    write_measured(tmp_path / "s", steps, hold="global_batch")
    head, trained, sentence, *_ = one(tmp_path).text.splitlines()
    assert head == "s: strong scaling (fixed global batch)"
    assert trained == "resnet18 on synthetic-imagenet, global batch 32, fp32, V100, marconi100"
    assert sentence.startswith("2 GPUs train about 2.0 times as fast as one GPU (")


def test_on_cpus_ranks_are_counted(tmp_path: Path) -> None:
    write_measured(tmp_path / "s", [point(1, ranks, device="cpu") for ranks in (1, 2)], gpu=None)
    text = one(tmp_path).text.replace("(fixed batch per GPU)", "")
    assert "2 ranks train about 2.0 times as fast as one rank (100 % efficiency)." in text
    assert "GPU" not in text


@pytest.mark.parametrize(("repeat", "head"), [(1, "samples/s"), (2, "samples/s (range)"), (6, "samples/s (95 %)")])
def test_the_table_says_what_the_spread_is(tmp_path: Path, repeat: int, head: str) -> None:
    write_measured(tmp_path / "s", {point(1, 1): range(32, 32 + repeat)})
    result = one(tmp_path)
    assert f"{head}  vs 1 GPU" in " ".join(result.text.split(" " * 3)).replace("   ", "  ")
    assert ("Each point has one run" in result.text) == (repeat == 1)


def test_the_parts_and_what_they_leave_make_up_the_step(tmp_path: Path) -> None:
    """Forward 25 %, backward 50 %, the rest unaccounted; what was not measured stays empty."""
    write_measured(tmp_path / "s", {point(1, 2): [8]})
    analyze(tmp_path)
    (row,) = pd.read_csv(tmp_path / "s/report/breakdown.csv").to_dict(orient="records")
    assert (row["forward_s"], row["backward_s"], row["unaccounted_s"]) == (0.002, 0.004, 0.002)
    assert pd.isna(row["comm_exposed_s"])


def test_where_no_run_counts_that_is_the_first_line(tmp_path: Path) -> None:
    points = [point(1, 1), point(1, 2)]
    study = write_measured(tmp_path / "s", points, [1, 1], gates=FAILED)
    done = CliRunner().invoke(main, ["analyze", str(tmp_path), "--full"])
    assert done.exit_code == 3
    assert done.stdout.splitlines()[0] == "s: No run passed all checks: 4 runs are done, and all are rejected."
    assert "VERDICT  no run counts in 4 runs: Every run was rejected. Check `equal steps`" in done.stdout
    assert "<h1>Every run was rejected: 4 of 4</h1>" in (tmp_path / "s/report/index.html").read_text()
    write_run(study, points[0], Recorded(step_ns=MS, job="200"), 1)
    assert CliRunner().invoke(main, ["analyze", str(tmp_path)]).exit_code == 0


BUNDLE = Path(__file__).parents[1] / "recorded" / "version-0.1.0.tar.gz"
"""What the first version recorded: six real runs on CPUs."""

PARTS = ("data_wait", "h2d_exposed", "forward", "backward", "comm_exposed", "optimizer", "record", "other")

Rows = list[dict[str, str]]


def timed_rows() -> dict[str, dict[str, list[Rows]]]:
    """Label -> run -> the timed steps of each rank, by tarfile and csv alone."""
    found: dict[str, dict[str, list[Rows]]] = defaultdict(lambda: defaultdict(list))
    with tarfile.open(BUNDLE) as tar:
        for member in tar:
            if member.name.endswith(".steps.csv"):
                content = tar.extractfile(member)
                assert content is not None
                _, label, run, *_ = member.name.split("/")
                rows = csv.DictReader(io.TextIOWrapper(content))
                found[label][run].append([row for row in rows if row["flags"] == "0"])
    return found


def rate_per_s(ranks: list[Rows], batch_per_rank: int) -> Fraction:
    """Samples of the timed steps over the time from the first one's start to the last one's end, the mean over ranks."""
    ends = [(rows[0], rows[-1]) for rows in ranks]
    windows_ns = [int(last["start_ns"]) + int(last["total_ns"]) - int(first["start_ns"]) for first, last in ends]
    return sum(map(len, ranks)) * batch_per_rank * 10**9 / statistics.mean(map(Fraction, windows_ns))


@pytest.mark.dear
def test_what_an_earlier_version_recorded_still_counts(tmp_path: Path) -> None:
    """All of it. Rates by code of its own on the raw rows; parts of a run add up to its step, those of the exchange to what was
    exposed.
    """
    done = CliRunner().invoke(main, ["analyze", str(BUNDLE), "--to", "csv", "-o", str(tmp_path)])
    assert done.exit_code == 0, done.output
    report = json.loads((tmp_path / "earlier/report.json").read_text())
    assert (report["runs"], report["rejected"], report["missing"]) == ({"expected": 6, "done": 6, "pass": 6}, [], [])
    for row in report["points"]:
        rates = [rate_per_s(ranks, batch_per_rank=16) for ranks in timed_rows()[row["label"]].values()]
        assert row["samples_per_s"] == pytest.approx(float(statistics.median(rates)), rel=1e-9)
    for run in csv.DictReader((tmp_path / "earlier/runs.csv").read_text().splitlines()):
        step_s = int(run["global_batch"]) / float(run["samples_per_s"])
        assert sum(float(run[f"{part}_s"] or 0) for part in PARTS) == pytest.approx(step_s, rel=1e-6)
        if run["transfer_s"]:
            assert float(run["transfer_s"]) + float(run["peer_wait_s"]) == pytest.approx(float(run["comm_exposed_s"]), rel=1e-6)


ROOT = Path(__file__).parents[3]


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_folder_is_not_a_package_of_its_own() -> None:
    """`import analysis` from a checkout says which name to use: two names would be two copies of each module."""
    done = python("import analysis")
    assert "ImportError: this folder is imported as `hpcddp.analysis`" in done.stderr


@pytest.mark.parametrize("modules", ["analysis", "analysis.proposal.page, hpcddp.analysis.proposal.blocks"])
def test_what_draws_nothing_needs_neither_torch_nor_submitit_nor_matplotlib_to_load(modules: str) -> None:
    """matplotlib comes with the first figure, which a page on stdout has none of; pickles are never read. What pandas loads by
    itself, pyarrow's own imports among it, is not counted.
    """
    code = (
        f"import sys, pandas; by_pandas = set(sys.modules); import hpcddp.{modules}; "
        "print([m for m in ('torch', 'submitit', 'cloudpickle', 'matplotlib') if m in {*sys.modules} - by_pandas])"
    )
    assert python(code).stdout == "[]\n"
