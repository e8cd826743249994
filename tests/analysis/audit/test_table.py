"""Tables are read as people write them, and what cannot be read is named; what is wrong in published ones is found."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from hpcddp.analysis.audit.audit import Audit, audits
from hpcddp.analysis.audit.cells import Number, Size, column, number, print_like, seconds, size_of
from hpcddp.analysis.audit.table import read_tables
from hpcddp.core.errors import UsageError
from hpcddp.core.written_lists import expand_node_list


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("8521", None, 8521),
        ("12.5", "min", 750),
        ("75 min", None, 4500),
        ("1:05", None, 65),
        ("2:22:01", None, 8521),
        ("1-02:03:04", None, 93784),
        ("1h23m", None, 4980),
        ("1,200.5", None, 1200.5),
        ("0,95", None, 0.95),
        ("12.3 ± 0.4", None, 12.3),
        ("350 ms", None, 0.35),
        ("350 ± 5 ms", None, 0.35),
        ("12.3 s ± 3 %", None, 12.3),
        ("2:05 ± 3 s", None, 125),
        ("2,5 h", None, 9000),
        ("1,200 s", None, 1200),
        ("1 200 s", None, 1200),
        ("1 h 200 s", None, 3800),
        ("1 h and 30 min", None, 5400),
        ("3 hours total", None, 10800),
    ],
)
def test_times_as_people_write_them(text: str, unit: str | None, value: float) -> None:
    assert seconds(text, unit).value == pytest.approx(value)


@pytest.mark.parametrize(("text", "value"), [("0,950", 0.95), ("1,200", 1200), ("12,345.5", 12345.5), ("0,5", 0.5)])
def test_thousands_do_not_begin_with_zero(text: str, value: float) -> None:
    """A comma before three digits parts thousands where there are any, and is a decimal comma after a zero."""
    assert number(text).value == value


@pytest.mark.parametrize("text", ["soon", "1:75", "1:02:61", "-5", "0", "12.5.1", "12.5.1 s", "1e999", "0e999"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="time"):
        seconds(text)


def test_a_number_is_what_rounds_or_is_cut_to_its_digits() -> None:
    """1.80 is from 1.795 (rounded) to 1.81 (cut off); 2:05 is from 2:04.5 to 2:06."""
    assert (number("1.80").interval.low, number("1.80").interval.high) == pytest.approx((1.795, 1.81))
    assert (seconds("2:05").interval.low, seconds("2:05").interval.high) == pytest.approx((124.5, 126))


@pytest.mark.parametrize(
    ("shown", "unit", "value", "text"),
    [
        ("1h23m", None, 5400, "1:30:00"),
        ("1m 59.6s", None, 119.96, "2:00"),
        ("12.3 ± 0.4 s", None, 13.04, "13.0 s"),
        ("350±5 ms", None, 0.4, "400 ms"),
        ("0,95 ± 0,01", None, 0.8, "0.80"),
        ("12,5", "min", 780, "13.0"),
        ("1,200", None, 1250, "1250"),
        ("2:05", None, 3723, "1:02:03"),
    ],
)
def test_what_follows_is_told_as_the_cell_is_printed(shown: str, unit: str | None, value: float, text: str) -> None:
    assert print_like(value, seconds(shown, unit)) == text


def test_what_follows_of_a_claim_keeps_its_mark() -> None:
    assert print_like(80, number("95,1 ± 0,3 %")) == "80.0 %"
    assert print_like(1.8, number("1.95x ± 0.02")) == "1.80 x"


@pytest.mark.parametrize(
    ("header", "meaning", "unit", "baseline"),
    [
        ("Epoch time (min)", "time", "min", None),
        ("img/s", "throughput", None, None),
        ("#GPUs", "gpus", None, None),
        ("GPUs/node", "gpus_per_node", None, None),
        ("efficiency vs 1 node", "efficiency", None, "1 node"),
        ("Efficiency (vs. one GPU) [%]", "efficiency", "percent", "1 GPU"),
        ("speedup_1gpu", "speedup", None, "1 GPU"),
        ("time_h", "time", "h", None),
        ("GlobalBatchSize", "global_batch", None, None),
    ],
)
def test_headers_as_people_write_them(header: str, meaning: str, unit: str | None, baseline: str | None) -> None:
    found = column(header)
    assert (found.meaning, found.unit, found.baseline) == (meaning, unit, baseline)


def read_cell(folder: Path, header: str, cell: str, gpus: int = 1) -> Mapping[str, Number]:
    """What is read of a table of one row, without a remark."""
    (folder / "t.csv").write_text(f'gpus,{header}\n{gpus},"{cell}"\n', encoding="utf-8")
    table = read_tables(folder / "t.csv")[0]
    assert table.remarks == ()
    return table.rows[0].numbers


@pytest.mark.parametrize(
    ("header", "cell", "meaning", "value"),
    [
        ("tok/s", "1,200", "throughput", 1200),
        ("Tokens/sec", "1200", "throughput", 1200),
        ("ktok/s", "1.2", "throughput", 1200),
        ("throughput (k tokens/s)", "1.2", "throughput", 1200),
        ("seq/min", "120", "throughput", 2),
        ("epochs/h", "2", "throughput", 1 / 1800),
        ("throughput", "1200 tok/s", "throughput", 1200),
        ("s/epoch", "35.1", "time", 35.1),
        ("sec / it", "0.35", "time", 0.35),
        ("ms/step", "350", "time", 0.35),
        ("time (min/epoch)", "2", "time", 120),
        ("hours per epoch", "2.5", "time", 9000),
        ("epoch time", "35 s/epoch", "time", 35),
        ("it/s", "2.5", "time", 0.4),
        ("epoch time (s)", "1:05", "time", 65),
        ("step time (µs)", "350", "time", 0.00035),
    ],
)
def test_rates_as_people_write_them(tmp_path: Path, header: str, cell: str, meaning: str, value: float) -> None:
    assert read_cell(tmp_path, header, cell)[meaning].value == pytest.approx(value)


@pytest.mark.parametrize(
    ("header", "cell"),
    [
        ("img/s/GPU", "100"),
        ("throughput (tok/s/GPU)", "100"),
        ("samples/s per GPU", "100"),
        ("Tokens / sec / GPU", "1,200"),
        ("TPS/GPU", "5,762"),
    ],
)
def test_of_rates_of_one_gpu_those_of_all_follow(tmp_path: Path, header: str, cell: str) -> None:
    assert read_cell(tmp_path, header, cell, gpus=4)["throughput"].value == pytest.approx(4 * number(cell).value)


@pytest.mark.parametrize("header", ["img/s/node", "GFLOPs", "s/it per GPU"])
def test_what_is_no_rate_of_the_gpus_is_not_read(tmp_path: Path, header: str) -> None:
    (tmp_path / "t.csv").write_text(f"gpus,time,{header}\n1,10,100\n2,5,100\n", encoding="utf-8")
    assert "throughput" not in read_tables(tmp_path / "t.csv")[0].rows[0].numbers


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1 GPU (baseline)", Size(gpus=1)),
        ("8x A100", Size(gpus=8, gpu_type="A100")),
        ("A100 x 8", Size(gpus=8, gpu_type="A100")),
        ("2 nodes x 4 GPUs", Size(nodes=2, per_node=4)),
        ("2x4", Size(nodes=2, per_node=4)),
        ("16 GPUs (2 nodes)", Size(nodes=2, gpus=16)),
        ("4 GPUs + NVLink", Size(gpus=4, rest="NVLink")),
        ("2x g4dn.xlarge", Size(nodes=2)),
        ("one", Size(gpus=1)),
        ("FSDP", None),
    ],
)
def test_sizes_in_words(text: str, size: Size | None) -> None:
    assert size_of(text) == size


def test_node_lists() -> None:
    assert expand_node_list("gn[01-03,07]") == ["gn01", "gn02", "gn03", "gn07"]
    assert expand_node_list("a1,b[09-10]-ib") == ["a1", "b09-ib", "b10-ib"]
    for text in ("gn[03-07-09]", "gn[05-02]", "gn[1", "gn]", "gn[x]"):
        with pytest.raises(ValueError, match="not a node list"):
            expand_node_list(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "table.csv:1: empty"),
        ("nodes,time\n", "table.csv:1: a header and no rows"),
        ("time,speedup\n1,1\n", "table.csv:1: no column says how many GPUs"),
        ("nodes,tme\n1,1\n", "no column holds a result; name one efficiency, speedup, steps, throughput, time"),
        ("nodes,colour\n1,red\n", "table.csv:1: no column holds a result"),
        ("nodes,time\n1,late\n2,soon\n", "table.csv:2: time: `late` is not a time; write seconds"),
        ("nodes,time\n1,10,12\n", "table.csv:2: 3 cells under 2 headers"),
        ("nodes,time\n,10\n", "table.csv:2: neither nodes nor gpus is filled in"),
        ("nodes,time\n1.5,10\n", "`1.5` is not a whole number"),
        ("gpus,time\n" + "1,100\n" * 1_001, "1,001 rows, but at most 1,000 are audited"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "table.csv").write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as error:
        audits(tmp_path / "table.csv")[0]
    assert message in str(error.value)


ORIGINALS = Path(__file__).parents[1] / "audits"
"""Of the studies of docs/studies, whose pages name the faults."""
PUBLISHED = ORIGINALS / "published"

FOUND: dict[str, list[tuple[str, tuple[int, ...], str]]] = {
    # Ranks train apart: means of a step 9 % apart.
    "multinode-ddp": [("ranks_disagree", (3, 4), "one time for all ranks")],
    # Speedup 0.35 is 0.91 by the times beside it.
    "nyu-q2-q3": [("speedup_wrong", (4,), "0.91")],
    # Two tables of one GPU are of two networks.
    "nyu-one-gpu": [
        ("runs_disagree", (number, number + 4), f"{times} times apart") for number, times in ((2, 1.33), (3, 1.56), (4, 4.13))
    ],
    # 2,048 on four GPUs is the run of 128 on one.
    "nyu-q4": [("steps_wrong", (2,), "7")],
    # 1.80 within the node is against one GPU, 13.86 against one node; labels are of twice ImageNet.
    "marconi100": [("baselines_mixed", (6, 7, 8, 9), "24.94"), ("throughput_wrong", (2, 3, 4, 5, 6, 7, 8, 9), "370")],
    "marconi100-efficiency": [("baseline_unnamed", (5, 6, 7, 8, 9), "0.866 against 1 node, 0.390 against 1 GPU")],
    "rcc-mnist": [("steps_wrong", (3,), "469")],
    # `Tokens/sec` is of one GPU: its page says `14,796 tok/s/GPU` above the table.
    "torchtitan-deepep": [("rate_of_one_gpu", (4, 5, 6, 7, 8), "1773568 on all GPUs")],
    "mpi-sum": [("superlinear", (4,), "at most 2"), ("superlinear", (4,), "at most 1")],
    "diagonalization": [("baselines_mixed", (3,), "50 %"), ("superlinear", (3, 4), "at most 2")],
    # Times and rates contradict each other; by rates, two and four GPUs are above linear.
    "julia-python": [
        ("superlinear", (6, 7), "at most 2"),
        ("superlinear", (6, 8), "at most 4"),
        ("throughput_wrong", (3, 4, 5), "0.94"),
        ("throughput_wrong", (6, 7, 8), "2.28"),
    ],
    "python-code": [("batch_changed", (5, 6), "16 per GPU, or 16 in all")],
    "setups": [("superlinear", (line,), f"at most {most}") for line, most in ((5, 2), (6, 2), (7, 4), (8, 4))],
    "evaluation": [("superlinear", (6,), "at most 8")],
    # 39.06 / 10.02 is 3.90, not 3.91.
    "frames": [("speedup_wrong", (9,), "3.90 ×")],
    # 47,123 / 12,456 / 4 is 94.6 %, not 94.8; 91,567 / 12,456 / 8 is 91.9, not 91.7.
    "rdma": [("efficiency_wrong", (7,), "94.6 %"), ("efficiency_wrong", (8,), "91.9 %")],
    # 76,500 and 155,000 of 8,200 are 117 and 118 % on 8 and 16 times the GPUs.
    "polaris": [("superlinear", (3, 4), "at most 8"), ("superlinear", (3, 5), "at most 16")],
}
"""What is wrong: class, lines, what follows; nothing in those that are not named."""

TABLES = [path for path in (*ORIGINALS.glob("*.csv"), *PUBLISHED.iterdir()) if path.stem not in ("SOURCES", "rcc-bigmnist")]


@pytest.mark.parametrize("file", sorted(TABLES), ids=lambda path: path.stem)
def test_what_is_wrong_is_found_and_nothing_else(file: Path) -> None:
    (result,) = audits(file)
    assert [(each.kind, each.lines, each.follows) for each in result.findings] == FOUND.get(file.stem, [])
    if file.stem == "marconi100":
        assert "13.86 at 16x4 is against 1 node; against 1 GPU it is 24.94" in result.findings[0].sentence
        assert "2.00 times the 1,281,167 samples" in result.findings[1].sentence
    if file.stem == "rcc-mnist":
        assert result.holds["speedup values"] == 7


def test_every_table_names_its_source() -> None:
    sources = (PUBLISHED / "SOURCES.md").read_text(encoding="utf-8")
    for path in PUBLISHED.iterdir():
        words = path.read_text(encoding="utf-8").splitlines()[0].split()
        is_named = words[0] == "#" and "/" in words[1] and len(words[-1].removeprefix("@")) == 40
        assert is_named if path.suffix == ".csv" else path.stem == "SOURCES" or f"| {path.stem} | " in sources


@pytest.fixture(scope="module")
def bigmnist() -> Audit:
    return audits(ORIGINALS / "rcc-bigmnist.csv")[0]


def lines_of(*cells: str) -> set[int]:
    """Lines of that table that hold one of these cells."""
    rows = (ORIGINALS / "rcc-bigmnist.csv").read_text(encoding="utf-8").splitlines()
    return {i + 1 for i, row in enumerate(rows) if any(cell in f",{row}," for cell in cells)}


def test_bigmnist_every_average_is_wrong(bigmnist: Audit) -> None:
    """All 7 printed averages differ from the mean of their rows; that of 4 nodes is above each of them."""
    wrong = [each for each in bigmnist.findings if each.kind.startswith("average")]
    assert {each.lines[-1] for each in wrong} == lines_of(",Avg,")
    follows = ["4:19:46", "15:20:10", "8:07:05", "5:00:08", "4:05:05", "8:35:58", "5:54:46"]
    assert [each.follows for each in wrong] == follows
    assert [(each.lines[0], {each.lines[-1]}) for each in wrong if each.kind == "average_outside_rows"] == [
        (51, lines_of("4:46:05"))
    ]


def test_bigmnist_other_faults(bigmnist: Audit) -> None:
    """V100, A40 and V100-SXM2 in each of the 7 averages, and in 8 runs on several nodes; steps one too many."""

    def claims(kind: str) -> list[tuple[str, str]]:
        return [(each.claimed, each.follows) for each in bigmnist.findings if each.kind == kind]

    assert claims("speedup_wrong") == [("3.58", "3.61"), ("1.6", "1.79")]
    steps = [("140,626", "140,625"), ("70,314", "70,313"), ("46,876", "46,875"), ("35,158", "35,157")]
    assert claims("steps_wrong") == steps
    assert [claimed for claimed, _ in claims("superlinear")] == ["4.51", "6.27"]
    assert "1.84 times apart" in [follows for _, follows in claims("runs_disagree")]
    assert len(claims("gpu_types_pooled")) == 7
    mixed = {line for each in bigmnist.findings if each.kind == "gpu_types_mixed_in_row" for line in each.lines}
    assert mixed == lines_of("gn[02,09]", "gn[04,08]", "gn[05,07]", "gn[01,04,08]", "gn[02,07,09]", "gn[01-02,07-08]")
