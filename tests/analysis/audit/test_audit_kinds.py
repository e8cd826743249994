"""A baseline is of the same kind: what else than the number of GPUs changes along a series is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcddp.analysis.audit.audit import Audit, audit


def of_text(folder: Path, text: str) -> Audit:
    """The audit of a table."""
    (folder / "table.csv").write_text(text, encoding="utf-8")
    return audit(folder / "table.csv")


@pytest.mark.parametrize(
    ("header", "mine", "theirs", "said"),
    [
        ("tp", "4", "1", "TP 4 against 1 GPU with no TP"),
        ("parallelism", "TP=4+PP=2+FSDP=2", "-", "PP 2 TP 4 against 1 GPU with no PP"),
        ("precision", "fp8", "fp32", "precision fp8 against 1 GPU with precision fp32"),
    ],
)
def test_a_column_that_changes_along_the_series(tmp_path: Path, header: str, mine: str, theirs: str, said: str) -> None:
    """1,000 on one GPU, then 500 a GPU of another kind: 50 % is of both; of its own kind it is 94 %."""
    rows = f"1,{theirs},1000,100%\n2,{theirs},1900,95%\n4,{mine},2128,\n8,{mine},4000,50%\n"
    result = of_text(tmp_path, f"gpus,{header},tok/s,efficiency\n{rows}")
    (changed,) = result.findings
    assert (changed.kind, changed.lines, changed.claimed, changed.follows) == ("configuration_changed", (5,), "50%", "94 %")
    assert f"50% at 8 GPUs is of {said}; against 4 GPUs of its own kind it is 94 %" in changed.sentence
    assert result.holds["efficiency values"] == 2


def test_without_a_smaller_size_of_its_own_kind(tmp_path: Path) -> None:
    """Nothing follows, and the baseline is still of another kind."""
    (changed,) = of_text(tmp_path, "gpus,tp,tok/s,speedup\n1,1,1000,1.0\n8,8,4000,4.0\n").findings
    assert changed.kind == "configuration_changed"
    assert changed.sentence.endswith("the table has no smaller size of TP 8")


def test_two_kinds_with_a_baseline_each_are_right(tmp_path: Path) -> None:
    """As are two precisions compared at one size, and a smaller micro batch under the same global batch."""
    own = "gpus,tp,tok/s,efficiency\n1,1,1000,100%\n2,1,1900,95%\n4,4,2000,100%\n8,4,3760,94%\n"
    assert of_text(tmp_path, own).findings == ()
    effect = of_text(tmp_path, "gpus,precision,tok/s,speedup\n4,fp32,1000,1.00\n4,bf16,1840,1.84\n")
    assert effect.findings == ()
    assert effect.holds["speedup values"] == 2
    micro = "gpus,global_batch,micro_batch,tok/s,speedup\n1,64,64,1000,1.0\n2,64,32,1900,1.9\n4,64,16,3600,3.6\n"
    assert of_text(tmp_path, micro).findings == ()


def test_a_claim_that_fits_no_kind_is_wrong(tmp_path: Path) -> None:
    """70 % follows from no row."""
    rows = "1,1,1000,100%\n2,1,1900,95%\n4,4,2128,100%\n8,4,4000,70%\n"
    assert [each.kind for each in of_text(tmp_path, f"gpus,tp,tok/s,efficiency\n{rows}").findings] == ["efficiency_wrong"]


def test_weak_scaling_holds_the_batch_per_gpu(tmp_path: Path) -> None:
    """Where it is halved with twice the GPUs, that is strong scaling; where it changes otherwise, it is neither."""
    for last, right in (("64", "strong scaling"), ("16", "neither weak nor strong scaling")):
        rows = f"1,256,weak,100\n2,128,weak,195\n4,{last},weak,370\n"
        found = of_text(tmp_path, f"gpus,batch_per_gpu,scaling,img/s\n{rows}").findings
        assert [each.follows for each in found if each.kind == "scaling_kind_wrong"] == [right]
    rows = "1,64,weak,100\n2,64,weak,195\n4,64,weak,370\n"
    assert of_text(tmp_path, f"gpus,batch_per_gpu,scaling,img/s\n{rows}").findings == ()


def test_strong_scaling_holds_either_batch(tmp_path: Path) -> None:
    """The global batch, or that of a GPU over a fixed data set; where neither is held, that it is called strong is told."""
    for held in ("1,256\n2,128\n4,64\n", "1,64\n2,64\n4,64\n"):
        rows = "".join(f"{line},strong,{100 * int(line[0])}\n" for line in held.split())
        assert of_text(tmp_path, f"gpus,batch_per_gpu,scaling,img/s\n{rows}").findings == ()
    (found,) = of_text(tmp_path, "gpus,batch_per_gpu,scaling,img/s\n1,256,strong,100\n4,128,strong,390\n").findings
    assert found.kind == "batch_changed"
    assert found.sentence.endswith("differ by more than their GPUs, though this is called strong scaling")
