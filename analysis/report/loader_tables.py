"""Tables of loaders: what they gave in training, and what `hpcddp bench data` measured of them by their settings."""

from __future__ import annotations

from typing import Any

import pandas as pd

from hpcddp.analysis.report.cells import key_columns, number_of, size_columns, table_of, unit_of, words_of
from hpcddp.analysis.report.table import Cell, Column, Table
from hpcddp.analysis.study.series import Apart
from hpcddp.analysis.util.wording import percent, quantity

RATE, TIME = "samples/s", "of the loaders' time"


def loaders(rows: pd.DataFrame, apart: Apart) -> Table:
    """A row per point; no rows where nothing was loaded, or runs are of before loaders were timed."""
    specs = [
        *size_columns(unit_of(rows)),
        *key_columns(apart),
        *([] if "workers" in next(iter(apart.values()), {}) else [(Column("workers"), number_of("workers", str))]),
        (Column("data wait", terminal="data"), number_of("data_wait_share", percent)),
        (Column("limit", numeric=False, terminal=None), words_of("limit")),
        (Column("trained", RATE, terminal="trained"), number_of("samples_per_s", quantity)),
        (Column("loaders", RATE, terminal="loaders"), number_of("loader_samples_per_s", quantity)),
        (Column("computing", TIME, terminal="compute"), number_of("compute_share", percent)),
        (Column("no processor", TIME, terminal="no CPU"), number_of("processor_wait_share", percent)),
        (Column("files", TIME, terminal="files"), number_of("storage_wait_share", percent)),
        (Column("hand-over", TIME, terminal="pass on"), number_of("hand_over_share", percent)),
    ]
    note = (
        "Over the timed steps and all runs of a point. Samples/s of loaders: what their processes would give without a pause, as "
        "fast as they were beside training; with `measure.input: io` what is trained is what they gave. Their time: computing, "
        "waiting for a free processor or for files, passing batches on. A limit is named where a tenth of the step or more waits."
    )
    return table_of("loaders", "What the loaders gave", note, specs, rows)


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
