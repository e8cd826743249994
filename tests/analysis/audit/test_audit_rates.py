"""Rates of one GPU, of all GPUs and of the peak are checked against each other, and stand for throughput where it is not told."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcddp.analysis.audit.audit import Audit, audit


def of_text(folder: Path, text: str) -> Audit:
    """The audit of a table."""
    (folder / "table.csv").write_text(text, encoding="utf-8")
    return audit(folder / "table.csv")


def test_a_total_is_rate_times_gpus(tmp_path: Path) -> None:
    """8 times 1,000 is not 16,000; 8,040 may be of other steps."""
    result = of_text(tmp_path, "gpus,tok/s,tok/s/GPU\n1,1010,1010\n8,16000,1000\n16,16080,1000\n")
    (wrong,) = (each for each in result.findings if each.kind == "total_wrong")
    assert (wrong.lines, wrong.claimed, wrong.follows) == ((3,), "16000", "8000")
    assert result.holds["totals"] == 1


@pytest.mark.parametrize(
    ("header", "cells", "wrong"),
    [
        ("TFLOP/s/GPU,MFU", ("400,40.4%", "380,38.4%", "360,36.4%", "350,40.0%"), "35.4 %"),
        ("model,tok/s,MFU", ("a,4000,40.0%", "a,7600,38.0%", "a,14400,36.0%", "a,28000,40.0%"), "35.0 %"),
    ],
)
def test_mfu_follows_from_one_peak(tmp_path: Path, header: str, cells: tuple[str, ...], wrong: str) -> None:
    """TFLOP/s over MFU is the peak, tokens/s over MFU the model's FLOP: one number each for all rows."""
    rows = "".join(f"{gpus},{each}\n" for gpus, each in zip((1, 2, 4, 8), cells, strict=True))
    result = of_text(tmp_path, f"gpus,{header}\n{rows}")
    (found,) = (each for each in result.findings if each.kind == "mfu_wrong")
    assert (found.lines, found.claimed) == ((5,), "40.0%")
    assert found.follows == wrong
    assert result.holds["MFU values"] == 3


def test_two_models_and_two_precisions_have_an_mfu_each(tmp_path: Path) -> None:
    """FLOP per token are of a model, a peak is of a precision."""
    models = (
        "model,gpus,tok/s,MFU\na,1,4000,40.0%\na,2,7600,38.0%\na,4,14400,36.0%\nb,1,1000,40.0%\nb,2,1900,38.0%\nb,4,3600,36.0%\n"
    )
    assert of_text(tmp_path, models).findings == ()
    rows = [
        f"{name},{gpus},{rate},{100 * rate / peak:.2f}%" for name, peak in (("bf16", 989), ("fp8", 1979)) for gpus, rate in PEAK
    ]
    assert of_text(tmp_path, "\n".join(["precision,gpus,TFLOP/s/GPU,MFU", *rows])).findings == ()


PEAK = ((8, 400), (16, 390), (32, 380))


def test_mfu_above_the_peak(tmp_path: Path) -> None:
    """120 % of the peak is no MFU."""
    (found,) = of_text(tmp_path, "gpus,MFU (%)\n1,45\n2,120\n").findings[-1:]
    assert (found.kind, found.lines) == ("mfu_impossible", (3,))


def test_a_rate_that_stays_the_same_is_asked_for(tmp_path: Path) -> None:
    """14,796 tokens/s on 8 GPUs and 13,856 on 128; a header that says of one GPU is enough, and so are fewer GPUs."""
    rows = "8,14796\n16,14380\n128,13856\n"
    (found,) = of_text(tmp_path, f"gpus,tokens/s\n{rows}").findings
    assert (found.kind, found.lines, found.weight) == ("rate_of_one_gpu", (2, 3, 4), 1)
    assert of_text(tmp_path, f"gpus,tokens/s/GPU\n{rows}").findings == ()
    assert of_text(tmp_path, "gpus,tokens/s\n8,14796\n16,14380\n").findings == ()


@pytest.mark.parametrize("header", ["epochs/h", "tokens/s", "PFLOP/s"])
def test_rates_of_all_gpus_carry_claims(tmp_path: Path, header: str) -> None:
    """3.4 times as many epochs an hour are not a speedup of 3.9."""
    (wrong,) = of_text(tmp_path, f"gpus,{header},speedup\n1,10.0,1.00\n2,19.0,1.90\n4,34.0,3.90\n").findings
    assert (wrong.kind, wrong.lines, wrong.follows) == ("speedup_wrong", (4,), "3.40")


@pytest.mark.parametrize("header", ["tokens/s/GPU", "TFLOP/s/GPU", "MFU (%)", "TFLOPS"])
def test_rates_of_one_gpu_carry_claims(tmp_path: Path, header: str) -> None:
    """What one GPU does, over what it does alone, is the efficiency."""
    rows = "1,50.0,1.00\n2,47.5,0.95\n4,42.5,0.95\n"
    (wrong,) = of_text(tmp_path, f"gpus,{header},efficiency\n{rows}").findings
    assert (wrong.kind, wrong.lines, wrong.follows) == ("efficiency_wrong", (4,), "0.85")


def test_a_baseline_of_any_size(tmp_path: Path) -> None:
    """Named in the header, or by the one row that is printed as 100 %; what is smaller may be better, and is no dip."""
    rows = "8,1085,108%\n32,4000,100%\n64,7840,98%\n128,15360,96%\n"
    for header in ("efficiency", "efficiency vs 32 GPUs"):
        result = of_text(tmp_path, f"gpus,tok/s,{header}\n{rows}")
        assert result.findings == ()
        assert result.holds["efficiency values"] == 4
    slow = of_text(tmp_path, f"gpus,tok/s,efficiency\n{rows.replace('1085,108%', '780,78%')}")
    assert slow.findings == ()  # 32 GPUs are 5.1 times 8, which are no baseline
    wrong = of_text(tmp_path, f"gpus,tok/s,efficiency vs 32 GPUs\n{rows.replace('98%', '93%')}")
    assert [(each.kind, each.lines, each.follows) for each in wrong.findings] == [("efficiency_wrong", (4,), "98 %")]


def test_copies_of_a_split_model_share_the_batch(tmp_path: Path) -> None:
    """16 per copy of 8 GPUs on 256 are 512; as many ranks as copies; 8 accumulated steps are 8 batches."""
    header = "gpus,tp,pp,dp,batch_per_gpu,grad_accum,global_batch,tok/s/GPU\n"
    assert of_text(tmp_path, f"{header}256,8,1,32,16,1,512,829\n512,8,8,8,4,8,256,100\n").findings == ()
    wrong = of_text(tmp_path, f"{header}256,8,1,32,16,1,4096,829\n512,8,8,64,32,1,2048,100\n")
    assert [(each.kind, each.lines) for each in wrong.findings] == [("global_batch_wrong", (2,)), ("gpus_wrong", (3,))]


def test_lines_before_the_header_that_begin_with_a_hash_are_notes(tmp_path: Path) -> None:
    """Commas or not; `# GPUs` is a header."""
    assert of_text(tmp_path, "# from a paper, table 3\n# fp8, H100\n# GPUs,time\n1,10\n").holds == {}


def test_of_two_units_of_throughput_the_first_is_audited(tmp_path: Path) -> None:
    """Samples and tokens a second are both known: one is read, and a remark names the other."""
    result = of_text(tmp_path, "gpus,Throughput (S/s),Throughput (T/s),speedup\n1,100,204800,1.0\n2,190,389120,1.9\n")
    assert result.findings == ()
    result = of_text(tmp_path, "gpus,samples/s,tokens/s,speedup\n1,100,204800,1.0\n2,190,389120,1.9\n")
    assert result.table.remarks == ("column `tokens/s` is not read: `throughput` is there too",)


def test_a_step_is_not_held_against_an_epoch(tmp_path: Path) -> None:
    """298 images/s for 2.631 s are the batch of 784, not the data set; 400 are not."""
    header = "gpus,batch_per_gpu,samples,step time (s),img/s\n"
    assert of_text(tmp_path, f"{header}1,784,1281167,2.631,298.0\n").findings == ()
    (wrong,) = of_text(tmp_path, f"{header}1,784,1281167,2.631,400.0\n").findings
    assert (wrong.kind, wrong.follows) == ("throughput_wrong", "298.0")


def test_rates_of_three_digits_are_rounded_to_three(tmp_path: Path) -> None:
    """172,000 over 16 times 12,300 may be 88 %, where the others have three digits, too; not where one has more, nor 80 %."""
    rows = 'gpus,tokens/s,efficiency\n1,"12,300",100%\n2,"23,800",97%\n16,"172,000",88%\n'
    assert of_text(tmp_path, rows).findings == ()
    for wrong in (rows.replace("88%", "80%"), rows.replace("23,800", "23,811")):
        assert [each.kind for each in of_text(tmp_path, wrong).findings] == ["efficiency_wrong"]


def test_samples_and_tokens_are_not_added_up(tmp_path: Path) -> None:
    """Of two throughputs, that of what the rate of one GPU counts is read; 32 samples/s are no 64 times 1,039 tokens/s."""
    both = "GPUs,MFU,Throughput (S/s),Throughput (T/s),Throughput (T/s/GPU)\n64,42.57,32,66523,1039\n"
    assert of_text(tmp_path, both).holds["totals"] == 1
    one = of_text(tmp_path, "GPUs,Throughput (S/s),Throughput (T/s/GPU)\n64,32,1039\n")
    assert (one.findings, one.holds) == ((), {})


def test_mfu_beside_few_digits(tmp_path: Path) -> None:
    """36, 17 and 7 samples/s were 36.06, 17.68 and 7.82 before they were cut off: all three may be of one peak."""
    rows = "30b,32,43.92,36\n30b,16,43.07,17\n30b,8,38.11,7\n"
    assert of_text(tmp_path, f"Model,nGPUs,MFU,Throughput (S/s)\n{rows}").findings == ()


def test_claims_against_a_row_that_is_not_printed(tmp_path: Path) -> None:
    """1.93 on 2 GPUs are 96.5 %, without a row of one GPU; 12 on 8 are too many."""
    right = "gpus,speedup,efficiency\n2,1.93x,96.5%\n3,2.87x,95.7%\n"
    assert of_text(tmp_path, right).findings == ()
    (wrong,) = of_text(tmp_path, right.replace("95.7%", "85.7%")).findings
    assert (wrong.kind, wrong.lines, wrong.follows) == ("efficiency_wrong", (3,), "95.7 %")
    (fast,) = of_text(tmp_path, "gpus,speedup\n4,3.8\n8,12\n").findings
    assert (fast.kind, fast.lines, fast.follows) == ("superlinear", (3,), "at most 8")


def test_gpus_with_their_type(tmp_path: Path) -> None:
    """`8x A100` are eight; two types are not compared."""
    rows = "GPUs,tok/s,speedup\n1\u00d7A100,1000,1\n8x A100,7600,7.6\n"
    assert of_text(tmp_path, rows).findings == ()
    mixed = of_text(tmp_path, rows.replace("8x A100", "8x H100"))
    assert [each.kind for each in mixed.findings] == ["gpu_types_compared"]
