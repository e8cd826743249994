"""Every fault in a table is found, in whatever layout and words it was published, and nothing in a table without one."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from hpcddp.analysis.audit.audit import Audit, audits
from hpcddp.analysis.audit.findings import KINDS
from hpcddp.analysis.report.write import write_tables
from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.util.files import Failures
from hpcddp.analysis.verdicts.findings import find
from tests.analysis.audit.given_tables import FAULTS, clean, clean_weak
from tests.analysis.synthetic import write_marconi100

CONSEQUENCES = {
    "average_outside_rows": {"speedup_wrong", "efficiency_wrong"},
    "throughput_wrong": {"superlinear"},
}
"""Fault -> what else is then true of the table: the speedup beside a wrong average does not follow from it."""


def of_text(folder: Path, text: str, name: str = "table.csv") -> Audit:
    (folder / name).write_text(text, encoding="utf-8")
    return audits(folder / name)[0]


def found(result: Audit) -> list[tuple[str, tuple[int, ...], str]]:
    return [(each.kind, each.lines, each.follows) for each in result.findings]


@pytest.mark.dear
def test_planted_faults_are_found_and_clean_tables_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """200 tables with a fault, 400 without: at least 95 % of faults found, and nothing in any clean table."""
    names = list(FAULTS)
    hits, wrong, right = Counter[str](), Counter[str](), Counter[str]()
    for i in range(200):
        name = names[i % len(names)]
        table, lines = FAULTS[name](random.Random(5000 + i))
        findings = audits(table.write(tmp_path / "faulty.csv"))[0].findings
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
        print(f"\naudit: {hits.total()} of 200 planted found, {right.total()} findings right, {wrong.total()} wrong")
    assert len(names) >= 15
    assert hits.total() >= 190
    assert alarms == 0
    assert wrong.total() <= 0.02 * right.total()
    assert set(FAULTS) <= set(KINDS)


RATE = "GPUs,img/s,speedup\n"
TYPES = "gpus,run,gpu_type,time\n1,1,V100,10\n1,2,NVIDIA Tesla V100,11\n1,3,V100-{}GB,12\n1,4,V100-32GB,13\n1,avg,,11.5\n"

RIGHT = {
    # Cells: bold, about, units, K and M, separators of thousands, dashes.
    "cells": "GPUs,Throughput,Speedup,Efficiency\n**1 GPU**,~12.5K samples/s,1.00x,—\n**2 GPUs**,24.1K samples/s,**1.93x**,96%\n"
    "**8 GPUs**,0.09M samples/s,7.2x,90%\n",
    "apostrophes": f"{RATE}1,1'050,1.0\n4,4\u2019010,3.82\n8,7'610,7.25\n",
    "thin spaces": f"{RATE}1,1\u2009050,1.0\n4,4\u202f010,3.82\n8,7\u00a0610,7.25\n",
    "spread": "GPUs;time (s);speedup\n1;100,5 ± 0,3;1,00\n2;52,1 ± 0,2;1,93\n4;27,0;3,72\n",
    "unknown unit": "GPUs,Throughput,Speedup\n1,31.5 wibbles,1.0\n2,60.1 wibbles,1.91\n4,OOM,n/a\n8,219 wibbles,6.95\n",
    "million": "GPUs,tokens/s,efficiency\none,1.2M,100%\ntwo,2.3M,96%\neight,8.9M,93%\n",
    "how much faster": "GPUs,Epoch (s),Speedup\n1,100,-\n2,55,82%\n4,30,233%\n",
    "results in numbers": "GPUs,Average Precision,Time (h),Speedup\n1,38.1,40,1.0\n4,38.1,10.6,3.77\n8,37.8,5.4,7.4\n",
    "no result": "GPUs,epoch time,speedup\n1,2h 5m,1.0\n2,1h4m,1.95\n4,crashed,-\n8,TBD (queued),—\n",
    # Sizes in words.
    "configurations": "Configuration,Throughput (samples/s),Speedup\n1 GPU (baseline),200,1.0x\n1 node x 4 GPUs,700,3.5x\n"
    "2 nodes x 4 GPUs,1300,6.5x\n",
    "typed": "Hardware,img/s,speedup\n1x A100,400,1.0\n8x A100,3040,7.6\n",
    "both": "Setup,Images/sec,Speedup\nSingle GPU,390,1.0x\n4 GPUs (1 node),1480,3.79x\n8 GPUs (2 nodes),2900,7.44x\n",
    "per node": "Run,epoch (s),speedup\n"
    "1 node with 4 GPUs,100,1.0\n2 nodes with 4 GPUs each,52,1.92\n4 nodes with 4 GPUs each,27,3.70\n",
    # Words tell rows apart.
    "words": "Benchmark,Interconnect,GPUs,img/s,efficiency\nsynthetic,NVLink,1,1000,100%\nsynthetic,NVLink,8,7700,96%\n"
    "synthetic,PCIe,8,5200,65%\nImageNet,NVLink,1,500,100%\nImageNet,NVLink,8,3800,95%\n",
    "numbers": "crop,GPUs,img/s,speedup\n224,1,1000,1.0\n224,4,3900,3.9\n448,1,260,1.0\n448,4,1020,3.92\n",
    "storage": "Storage,GPUs,img/s\nLustre,8,5000\nNVMe,8,7700\nNFS,8,1200\nRAM,8,8100\n",
    "degrees": "TP,PP,GPUs,tok/s,MFU (%)\n1,1,8,1000,41.0\n2,1,8,700,30.2\n4,1,8,500,20.1\n2,2,16,1300,27.0\n",
    "types": "GPU type,GPUs,img/s,Speedup\nV100,1,390,1.00\nV100,4,1480,3.79\nA100,1,800,1.00\nA100,4,3050,3.81\n",
    "types of sizes": "Setup,img/s,Speedup\n1x V100,390,1.0\n4x V100,1480,3.8\n1x A100,800,2.05\n4x A100,3050,7.8\n",
    "single": "Strategy,GPUs,img/s,speedup\nnone,1,1000,1.0\nDDP,2,1900,1.9\nDDP,4,3700,3.7\n",
    "one GPU talks to nobody": "num_gpus,backend,img_s,scaling_efficiency\n"
    "1,nccl,402.1,1.0\n4,nccl,1560.9,0.97\n4,gloo,1011.2,0.629\n",
    # A rate of all GPUs, or of one, as what stands beside it tells.
    "flat": "devices,step time (s),examples/s,scaling efficiency\n"
    "1,0.0304,1053.3,100%\n2,0.0530,1206.5,57.3%\n4,0.1205,1062.6,25.2%\n",
    "of one": "GPUs,Throughput,Speedup\n1,100,1.0\n2,97,1.94\n8,90,7.2\n",
    "by time": "GPUs,step time (ms),tok/s\n1,100,1000\n4,104,962\n16,110,909\n",
    # Speedups of precisions are no speedups of sizes; those of weak scaling are.
    "precisions": "GPUs,FP32 img/s,AMP img/s,speedup (FP32 to AMP),weak scaling FP32,weak scaling AMP\n"
    "1,412,1270,3.08x,1.0x,1.0x\n"
    "8,3170,9510,3.00x,7.69x,7.49x\n",
    # Settings keep rows apart; a batch that is the same per GPU or in all; a type told in less detail; weak scaling by time.
    "models": "model,gpus,time,speedup\na,1,100,1\na,2,50,2.0\nb,1,300,1\nb,2,200,1.5\n",
    "one batch in all": "gpus,batch_per_gpu,img/s\n1,256,100\n2,128,195\n3,85,280\n4,64,370\n",
    "one batch per GPU": "gpus,global_batch,img/s\n1,256,100\n2,512,195\n4,1024,370\n",
    "names of a type": TYPES.format(32),
    "weak scaling by time": "gpus,run,step time (s),speedup\n"
    + "".join(f"{gpus},{run},{time},{gpus}.00\n" for gpus in (1, 2, 4, 8) for run, time in enumerate((9.9, 10.0, 10.1))),
}


@pytest.mark.parametrize("name", RIGHT)
def test_right_tables_are_read_and_raise_nothing(tmp_path: Path, name: str) -> None:
    result = of_text(tmp_path, RIGHT[name])
    assert found(result) == []
    assert len(result.table.rows) == len(RIGHT[name].splitlines()) - 1


PAGE = """# Scaling

Measured on 4-GPU nodes:

| Nodes | GPUs | Throughput (img/s) | Speedup | Efficiency |
|------:|-----:|-------------------:|--------:|-----------:|
| 1 | 4  | 3,050  | 1.00x | 100% |
| 2 | 8  | 5,920  | 1.94x | 97%  |
| 4 | 16 | 11,100 | 3.64x | 81%  |

More text.
"""

LATEX = r"""
\begin{table}\caption{Scaling}
\begin{tabular}{lrrrr}
\toprule
\multirow{2}{*}{Strategy} & GPUs & Throughput (img/s) & Speedup & Eff. (\%) \\
\midrule
DDP & 1 & $1{,}050 \pm 12$ & $1.00\times$ & 100.0 \\
    & 4 & $4\,010 \pm 30$ & $3.82\times$ & \textbf{95.5} \\
    & 8 & $7{,}610$ & $7.25\times$ & 80.6 \\
\bottomrule
\end{tabular}
\end{table}
"""

STEPS = "global_batch,samples,steps,time"

WRONG = {
    "page": ("r.md", PAGE, [("efficiency_wrong", (9,), "91 %")]),
    "bare bars": (
        "r.md",
        "GPUs | s/epoch | speedup\n--- | --- | ---\n1 | 60.0 | 1.0\n4 | 16.0 | 3.2\n",
        [("speedup_wrong", (4,), "3.75")],
    ),
    "latex": ("r.tex", LATEX, [("efficiency_wrong", (9,), "90.6")]),
    "tabulators": ("r.tsv", "GPUs\ttime (s)\tspeedup\n1\t60.0\t1.0\n4\t16.0\t3.2\n", [("speedup_wrong", (3,), "3.75")]),
    "a grid": (
        "r.md",
        "+---+---+---+\n| GPUs | time (s) | speedup |\n+===+===+===+\n| 1 | 1 234,5 | 1,00 |\n+---+---+---+\n"
        "| 2 | 640,2 | 1,53 |\n+---+---+---+\n",
        [("speedup_wrong", (6,), "1.93")],
    ),
    "against one GPU": (
        "r.md",
        "| Method | # GPUs | Training time | vs. single GPU |\n|---|---|---|---|\n| Baseline | 1 | 8h 20m | 1x |\n"
        "| DDP | 2 | 4h 25m | ×1.89 |\n| DDP | 4 | 2h 20m | ×3.07 |\n",
        [("speedup_wrong", (5,), "3.57")],
    ),
    "relative": (
        "r.tsv",
        "Configuration\timg/s\tRelative to 1 GPU\n1 × A100\t2,470\t1.0\n8 × A100 (1 node)\t19,300\t7.1\n",
        [("speedup_wrong", (3,), "7.81")],
    ),
    "scaling in percent": (
        "r.md",
        "| GPUs | img/s | Scaling |\n|---|---|---|\n| 1 | 1,210 | 100% |\n| 4 | 4,640 | 81% |\n| 8 | 8,830 | 91% |\n",
        [("efficiency_wrong", (4,), "96 %")],
    ),
    "speedup in percent": (
        "r.md",
        "| GPUs | img/s | Weak scaling |\n|---|---|---|\n| 1 | 100.0 | 100% |\n| 4 | 380.0 | 380% |\n| 8 | 700.0 | 770% |\n",
        [("speedup_wrong", (5,), "700 %")],
    ),
    "scaling in times": (
        "r.tsv",
        "nodes\tranks\twall time\tscaling\n1\t4\t1:02:10\t1.00x\n2\t8\t32:05\t1.94x\n4\t16\t16:40\t3.40x\n",
        [("speedup_wrong", (4,), "3.73 x")],
    ),
    "of two types": (
        "r.csv",
        "GPU,GPUs,img/s,Speedup\nV100,1,390,1.00\nV100,4,1480,3.79\nA100,1,800,1.00\nA100,4,3050,3.41\n",
        [("speedup_wrong", (5,), "3.81")],
    ),
    "two baselines": (
        "r.csv",
        "GPUs,Strategy,Throughput (img/s),Efficiency\n1,DDP,1150.0,100.0%\n16,DDP,16240.0,88.3%\n"
        "64,FSDP,56320.0,76.5%\n256,FSDP,184320.0,62.9%\n",
        [("configuration_changed", (4, 5), "a baseline of the same kind"), ("efficiency_wrong", (5,), "62.6 %")],
    ),
    "superlinear beside a time": (
        "r.csv",
        "GPUs,Epoch time (s),samples/s,Speedup\n1,1.80,13.2,1.0x\n2,1.10,43.7,3.3x\n4,0.80,120.5,9.1x\n",
        [("superlinear", (2, 3), "at most 2"), ("superlinear", (2, 4), "at most 4"), ("throughput_wrong", (2, 3, 4), "2.25")],
    ),
    "superlinear by time": (
        "r.csv",
        "GPUs,epoch time (s),img/s,speedup\n1,100,500,1.0\n2,40,1250,2.5\n",
        [("superlinear", (2, 3), "at most 2")],
    ),
    "a rate against its epoch": (
        "r.csv",
        "GPUs,epoch time (s),img/s\n1,100,500\n2,50,2000\n4,25,8000\n",
        [("superlinear", (2, 3), "at most 2"), ("superlinear", (2, 4), "at most 4"), ("throughput_wrong", (2, 3, 4), "4.00")],
    ),
    "a rate of one GPU beside that of all": (
        "r.csv",
        "GPUs,img/s,img/s/GPU\n1,100,100\n4,380,95\n8,760,85\n",
        [("total_wrong", (4,), "680")],
    ),
    "a rate of nobody knows how many": (
        "r.csv",
        "GPUs,tok/s\n8,14796\n64,14100\n128,13856\n",
        [("rate_of_one_gpu", (2, 3, 4), "1773568 on all GPUs")],
    ),
    "among words": (
        "r.csv",
        "Storage,GPUs,img/s,speedup\nNVMe,1,1000,1.0\nNVMe,8,7700,7.7\nLustre,1,900,1.0\nLustre,8,5000,7.5\n",
        [("speedup_wrong", (5,), "5.56")],
    ),
    "superlinear claims without times": (
        "r.csv",
        "gpus,speedup\n1,1\n4,4.2\n8,9.9\n",  # 4.2 may be caches and noise
        [("superlinear", (4,), "at most 8")],
    ),
    "115 % as a claim": ("r.csv", "gpus,efficiency\n1,100%\n2,115%\n", [("superlinear", (3,), "at most 1")]),
    "115 % by times": ("r.csv", "gpus,time\n1,100.0\n2,43.48\n", [("superlinear", (2, 3), "at most 2")]),
    "115 % of eight": ("r.csv", "gpus,efficiency vs 1 GPU\n1,1\n8,1.15\n", [("superlinear", (3,), "at most 1")]),
    "steps of GPUs": ("r.csv", f"gpus,{STEPS}\n2,512,50000,98,20\n4,512,50000,120,11\n", [("steps_wrong", (3,), "98")]),
    "steps of nodes": (
        "r.csv",
        f"nodes,gpus_per_node,{STEPS}\n1,2,512,50000,98,20\n1,4,512,50000,120,11\n",
        [("steps_wrong", (3,), "98")],
    ),
    # Of the same batch per GPU: 10 it/s on 4 GPUs are 4 times the work of 10 on one.
    "steps per second": (
        "r.csv",
        "gpus,it/s,speedup\n1,10.00,1.00\n2,9.50,1.90\n4,9.00,3.20\n8,8.80,7.04\n",
        [("speedup_wrong", (4,), "3.60")],
    ),
    "types in one average": ("r.csv", TYPES.format(16), [("gpu_types_pooled", (2, 3, 4, 5, 6), "12.0 and 13.0 by type")]),
    # The finding is the batch, not a slow baseline.
    "a batch that changes": (
        "r.csv",
        "gpus,batch_per_gpu,img/s\n1,32,100\n2,32,195\n4,64,620\n",
        [("batch_changed", (4,), "32 per GPU, or 32 in all")],
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_found_and_nothing_else(tmp_path: Path, name: str) -> None:
    file, text, expected = WRONG[name]
    assert found(of_text(tmp_path, text, file)) == expected


def test_superlinear_rows_are_always_told(tmp_path: Path) -> None:
    result = of_text(tmp_path, f"{RATE}1,118,1.00\n2,255,2.16\n4,460,3.90\n")
    assert found(result) == []
    assert result.remarks == ("line 3: speedup 2.16 at 2 GPUs is above linear, within caches and noise",)


def test_a_cell_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    result = of_text(tmp_path, "gpus,time,speedup\n1,100,1\n2,soon,1.9\n4,26,3.85\n")
    assert [remark.split(";")[0] for remark in result.remarks] == ["line 3: time: `soon` is not a time"]
    assert result.holds == {"speedup values": 2}
    column = of_text(tmp_path, "gpus,time,speedup,efficiency\n1,100,1,full\n4,26,3.85,high\n")
    assert [remark.split(";")[0] for remark in column.remarks] == ["line 2: efficiency: `full` is not a number"]


def test_a_batch_that_changes_is_told_per_gpu_and_in_all(tmp_path: Path) -> None:
    (changed,) = of_text(tmp_path, WRONG["a batch that changes"][1]).findings
    assert changed.sentence.startswith("the batch per GPU is 32 at 1 GPU and 64 at 4 GPUs (global batch 32 and 256)")


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
    begin = time.process_time()
    of_text(tmp_path, "\n".join([header, *(row(i) for i in range(1000))]))
    assert time.process_time() - begin < 4


def test_classes_stand_in_the_order_of_their_weight() -> None:
    weights = [weight for weight, _ in KINDS.values()]
    assert weights == sorted(weights, reverse=True)


@pytest.mark.dear
def test_scaling_csv_of_hpcddp_passes(tmp_path: Path) -> None:
    write_tables(tmp_path / "report", find(load_study(write_marconi100(tmp_path / "m100"))), (), Failures())
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
        "not checked, because the table lacks what they follow from: 2 speedup values",
    ]
    some = of_text(tmp_path, "gpus,run,time,speedup\n1,1,99,\n1,2,101,\n1,avg,100,1\n2,avg,50,2.0\n4,avg,,3.8\n")
    assert some.holds == {"averages": 1, "speedup values": 2}
    assert some.unchecked == {"averages": 2, "speedup values": 1}


def test_values_against_another_baseline_do_not_hold(tmp_path: Path) -> None:
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
