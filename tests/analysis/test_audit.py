"""Every fault in a table is found, and nothing in a table without one."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcddp.analysis.audit.audit import CLASSES, Audit, audit
from hpcddp.analysis.audit.findings import KINDS
from hpcddp.analysis.audit.nodes import KnownNode
from hpcddp.analysis.failures import Failures
from hpcddp.analysis.findings import find
from hpcddp.analysis.records.load import load_study
from hpcddp.analysis.write import write_tables

from .audits.faults import FAULTS
from .audits.generated import clean, clean_weak
from .synthetic import write_marconi100

RCC = {f"gn{i:02}": KnownNode("v100" if i < 7 else "a40", 4, "V100 32GB" if i < 7 else "A40 48GB") for i in range(1, 9)}

CONSEQUENCES = {
    "average_outside_rows": {"speedup_wrong", "efficiency_wrong"},
    "throughput_wrong": {"superlinear"},
    "gpu_types_pooled": {"gpu_types_compared"},
}
"""Fault -> what else is then true of the table: the speedup beside a wrong average does not follow from it."""


def of_text(folder: Path, text: str) -> Audit:
    (folder / "table.csv").write_text(text, encoding="utf-8")
    return audit(folder / "table.csv")


def test_planted_faults_are_found_and_clean_tables_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """200 tables with a fault, 200 without: at least 95 % of faults found, at most 2 % of clean tables with any finding."""
    names = list(FAULTS)
    planted, hits, wrong, right = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    for i in range(200):
        name = names[i % len(names)]
        made, lines = FAULTS[name](random.Random(5000 + i))
        findings = audit(made.write(tmp_path / "faulty.csv"), RCC).findings
        planted[name] += 1
        hits[name] += any(each.kind == name and lines & set(each.lines) for each in findings)
        for each in findings:
            ours = each.kind == name or each.kind in CONSEQUENCES.get(name, ())
            (right if ours else wrong)[each.kind] += 1
    alarms = 0
    for i in range(200):
        made = (clean_weak if i % 5 == 0 else clean)(random.Random(i))
        findings = audit(made.write(tmp_path / "clean.csv"), RCC).findings
        alarms += bool(findings)
        wrong.update(each.kind for each in findings)
    with capsys.disabled():
        print(f"\n{'class':26} planted recall precision")
        for name in names:
            precision = right[name] / max(1, right[name] + wrong[name])
            print(f"{name:26} {planted[name]:7} {hits[name] / planted[name]:6.2f} {precision:9.2f}")
        print(f"{'all':26} {200:7} {hits.total() / 200:6.3f} {right.total() / (right.total() + wrong.total()):9.3f}")
        print(f"false alarms in {alarms} of 200 clean tables")
    assert len(names) >= 20
    assert hits.total() >= 190
    assert alarms <= 4
    assert wrong.total() <= 0.02 * right.total()
    assert set(FAULTS) <= set(CLASSES)


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
    assert audit(file).findings == ()


def test_would_fit(tmp_path: Path) -> None:
    """A wrong average names the statistic that gives it."""
    result = of_text(tmp_path, "gpus,run,time,average\n1,1,10.00,10.80\n1,2,10.50,\n1,3,10.90,\n1,4,11.00,\n")
    assert result.findings[0].sentence.endswith("the mean without line 2 would fit")


def test_superlinear_claims_without_times(tmp_path: Path) -> None:
    """9.9 times as fast with 8 times the GPUs; 4.2 with 4 may be caches and noise."""
    result = of_text(tmp_path, "gpus,speedup\n1,1\n4,4.2\n8,9.9\n")
    assert [(each.kind, each.lines) for each in result.findings] == [("superlinear", (4,))]


def test_a_gpu_type_told_in_less_detail_is_the_same(tmp_path: Path) -> None:
    """V100, NVIDIA V100 and V100-32GB are averaged; V100-16GB and V100-32GB are not."""
    rows = "gpus,run,gpu_type,time,average\n1,1,V100,10,\n1,2,NVIDIA Tesla V100,11,\n1,3,V100-{}GB,12,\n1,4,V100-32GB,13,11.5\n"
    assert of_text(tmp_path, rows.format(32)).findings == ()
    assert [each.kind for each in of_text(tmp_path, rows.format(16)).findings] == ["gpu_types_pooled"]


def test_times_of_weak_scaling(tmp_path: Path) -> None:
    """Steps that last the same with more GPUs: the speedup is the ratio of GPUs times that of times."""
    rows = [f"{gpus},{run},{time},{gpus}.00" for gpus in (1, 2, 4, 8) for run, time in enumerate((9.9, 10.0, 10.1))]
    assert of_text(tmp_path, "\n".join(["gpus,run,step time (s),speedup", *rows])).findings == ()


@pytest.mark.parametrize(
    ("times", "after", "rounded"),
    [(("0.400", "0.300", "0.500"), " ± 0.123 s", True), (("0.412", "0.309", "0.507"), " ± 0.100", False)],
)
def test_round_values_are_told_by_their_own_digits(tmp_path: Path, times: Sequence[str], after: str, rounded: bool) -> None:
    """Not by those of a spread, nor hidden by a unit."""
    rows = ["1,1.487", "1,1.493", "1,1.512", *(f"4,{time}{after}" for time in times)]
    found = of_text(tmp_path, "\n".join(["gpus,time", *rows])).findings
    assert ("values_rounded" in {each.kind for each in found}) == rounded


def test_classes_stand_in_the_order_of_their_weight() -> None:
    """What decides the order of findings."""
    weights = [weight for weight, _ in KINDS.values()]
    assert weights == sorted(weights, reverse=True)


def test_settings_keep_rows_apart(tmp_path: Path) -> None:
    """Runs of two models are no repetition, and have a baseline each."""
    text = "model,gpus,time,speedup\na,1,100,1\na,2,50,2.0\nb,1,300,1\nb,2,200,1.5\n"
    assert of_text(tmp_path, text).findings == ()


def test_scaling_csv_of_hpcddp_passes(tmp_path: Path) -> None:
    """What analyze writes stands an audit."""
    found_ = find(load_study(write_marconi100(tmp_path / "m100")))
    write_tables(tmp_path / "report", found_, Failures())
    result = audit(tmp_path / "report" / "scaling.csv")
    assert result.findings == ()
    assert result.holds["speedup values"] == 13


def test_what_was_not_checked_is_not_said_to_hold(tmp_path: Path) -> None:
    """Speedups without any time, steps without samples; of three speedups one without its row's time, an average without runs."""
    bare = of_text(tmp_path, "gpus,speedup,steps\n1,1,100\n2,1.9,50\n")
    assert (bare.holds, bare.unchecked) == ({}, {"speedup values": 2, "step counts": 2})
    assert bare.text.splitlines() == [
        "table.csv: nothing wrong found in 2 rows.",
        "",
        "not checked, as nothing in the table gives them: 2 speedup values, 2 step counts",
    ]
    some = of_text(tmp_path, "gpus,run,time,average,speedup\n1,1,99,100,1\n1,2,101,100,1\n2,1,50,,2.0\n4,1,,26,3.8\n")
    assert some.holds == {"averages": 1, "speedup values": 3, "repeated configurations": 1}
    assert some.unchecked == {"averages": 1, "speedup values": 1}


def test_runs_of_which_one_was_measured_are_not_said_to_agree(tmp_path: Path) -> None:
    """Nor those of two GPU types; of three runs on one type the spread was looked at."""
    text = "gpus,run,gpu_type,time\n1,1,V100,10\n1,2,V100,\n2,1,V100,5\n2,2,A40,5\n4,1,V100,3\n4,2,V100,3\n4,3,A40,2\n"
    result = of_text(tmp_path, text)
    assert (result.holds["repeated configurations"], result.unchecked["repeated configurations"]) == (1, 2)


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


def test_long_times_are_told_in_digits(tmp_path: Path) -> None:
    """Parts of 9 876 and 4 000 s are no `1.388e+04 s`."""
    text = "nodes,gpus_per_node,compute [s],comm [s],time [s]\n1,4,9876,4000,12000\n"
    (finding,) = of_text(tmp_path, text).findings
    assert (finding.kind, finding.follows) == ("parts_exceed_total", "at least 13 876 s")
