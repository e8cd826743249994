"""Every fault in a table is found, and nothing in a table without one."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcddp.analysis.audit.audit import Audit, audits
from hpcddp.analysis.audit.findings import KINDS
from hpcddp.analysis.report.write import write_tables
from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.util.files import Failures
from hpcddp.analysis.verdicts.findings import find
from hpcddp.core.errors import UsageError
from tests.analysis.audits.faults import FAULTS
from tests.analysis.audits.generated import clean, clean_weak
from tests.analysis.synthetic import write_marconi100

CONSEQUENCES = {
    "average_outside_rows": {"speedup_wrong", "efficiency_wrong"},
    "throughput_wrong": {"superlinear"},
}
"""Fault -> what else is then true of the table: the speedup beside a wrong average does not follow from it."""


def of_text(folder: Path, text: str) -> Audit:
    (folder / "table.csv").write_text(text, encoding="utf-8")
    return audits(folder / "table.csv")[0]


@pytest.mark.dear
def test_planted_faults_are_found_and_clean_tables_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """200 tables with a fault, 400 without: at least 95 % of faults found, and nothing in any clean table."""
    names = list(FAULTS)
    planted, hits, wrong, right = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    for i in range(200):
        name = names[i % len(names)]
        table, lines = FAULTS[name](random.Random(5000 + i))
        findings = audits(table.write(tmp_path / "faulty.csv"))[0].findings
        planted[name] += 1
        hits[name] += any(each.kind == name and lines & set(each.lines) for each in findings)
        for each in findings:
            ours = each.kind == name or each.kind in CONSEQUENCES.get(name, ())
            (right if ours else wrong)[each.kind] += 1
    alarms = 0
    for i in range(400):
        table = (clean_weak if i % 3 == 0 else clean)(random.Random(i))
        findings = audits(table.write(tmp_path / "clean.csv"))[0].findings
        alarms += bool(findings)
        wrong.update(each.kind for each in findings)
    with capsys.disabled():
        print(f"\n{'class':26} planted recall precision")
        for name in names:
            precision = right[name] / max(1, right[name] + wrong[name])
            print(f"{name:26} {planted[name]:7} {hits[name] / planted[name]:6.2f} {precision:9.2f}")
        print(f"{'all':26} {200:7} {hits.total() / 200:6.3f} {right.total() / (right.total() + wrong.total()):9.3f}")
        print(f"false alarms in {alarms} of 400 clean tables")
    assert len(names) >= 15
    assert hits.total() >= 190
    assert alarms == 0
    assert wrong.total() <= 0.02 * right.total()
    assert set(FAULTS) <= set(KINDS)


@settings(max_examples=40, deadline=None)
@given(
    times=st.lists(st.integers(100, 20_000), min_size=4, max_size=4),
    runs=st.integers(1, 4),
    spread=st.lists(st.integers(-9, 9), min_size=4, max_size=4),
)
def test_exact_tables_have_no_finding(
    tmp_path_factory: pytest.TempPathFactory, times: list[int], runs: int, spread: list[int]
) -> None:
    """Times in whole seconds, ever shorter; averages, speedups and efficiencies to twelve digits: nothing to find."""
    rows = ["nodes,gpus_per_node,run,time,average,speedup,efficiency"]
    base = Fraction(0)
    for i, nodes in enumerate((1, 2, 4, 8)):
        middle = 200_000 // nodes + times[i] // (2 * nodes)
        of = [middle + 5 * run * spread[run] for run in range(runs)]
        mean = Fraction(sum(of), runs)
        base = base or mean
        speedup = base / mean
        claims = f"{float(mean):.9f},{float(speedup):.12f},{float(speedup / nodes):.12f}"
        rows += [f"{nodes},1,{run},{time},{claims}" for run, time in enumerate(of)]
    file = tmp_path_factory.mktemp("exact") / "table.csv"
    file.write_text("\n".join(rows), encoding="utf-8")
    assert audits(file)[0].findings == ()


def test_superlinear_claims_without_times(tmp_path: Path) -> None:
    """9.9 times as fast with 8 times the GPUs; 4.2 with 4 may be caches and noise."""
    result = of_text(tmp_path, "gpus,speedup\n1,1\n4,4.2\n8,9.9\n")
    assert [(each.kind, each.lines) for each in result.findings] == [("superlinear", (4,))]


@pytest.mark.parametrize(
    "rows",
    ["gpus,efficiency\n1,100%\n2,115%\n", "gpus,time\n1,100.0\n2,43.48\n", "gpus,efficiency vs 1 GPU\n1,1\n8,1.15\n"],
)
def test_115_percent_is_more_than_gpus_give(tmp_path: Path, rows: str) -> None:
    """As a claim and by times."""
    assert [each.kind for each in of_text(tmp_path, rows).findings] == ["superlinear"]


@pytest.mark.parametrize("size", ["gpus", "nodes,gpus_per_node"])
def test_steps_follow_from_samples_and_global_batch(tmp_path: Path, size: str) -> None:
    """50,000 samples in batches of 512 are 98 steps on any GPUs."""
    cells = {"gpus": ("2", "4"), "nodes,gpus_per_node": ("1,2", "1,4")}[size]
    text = f"{size},global_batch,samples,steps,time\n{cells[0]},512,50000,98,20\n{cells[1]},512,50000,120,11\n"
    (wrong,) = of_text(tmp_path, text).findings
    assert (wrong.kind, wrong.lines, wrong.follows) == ("steps_wrong", (3,), "98")
    assert wrong.sentence == "50,000 samples in batches of 512 are 98 steps, not 120"


def test_a_batch_that_changes_is_not_called_superlinear(tmp_path: Path) -> None:
    """32 per GPU, then 64: the finding is the batch, not a slow baseline; the same global batch at all sizes is none."""
    text = "gpus,batch_per_gpu,img/s\n1,32,100\n2,32,195\n4,64,620\n"
    (changed,) = of_text(tmp_path, text).findings
    assert (changed.kind, changed.lines) == ("batch_changed", (4,))
    assert changed.sentence.startswith("the batch per GPU is 32 at 1 GPU and 64 at 4 GPUs (global batch 32 and 256)")
    assert of_text(tmp_path, "gpus,batch_per_gpu,img/s\n1,256,100\n2,128,195\n3,85,280\n4,64,370\n").findings == ()
    assert of_text(tmp_path, "gpus,global_batch,img/s\n1,256,100\n2,512,195\n4,1024,370\n").findings == ()


def test_runs_that_disagree_are_not_headed_a_wrong_number(tmp_path: Path) -> None:
    """Each may be right: what follows from their average is in doubt."""
    text = of_text(tmp_path, "gpus,run,time\n1,1,100\n1,2,150\n").text
    assert "runs disagree  (a conclusion is in doubt)" in text


@pytest.mark.dear
@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("nodes,gpus_per_node,time,speedup", lambda i: "1,1,100,1"),
        ("nodes,gpus_per_node,run,time,average,speedup,efficiency", lambda i: f"1,1,{i},100,100,1,1"),
        ("nodes,gpus_per_node,node_list,gpu_type,run,time,speedup", lambda i: f"1,1,gn{i},V100,{i},{100 + i % 7},1.3"),
        ("gpus,time,speedup,efficiency", lambda i: f"{i + 1},{1e6 / (i + 1):.4f},{i + 1},1"),
        ("gpus,batch_per_gpu,steps,img/s,speedup", lambda i: f"{i + 1},{1 + i % 3},{10**7 // (i + 1)},{i * 7 % 97 + 1},{i % 5}1"),
        ("gpus,precision,time,speedup", lambda i: f"{1 + i % 2},p{i % 3},{100 + i % 7},{1 + i % 5 / 10}"),
        ("model,gpus,time,speedup", lambda i: f"m{i // 2},{1 + i % 2},{100 / (1 + i % 2)},{1 + i % 2}"),
    ],
)
def test_long_tables_end_in_seconds(tmp_path: Path, header: str, row: Callable[[int], str]) -> None:
    """The longest that are audited: nothing compares each row with each several times."""

    def cpu_s(rows: int) -> float:
        text = "\n".join([header, *(row(i) for i in range(rows))])
        begin = time.process_time()
        of_text(tmp_path, text)
        return time.process_time() - begin

    assert min(cpu_s(1000) for _ in range(2)) < 4  # the least: others share the processors


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpus,time\n" + "1,100\n" * 1_001, "1,001 rows, and at most 1,000 are audited"),
    ],
)
def test_what_is_no_published_table_is_refused(tmp_path: Path, text: str, message: str) -> None:
    """At once, with what to do."""
    with pytest.raises(UsageError, match=message):
        of_text(tmp_path, text)


def test_a_gpu_type_told_in_less_detail_is_the_same(tmp_path: Path) -> None:
    """V100, NVIDIA V100 and V100-32GB are averaged; V100-16GB and V100-32GB are not."""
    rows = "gpus,run,gpu_type,time\n1,1,V100,10\n1,2,NVIDIA Tesla V100,11\n1,3,V100-{}GB,12\n1,4,V100-32GB,13\n1,avg,,11.5\n"
    assert of_text(tmp_path, rows.format(32)).findings == ()
    assert [each.kind for each in of_text(tmp_path, rows.format(16)).findings] == ["gpu_types_pooled"]


def test_times_of_weak_scaling(tmp_path: Path) -> None:
    """Steps that last the same with more GPUs: the speedup is the ratio of GPUs times that of times."""
    rows = [f"{gpus},{run},{time},{gpus}.00" for gpus in (1, 2, 4, 8) for run, time in enumerate((9.9, 10.0, 10.1))]
    assert of_text(tmp_path, "\n".join(["gpus,run,step time (s),speedup", *rows])).findings == ()


def test_classes_stand_in_the_order_of_their_weight() -> None:
    """What decides the order of findings."""
    weights = [weight for weight, _ in KINDS.values()]
    assert weights == sorted(weights, reverse=True)


def test_settings_keep_rows_apart(tmp_path: Path) -> None:
    """Runs of two models are no repetition, and have a baseline each."""
    text = "model,gpus,time,speedup\na,1,100,1\na,2,50,2.0\nb,1,300,1\nb,2,200,1.5\n"
    assert of_text(tmp_path, text).findings == ()


@pytest.mark.dear
def test_scaling_csv_of_hpcddp_passes(tmp_path: Path) -> None:
    """What analyze writes stands an audit."""
    found_ = find(load_study(write_marconi100(tmp_path / "m100")))
    write_tables(tmp_path / "report", found_, Failures())
    result = audits(tmp_path / "report" / "scaling.csv")[0]
    assert result.findings == ()
    assert result.holds["speedup values"] == 13


def test_what_was_not_checked_is_not_said_to_hold(tmp_path: Path) -> None:
    """Speedups without any time; of three speedups one without its row's time, an average without runs."""
    bare = of_text(tmp_path, "gpus,speedup\n1,1\n2,1.9\n")
    assert (bare.holds, bare.unchecked) == ({}, {"speedup values": 2})
    assert bare.text.splitlines() == [
        "table.csv: nothing wrong found in 2 rows.",
        "",
        "not checked, as nothing in the table gives them: 2 speedup values",
    ]
    some = of_text(tmp_path, "gpus,run,time,speedup\n1,1,99,\n1,2,101,\n1,avg,100,1\n2,avg,50,2.0\n4,avg,,3.8\n")
    assert some.holds == {"averages": 1, "speedup values": 2}
    assert some.unchecked == {"averages": 2, "speedup values": 1}


def test_values_against_another_baseline_do_not_hold(tmp_path: Path) -> None:
    """Each of them is told in one finding; the others hold."""
    rows = "1,1,800,1.0\n1,2,400,2.0\n1,4,200,4.0\n2,4,100,2.0\n4,4,50,4.0\n8,4,25,32.0\n"
    result = of_text(tmp_path, f"nodes,gpus_per_node,time,speedup\n{rows}")
    (mixed,) = result.findings
    assert (mixed.kind, mixed.lines) == ("baselines_mixed", (5, 6))
    assert result.holds == {"speedup values": 4}


def test_values_without_a_time_do_not_show_two_baselines(tmp_path: Path) -> None:
    """The largest row that tells both is named: 2.0 of 16 GPUs is against one node, and 8.0 against one GPU."""
    rows = "1,1,800,1.0\n1,2,400,2.0\n1,4,200,4.0\n2,4,100,8.0\n4,4,50,4.0\n8,4,,9.0\n"
    result = of_text(tmp_path, f"nodes,gpus_per_node,time,speedup\n{rows}")
    (mixed,) = (each for each in result.findings if each.kind == "baselines_mixed")
    assert "4.0 at 4x4 is against 1 node; against 1 GPU it is 16.0" in mixed.sentence
