"""Tables as papers on large models print them, right in every digit: rates of one GPU and of all, TFLOP/s, MFU, parallelism.

A model's FLOP per token and a GPU's peak give TFLOP/s and MFU from the rate; everything is computed unrounded and then printed.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from .generated import Cells, GeneratedTable
from .planting import Lines

MODELS = {"7B": 4.9e10, "13B": 9.1e10, "70B": 4.4e11}
"""FLOP per token."""

PEAKS = {"bf16": 989.5, "fp8": 1979.0}
"""TFLOP/s of one GPU."""

SEQUENCE, EPOCH = 4096, 5_000_000
"""Tokens."""

OPTIONAL = ("mfu", "tflops", "one", "time", "degrees", "batch")
CLAIMS = ("efficiency", "scaling efficiency", "speedup", "weak-scaling efficiency")


@dataclass
class Series:
    """What is the same at all sizes."""

    model: str
    precision: str
    per_node: int
    tensor: int
    micro: int
    accumulation: int
    weak: bool
    columns: set[str]
    """Of total, one, tflops, mfu, time, degrees, batch."""
    claim: str
    """A header; empty for none."""
    percent: bool
    cut: bool
    """Numbers are cut off after their last digit, not rounded."""

    def show(self, value: float, decimals: int) -> str:
        value = int(value * 10**decimals) / 10**decimals if self.cut else value
        return f"{value:.{decimals}f}"


def clean_llm(rng: random.Random, **fixed: bool) -> GeneratedTable:
    """One or two models at four sizes; `fixed` says which columns must be there, or must not, and `one_kind` no parallelism."""
    table = GeneratedTable(rng, [], [], "llm", 1, str)
    per_node, precision, weak = rng.choice([4, 8]), rng.choice(list(PEAKS)), rng.random() < 0.6
    columns = {name for name in OPTIONAL if fixed.get(name, rng.random() < 0.5)}
    if fixed.get("total", "one" not in columns or rng.random() < 0.3):
        columns.add(rng.choice(["total", "epochs"]) if "one" not in columns and "total" not in fixed else "total")
    claim = rng.choice(CLAIMS) if fixed.get("claims", rng.random() < 0.5) else ""
    percent, cut = rng.random() < 0.6, rng.random() < 0.3
    for model in rng.sample(list(MODELS), rng.choice([1, 1, 2])):
        tensor = 1 if fixed.get("one_kind") else rng.choice([1, 1, per_node])
        micro, accumulation = rng.choice([1, 2, 4]), rng.choice([8, 16])
        _add(table, Series(model, precision, per_node, tensor, micro, accumulation, weak, columns, claim, percent, cut))
    return table


def _add(table: GeneratedTable, series: Series) -> None:
    """Four sizes, from one node on."""
    share, noise, rates = table.rng.uniform(0.28, 0.55), table.rng.uniform(0, 0.01), list[float]()
    for i in range(4):
        mfu = share * (1 + table.rng.gauss(0, noise))
        rates.append(mfu * PEAKS[series.precision] * 1e12 / MODELS[series.model])
        table.rows.append(_row(series, series.per_node * 2**i, mfu) | _claim(series, rates))
        table.true.append(rates[-1])
        share *= 1 - table.rng.uniform(0, 0.08)


def _claim(series: Series, rates: Sequence[float]) -> Cells:
    if not series.claim:
        return {}
    efficiency = rates[-1] / rates[0]
    if series.claim == "speedup":
        return {series.claim: series.show(efficiency * 2 ** (len(rates) - 1), 2)}
    return {series.claim: f"{series.show(100 * efficiency, 1)}%" if series.percent else series.show(efficiency, 2)}


def _row(series: Series, gpus: int, mfu: float) -> Cells:
    replicas, flops = gpus // series.tensor, mfu * PEAKS[series.precision]
    rate = flops * 1e12 / MODELS[series.model]
    accumulation = series.accumulation if series.weak else max(1, series.accumulation * series.per_node // gpus)
    batch = series.micro * accumulation * replicas
    split = f"TP={series.tensor}+FSDP={replicas}" if series.tensor > 1 else f"FSDP={replicas}"
    cells = {"model": series.model, "GPUs": str(gpus), "precision": series.precision}
    cells |= {"TP": str(series.tensor), "DP": str(replicas)} if "degrees" in series.columns else {"Parallelism": split}
    if "batch" in series.columns and series.weak:
        cells |= {"scaling": "weak", "batch per GPU": str(series.micro), "grad accum": str(accumulation)}
        cells["global batch size"] = str(batch)
    measured = {
        "total": {"tok/s": f"{rate * gpus:,.0f}"},
        "epochs": {"epochs/h": series.show(rate * gpus * 3600 / EPOCH, 3)},
        "one": {"tokens/s/GPU": series.show(rate, 1)},
        "tflops": {"TFLOP/s/GPU": series.show(flops, 0)},
        "mfu": {"MFU (%)": series.show(100 * mfu, 1)},
        "time": {
            "step time (s)": series.show(batch * SEQUENCE / (rate * gpus), 3),
            "data wait (s)": series.show(0.04 * batch * SEQUENCE / (rate * gpus), 3),
            "GPU util (%)": series.show(96, 0),
            **({} if "epochs" in series.columns else {"tokens per step": str(batch * SEQUENCE)}),
        },
    }
    return cells | {header: cell for name, of in measured.items() if name in series.columns for header, cell in of.items()}


def total_wrong(rng: random.Random) -> tuple[GeneratedTable, Lines]:
    """The total of a row is twice what its GPUs do."""
    table = clean_llm(rng, one=True, total=True, time=False, claims=False, mfu=False)
    i = rng.randrange(1, len(table.rows))
    gpus = int(table.rows[i]["GPUs"])
    table.rows[i]["tok/s"] = f"{table.true[i] * gpus * rng.choice([0.5, 0.8, 2, 8]):,.0f}"
    return table, {i + 2}


def mfu_wrong(rng: random.Random) -> tuple[GeneratedTable, Lines]:
    """An MFU that was copied from elsewhere."""
    table = clean_llm(rng, mfu=True, tflops=True)
    i = rng.randrange(len(table.rows))
    table.rows[i]["MFU (%)"] = f"{float(table.rows[i]['MFU (%)']) * rng.choice([0.8, 0.9, 1.1, 1.25]):.1f}"
    return table, {i + 2}


def mfu_impossible(rng: random.Random) -> tuple[GeneratedTable, Lines]:
    """All MFU against a peak that is a quarter of the true one."""
    table = clean_llm(rng, mfu=True)
    for row in table.rows:
        row["MFU (%)"] = f"{float(row['MFU (%)']) * 4:.1f}"
    return table, {2}


def rate_of_one_gpu(rng: random.Random) -> tuple[GeneratedTable, Lines]:
    """The rate of one GPU under a header that does not say so."""
    table = clean_llm(rng, total=True, one=False, time=False, mfu=False, tflops=False, claims=False)
    for row, rate in zip(table.rows, table.true, strict=True):
        row["tok/s"] = f"{rate:,.0f}"
    return table, set(range(2, len(table.rows) + 2))


def configuration_changed(rng: random.Random) -> tuple[GeneratedTable, Lines]:
    """The larger sizes are tensor parallel, and slower for it; all are given against the smallest."""
    table = clean_llm(
        rng, one_kind=True, claims=False, degrees=True, batch=False, time=False, total=True, mfu=False, tflops=False
    )
    del table.rows[4:], table.true[4:]
    for i, row in enumerate(table.rows):
        row.pop("tokens/s/GPU", None)
        table.true[i] *= 0.6 if i >= 2 else 1.0
        gpus = int(row["GPUs"])
        row.update({"tok/s": f"{table.true[i] * gpus:,.0f}", "efficiency": f"{100 * table.true[i] / table.true[0]:.1f}%"})
        if i >= 2:
            row.update({"TP": "4", "DP": str(gpus // 4)})
    return table, {4, 5}
