"""Two tables of one study are held against each other in what both have."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcddp.analysis.audit.audit import audit
from hpcddp.analysis.audit.between import check_between
from hpcddp.analysis.audit.findings import Finding

CASES = Path(__file__).parents[1] / "audits"


def between(folder: Path, *texts: str) -> list[Finding]:
    """What tables of these texts say of each other."""
    files = [folder / f"t{i}.csv" for i in range(len(texts))]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text, encoding="utf-8")
    return check_between([audit(file) for file in files])


def test_two_tables_of_one_homework() -> None:
    """Batch 512 on one GPU takes 2.4 s in one table and 9.8 s in the other: not the same network."""
    found = check_between([audit(CASES / f"{name}.csv") for name in ("nyu-q1", "nyu-q2-q3")])
    assert [(each.kind, each.file, each.lines, each.follows) for each in found] == [
        ("tables_disagree", "nyu-q1.csv", (2,), "1.33 times apart"),
        ("tables_disagree", "nyu-q1.csv", (3,), "1.56 times apart"),
        ("tables_disagree", "nyu-q1.csv", (4,), "4.13 times apart"),
    ]
    assert "time at 1 GPU with 512 per GPU is 2.3797 here and 9.8217 in nyu-q2-q3.csv line 8" in found[2].sentence


def test_two_campaigns_may_differ_by_what_runs_differ() -> None:
    """104,309 and 110,373 tokens/s of one configuration, two months apart, of which the page says that neither is wrong."""
    names = ("kempnerforge-mfu-sweep", "kempnerforge-weak-160gpu", "kempnerforge-7b-scaling")
    assert check_between([audit(CASES / "published" / f"{name}.csv") for name in names]) == []


def test_counts_are_the_same_or_wrong(tmp_path: Path) -> None:
    """938 steps of one batch are not 469."""
    (found,) = between(tmp_path, "gpus,batch_per_gpu,steps,time\n1,64,938,100\n", "gpus,batch_per_gpu,steps,time\n1,64,469,100\n")
    assert (found.claimed, found.follows) == ("938", "469")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("gpus,model,time\n1,vgg,100\n", "gpus,model,time\n1,resnet,200\n"),
        ("gpus,batch_per_gpu,time\n1,32,100\n", "gpus,batch_per_gpu,time\n1,64,200\n"),
        ("gpus,tp,tok/s\n8,8,100\n", "gpus,tp,tok/s\n8,1,200\n"),
        ("gpus,img/s\n1,100\n", "gpus,tok/s\n1,51200\n"),
        ("gpus,step time (s)\n1,0.5\n", "gpus,epoch time (s)\n1,500\n"),
        ("gpus,gpu_type,time\n1,V100,100\n", "gpus,gpu_type,time\n1,A40,200\n"),
        ("gpus,model,time\n1,vgg,100\n1,resnet,500\n", "gpus,time\n1,100\n"),
        ("gpus,experiment,time\n1,a,100\n", "gpus,experiment,time\n1,b,115\n"),
    ],
)
def test_what_is_of_another_thing_is_not_compared(tmp_path: Path, first: str, second: str) -> None:
    """Another model, batch, parallelism, unit, clock or GPU; a model that one table tells apart; runs within their spread."""
    assert between(tmp_path, first, second) == []


def test_claims_of_one_table_are_checked_with_times_of_another(tmp_path: Path) -> None:
    """A speedup of 3.9 where the other table's times give 3.4."""
    claims, times = "gpus,speedup\n1,1.00\n2,1.90\n4,3.90\n", "gpus,time\n1,1000\n2,526.3\n4,294.1\n"
    (found,) = between(tmp_path, claims, times)
    assert (found.kind, found.file, found.lines, found.follows) == ("speedup_wrong", "t0.csv", (4,), "3.40")
    assert found.sentence.endswith("(by what t1.csv measured)")
    assert between(tmp_path, claims.replace("3.90", "3.40"), times) == []
