"""From files to files: everything a reader of a study sees."""

from __future__ import annotations

import json
import random
import re
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner

from hpcddp.analysis import StudyResult, analyze
from hpcddp.cli import main
from hpcddp.core.errors import UsageError
from tests.analysis.synthetic import FAILED, MS, Recorded, point, write_marconi100, write_run, write_runs, write_study

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
def test_marconi100_is_told_in_one_sentence(marconi: tuple[Path, StudyResult]) -> None:
    """24.9 times one GPU (39 %), 13.9 times one node (87 %): both baselines, from the same runs."""
    sentence = (
        "16 nodes train about 25 times as fast as one GPU, where 64 times would be perfect (39 % efficiency), and about 14 times "
        "as fast as one node (87 %); not certain yet: only 1 run each."
    )
    assert marconi[1].plain["sentences"] == [sentence]
    first, gates, *_ = marconi[1].text.split("\n\n")
    head, trained, *lines = first.splitlines()
    assert trained == "resnet18 on synthetic-imagenet, batch 32/GPU, fp32, V100, marconi100"
    assert (head, " ".join(lines), gates) == ("m100: strong scaling (fixed epoch)", sentence, "gates     8 of 8 runs pass")


@pytest.mark.dear
def test_marconi100_in_numbers(marconi: tuple[Path, StudyResult]) -> None:
    """Speedups as the thesis derives them from the same epochs: 13.86 over one node; 3466 / 139 over one GPU."""
    last = pd.read_csv(marconi[0] / "scaling.csv").iloc[-1]
    assert last["speedup_1node"] == pytest.approx(13.856, abs=0.001)
    assert last["efficiency_1node"] == pytest.approx(0.866, abs=0.0005)
    assert last["speedup_1gpu"] == pytest.approx(3466 / 139, rel=1e-6)
    assert last["samples_per_s"] == pytest.approx(1_281_167 / 139, rel=1e-6)


@pytest.mark.dear
def test_the_table_fits_a_terminal(marconi: tuple[Path, StudyResult]) -> None:
    """100 columns, but for the line with the files' names; 80, with what there is no room for named."""
    result = marconi[1]
    for width in (100, 80):
        assert max(len(line) for line in result.text_in(width).splitlines() if not line.startswith("report:")) <= width
    assert "     16          4    64  1      9 217  24.9x  39 %     13.9x  87 %" in marconi[1].text


@pytest.mark.dear
@pytest.mark.parametrize("runs", [1, 3])
def test_columns_without_room_are_named(tmp_path: Path, runs: int) -> None:
    """What a terminal must be as wide as, and where they are; there they fit, and one narrower they do not."""
    write_marconi100(tmp_path / "m100", runs)
    result = one(tmp_path)
    (note,) = re.findall(r"epoch and node h need (\d+) columns; scaling.csv and index.html have them", result.text_in(60))
    assert "scaling.csv" not in result.text_in(int(note))
    assert re.search(r"epoch +node h$", result.text_in(int(note)), re.MULTILINE)
    assert "scaling.csv" in result.text_in(int(note) - 1)
    assert {"epoch_s", "node_h_per_epoch"} < set(pd.read_csv(tmp_path / "m100/report/scaling.csv"))


def test_a_wider_terminal_never_shows_less(tmp_path: Path) -> None:
    """With room for an epoch's costs they stay, also where what tells series apart gets columns of its own."""
    workloads = [
        {"model": "my_package.models:one"},
        {"model": "my_package.models:two"},
        {"model": "resnet18", "precision": "bf16"},
    ]
    points = [point(nodes, 4, **each) for each in workloads for nodes in (1, 2)]
    study = write_study(tmp_path / "s", points)
    for each in points:
        write_runs(study, each, [100 * MS])
    result = one(tmp_path)
    heads = [result.text_in(width).partition("  nodes")[2].splitlines()[0] for width in range(60, 140)]
    costs = ["node h" in head for head in heads]
    assert costs == sorted(costs)
    assert (costs[0], costs[-1], "model" in heads[0], "model" in heads[-1]) == (False, True, False, True)


@pytest.mark.dear
def test_the_command_asks_how_wide_the_terminal_is(tmp_path: Path) -> None:
    """The same kept answer is told in another width."""
    write_marconi100(tmp_path / "m100", 3)
    texts = {
        width: CliRunner().invoke(main, ["analyze", str(tmp_path)], env={"COLUMNS": width}).stdout for width in ("90", "120")
    }
    assert "vs 1 node of 4\n" in texts["90"]
    assert "node h\n" in texts["120"]


@pytest.mark.dear
def test_the_report_holds_what_it_says(marconi: tuple[Path, StudyResult]) -> None:
    """Every file named is there, and no other but report.json itself."""
    assert sorted(files(marconi[0])) == sorted([*marconi[1].plain["files"], "report.json"])
    assert "figures/scaling.svg" in marconi[1].plain["files"]


@pytest.mark.dear
def test_report_json_is_what_scripts_get(marconi: tuple[Path, StudyResult]) -> None:
    """The same dict, strictly JSON: no NaN."""

    def refuse(word: str) -> Any:
        raise AssertionError(f"{word} in report.json")

    assert json.loads((marconi[0] / "report.json").read_bytes(), parse_constant=refuse) == marconi[1].plain


@pytest.mark.dear
@pytest.mark.parametrize("step_ns", [62_500_000, 99_999_999, 33_333_337])
def test_perfect_scaling_is_exactly_one(tmp_path: Path, step_ns: int) -> None:
    """Equal steps at 1, 2, 3, 6, 21 and 48 GPUs: efficiency 1.0, not nearly."""
    points = [point(*size) for size in SIZES]
    study = write_study(tmp_path / "s", points, repeat=2)
    for each in points:
        write_runs(study, each, [step_ns, step_ns + 2])
    rows = one(tmp_path).plain["points"]
    assert [row["efficiency_1gpu"] for row in rows] == [1.0] * 6
    assert [row["efficiency_1node"] for row in rows] == [None, None, 1.0, 1.0, 1.0, 1.0]
    assert rows[-1]["speedup_1gpu"] == 48.0


@pytest.mark.dear
@pytest.mark.usefixtures("drawn")
def test_nothing_depends_on_order_or_place(tmp_path: Path) -> None:
    """Written in another order, moved elsewhere, analyzed again: the same bytes in every file of the report."""
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
    """Its reason is printed, and the throughput is that of the others."""
    study = write_study(tmp_path / "s", [point(1, 1), point(1, 2)], repeat=3)
    for each in (point(1, 1), point(1, 2)):
        write_runs(study, each, [32 * MS, 32 * MS])
    write_run(study, point(1, 1), Recorded(step_ns=32 * MS), 3)
    write_run(study, point(1, 2), Recorded(step_ns=9 * MS, gates=FAILED), 3)
    result = one(tmp_path)
    assert "gates     5 of 6 runs pass" in result.text
    assert f"rejected  r3 of {point(1, 2).label}: gate `equal steps`: rank 1 made 4 of 6 steps" in result.text
    assert [(row["n"], row["samples_per_s"]) for row in result.plain["points"]] == [(3, 1000.0), (2, 2000.0)]
    assert result.missing == ()


def test_missing_runs_are_listed_with_their_state(tmp_path: Path) -> None:
    """The CLI ends with 3 for these."""
    study = write_study(tmp_path / "s", [point(1, 1), point(2, 1)], repeat=2)
    write_runs(study, point(1, 1), [MS, MS])
    write_run(study, point(2, 1), Recorded(step_ns=MS, state="failed", reason="node r001 lost"), 1)
    result = one(tmp_path)
    label = point(2, 1).label
    assert result.missing == (f"r1 of {label}", f"r2 of {label}")
    assert f"missing   r1 of {label}: attempt 100.0 failed: node r001 lost\n          r2 of {label}: not started" in result.text


def test_runs_of_one_reason_are_told_together(tmp_path: Path) -> None:
    """By their point where they follow each other; three such names, and how many there are besides."""
    points = [point(1, 1), point(2, 1), point(4, 1), point(8, 1)]
    study = write_study(tmp_path / "s", points, repeat=3)
    write_run(study, points[0], Recorded(step_ns=MS), 2)
    one_node, two_nodes = points[0].label, points[1].label
    text = " ".join(one(tmp_path).text.split())
    assert f"missing r1 of {one_node}, r3 of {one_node}, r1-r3 of {two_nodes} and 6 more: not started" in text


def test_a_point_without_its_folder_is_dropped(tmp_path: Path) -> None:
    """Removing a point's folder takes it out of the study: it is not missing any more."""
    study = write_study(tmp_path / "s", [point(1, 1), point(2, 1)], repeat=1)
    write_runs(study, point(1, 1), [MS])
    shutil.rmtree(study.point_file(point(2, 1).label).parent)
    assert one(tmp_path).missing == ()


def test_many_reasons_are_counted(tmp_path: Path) -> None:
    """The first eight are told."""
    study = write_study(tmp_path / "s", [point(1, 1), point(2, 1)], repeat=10)
    write_runs(study, point(1, 1), [MS] * 10)
    for run in range(1, 11):
        write_run(study, point(2, 1), Recorded(step_ns=MS, state="failed", reason=f"node r{min(run, 9):03d} lost"), run)
    text = one(tmp_path).text
    assert "node r008 lost\n          and 2 more of 10" in text
    assert "node r009" not in text


def test_a_study_with_nothing_done_says_so(tmp_path: Path) -> None:
    """No report is written: there is nothing in it."""
    write_study(tmp_path / "s", [point(1, 1)], repeat=9)
    result = one(tmp_path)
    assert "no run is done yet; `hpcddp status" in result.text
    assert f"missing   r1-r9 of {point(1, 1).label}: not started" in result.text
    assert len(result.missing) == 9
    assert not (tmp_path / "s/report").exists()


@pytest.mark.dear
@pytest.mark.usefixtures("drawn")
def test_rejected_runs_alone_make_no_figure(tmp_path: Path) -> None:
    """Their reasons are still written down, and figures of an earlier analysis go."""
    study = write_study(tmp_path / "s", [point(1, 1), point(1, 2)])
    for each in (point(1, 1), point(1, 2)):
        write_runs(study, each, [MS])
    analyze(tmp_path)
    assert (tmp_path / "s/report/figures/scaling.svg").is_file()
    for each in (point(1, 1), point(1, 2)):
        write_run(study, each, Recorded(step_ns=MS, gates=FAILED, job="200"))
    assert "gates     0 of 2 runs pass" in one(tmp_path).text
    assert sorted(files(tmp_path / "s/report")) == [
        *("breakdown.csv", "index.html", "report.json", "report.md", "runs.csv", "scaling.csv"),
    ]


@pytest.mark.parametrize("folder", ["empty", "absent"])
def test_no_study_is_the_users_to_mend(tmp_path: Path, folder: str) -> None:
    """The folder and the next step are named."""
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=rf"{folder}: no .*hpcddp submit"):
        analyze(tmp_path / folder)


def test_several_studies_go_to_folders_of_their_names(tmp_path: Path) -> None:
    """`out` keeps a run root that belongs to someone else untouched."""
    for name in ("one", "two"):
        write_runs(write_study(tmp_path / "runs" / name, [point(1, 1)]), point(1, 1), [MS])
    before = files(tmp_path / "runs")
    assert [result.name for result in analyze(tmp_path / "runs", tmp_path / "out")] == ["one", "two"]
    assert files(tmp_path / "runs") == before
    assert (tmp_path / "out/two/scaling.csv").is_file()


@pytest.mark.dear
@pytest.mark.parametrize("way", ["file", "read-only"])
def test_a_report_that_cannot_be_written_beside_goes_to_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Another user's run root: the text says where the report is, and the files are those of any other report."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for folder in ("mine", "theirs"):
        write_runs(write_study(tmp_path / folder / "s", [point(1, 1)]), point(1, 1), [MS])
    beside = tmp_path / "theirs/s/report"
    beside.write_text("") if way == "file" else beside.symlink_to("/sys/kernel")  # root may write anywhere but there
    one(tmp_path / "mine")
    result = one(tmp_path / "theirs")
    (report,) = (tmp_path / "cache/hpcddp/reports").iterdir()
    assert f"report: {report}" in result.text
    assert files(report) == files(tmp_path / "mine/s/report")
    assert one(tmp_path / "theirs").text == result.text


def test_a_report_that_cannot_be_written_where_asked_is_a_mistake(tmp_path: Path) -> None:
    """It goes nowhere else: the folder was named."""
    write_runs(write_study(tmp_path / "s", [point(1, 1)]), point(1, 1), [MS])
    (tmp_path / "out").write_text("")
    with pytest.raises(UsageError, match=r"cannot be written.*-o"):
        analyze(tmp_path, tmp_path / "out")


@pytest.mark.parametrize("other", [{"gpu": "A40"}, {"env_id": "env-2"}], ids=["gpu", "env_id"])
def test_what_was_found_different_is_never_pooled(tmp_path: Path, other: dict[str, Any]) -> None:
    """Two runs of one point on different GPUs (or software) are two rows, neither compared with the other's baseline."""
    points = [point(1, 1), point(1, 2)]
    study = write_study(tmp_path / "s", points, repeat=2)
    for each in points:
        write_run(study, each, Recorded(step_ns=32 * MS), 1)
    write_run(study, points[1], Recorded(step_ns=16 * MS, **other), 2)
    write_run(study, points[0], Recorded(step_ns=32 * MS), 2)
    result = one(tmp_path)
    rows = [(row["ranks"], row["n"], row["samples_per_s"], row["efficiency_1gpu"]) for row in result.plain["points"]]
    assert rows == [(1, 2, 1000.0, 1.0), (2, 1, 2000.0, 1.0), (2, 1, 4000.0, None)]
    remarks = [*result.plain["notes"], *(verdict["evidence"] for verdict in result.plain["verdicts"])]
    assert any("never averaged or compared" in each or "never pooled or compared" in each for each in remarks)


def test_node_types_are_compared_within_themselves(tmp_path: Path) -> None:
    """Two series, each with its own baselines."""
    points = [point(nodes, 1, node_type=kind) for kind in ("a40", "v100") for nodes in (1, 2)]
    study = write_study(tmp_path / "s", points)
    for each in points:
        write_runs(study, each, [MS * (1 if each.layout.node_type == "a40" else 2)], gpu=each.layout.node_type)
    result = one(tmp_path)
    assert [row["efficiency_1gpu"] for row in result.plain["points"]] == [1.0] * 4
    assert result.plain["sentences"][1].startswith("With node type v100, 2 nodes with one GPU each train about 2.0 times")


def test_a_missing_baseline_names_the_point_to_add(tmp_path: Path) -> None:
    """The column is empty; nothing is guessed."""
    points = [point(1, 4), point(2, 4)]
    study = write_study(tmp_path / "s", points)
    for each in points:
        write_runs(study, each, [MS])
    result = one(tmp_path)
    (missing,) = [verdict for verdict in result.plain["verdicts"] if verdict["name"] == "baseline missing"]
    assert missing["where"] == "at 1x1"
    assert missing["advice"].startswith("add the point to the sweep: `baseline: {layout.nodes: [1], layout.gpus_per_node: [1]}`")
    assert [row["speedup_1gpu"] for row in result.plain["points"]] == [None, None]
    (sentence,) = result.plain["sentences"]
    assert sentence.startswith("2 nodes train about 2.0 times as fast as one node (100 % efficiency);")


def test_a_baseline_that_is_not_done_is_named(tmp_path: Path) -> None:
    """It is in the sweep already: adding it again would not help. 1 x 2 does not stand in for the full node."""
    points = [point(1, 2), point(2, 2), point(1, 4)]
    study = write_study(tmp_path / "s", points)
    for each in points[:2]:
        write_runs(study, each, [MS])
    result = one(tmp_path)
    missing = [verdict["evidence"] for verdict in result.plain["verdicts"] if verdict["where"] == "at 1x4"]
    assert missing == [
        f"there is no speedup or efficiency against one full node (4 GPUs): {point(1, 4).label} has no run that counts"
    ]
    assert [row["speedup_1node"] for row in result.plain["points"]] == [None, None]


def test_with_a_held_global_batch_scaling_is_strong(tmp_path: Path) -> None:
    """Two GPUs with half the batch each, half the step: 2 times, 100 %."""
    points = [point(1, 1, batch_per_gpu=32), point(1, 2, batch_per_gpu=16)]
    study = write_study(tmp_path / "s", points, hold="global_batch")
    for each, step_ns in zip(points, (10 * MS, 5 * MS), strict=True):
        write_runs(study, each, [step_ns])
    result = one(tmp_path)
    head, trained, sentence, *_ = result.text.splitlines()
    assert head == "s: strong scaling (fixed global batch)"
    assert trained == "resnet18 on synthetic-imagenet, global batch 32, fp32, V100, marconi100"
    assert sentence.startswith("2 GPUs train about 2.0 times as fast as one GPU (")


def test_on_cpus_ranks_are_counted(tmp_path: Path) -> None:
    """No GPU is mentioned where none was used."""
    points = [point(1, ranks, device="cpu") for ranks in (1, 2)]
    study = write_study(tmp_path / "s", points)
    for each in points:
        write_runs(study, each, [MS], gpu=None)
    text = one(tmp_path).text.replace("(fixed batch per GPU)", "")
    assert "2 ranks train about 2.0 times as fast as one rank (100 % efficiency);" in text
    assert "GPU" not in text


@pytest.mark.parametrize(("repeat", "head"), [(1, "samples/s"), (2, "samples/s (range)"), (6, "samples/s (95 %)")])
def test_the_table_says_what_the_spread_is(tmp_path: Path, repeat: int, head: str) -> None:
    """From six runs on an interval, below that the range, for one run nothing (and a note)."""
    study = write_study(tmp_path / "s", [point(1, 1)], repeat=repeat)
    write_runs(study, point(1, 1), [(32 + run) * MS for run in range(repeat)])
    result = one(tmp_path)
    assert f"{head}  vs 1 GPU" in " ".join(result.text.split(" " * 3)).replace("   ", "  ")
    assert ("one run per point" in result.text) == (repeat == 1)


def test_the_parts_and_what_they_leave_make_up_the_step(tmp_path: Path) -> None:
    """Forward 25 %, backward 50 %, the rest unaccounted; what was not measured stays empty."""
    write_runs(write_study(tmp_path / "s", [point(1, 2)]), point(1, 2), [8 * MS])
    analyze(tmp_path)
    (row,) = pd.read_csv(tmp_path / "s/report/breakdown.csv").to_dict(orient="records")
    assert (row["forward_s"], row["backward_s"], row["unaccounted_s"]) == (0.002, 0.004, 0.002)
    assert pd.isna(row["comm_exposed_s"])


def test_where_no_run_counts_that_is_the_first_line(tmp_path: Path) -> None:
    """With a verdict whatever the reason is, on the page too; the command ends with 3."""
    points = [point(1, 1), point(1, 2)]
    study = write_study(tmp_path / "s", points, repeat=2)
    for each in points:
        write_runs(study, each, [MS, MS], gates=FAILED)
    done = CliRunner().invoke(main, ["analyze", str(tmp_path)])
    assert done.exit_code == 3
    assert done.stdout.splitlines()[0] == "s: No run counts: 4 runs are done, and all are rejected."
    assert "VERDICT  no run counts in 4 runs: all are rejected: gate `equal steps`" in done.stdout
    assert "<h1>No run counts: 4 runs are done, and all are rejected.</h1>" in (tmp_path / "s/report/index.html").read_text()
    write_run(study, points[0], Recorded(step_ns=MS, job="200"), 1)
    assert CliRunner().invoke(main, ["analyze", str(tmp_path)]).exit_code == 0
