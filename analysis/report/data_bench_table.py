"""The table of `hpcddp bench data`: what loaders give by their settings, with cold and warm cache."""

from __future__ import annotations

from typing import Any

import pandas as pd

from hpcddp.analysis.report.cells import number_of, table_of, unit_of, words_of
from hpcddp.analysis.report.table import Cell, Column, Table
from hpcddp.analysis.util.wording import quantity

RATE = "samples/s"


def data_benches(rows: pd.DataFrame) -> Table:
    """A row per setting and cache; no rows where nothing was benchmarked."""
    specs = [
        (Column("layout", numeric=False, terminal=f"nodes x {unit_of(rows)}s"), _layout),
        (Column("folder", numeric=False), words_of("root")),
        (Column("workers"), number_of("workers", str)),
        (Column("batch"), number_of("batch_per_gpu", str)),
        (Column("form", numeric=False), words_of("form")),
        (Column("decoder", numeric=False), words_of("decoder")),
        (Column("cache", numeric=False), words_of("cache")),
        (Column("loaders give", RATE, terminal="samples/s"), number_of("samples_per_s", quantity)),
        (Column("runs load", RATE, terminal="runs"), number_of("io_samples_per_s", quantity)),
        (Column("reading", RATE, terminal=None), number_of("read_samples_per_s", quantity)),
        (Column("decoding", RATE, terminal=None), number_of("decode_samples_per_s", quantity)),
        (Column("loaders", "MB/s", terminal=None), number_of("bytes_per_s", _mega)),
        (Column("storage", "MB/s", terminal=None), number_of("storage_bytes_per_s", _mega)),
        (Column("limit", numeric=False), words_of("limit")),
    ]
    note = (
        "As `hpcddp bench data` measured it, all ranks together. Cold: pages of the files dropped from memory before; warm: the "
        "same samples right after. Runs load: `measure.input: io` with this setting. Reading and decoding: the same processes, "
        "each by itself. Storage: large files in pieces of 4 MiB, cold."
    )
    return table_of("data_bench", "How fast loaders are", note, specs, rows)


def _layout(row: Any) -> Cell:
    text = f"{row['nodes']} x {row['gpus_per_node']}"
    return Cell(text, float(row["nodes"] * row["gpus_per_node"]))


def _mega(bytes_per_s: float) -> str:
    return quantity(bytes_per_s / 1e6)
