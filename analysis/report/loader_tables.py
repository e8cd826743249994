"""What loaders gave in training, and by themselves."""

from __future__ import annotations

import pandas as pd

from hpcddp.analysis.report.cells import key_columns, number_of, size_columns, table_of, unit_of, words_of
from hpcddp.analysis.report.table import Column, Table
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
