"""Which ranks the others wait for: how long before the last rank each was ready, and how often it was the last itself."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from hpcddp.analysis.runs.run import Run

STRAGGLER_COLUMNS = {
    **{"label": "string", "run": "Int64", "rank": "Int64", "host": "string", "last": "Float64"},
    **{f"{name}_s": "Float64" for name in ("slack", "transfer", "peer_wait", "comm_hidden", "others_wait")},
}
"""`last`: the share of all-reduces at which the others waited for it; `slack_s`: how long before the last rank it was ready, the
median over all-reduces; `others_wait_s`: the mean of the other ranks' peer wait per step."""


def stragglers_frame(runs: Sequence[Run]) -> pd.DataFrame:
    """A row per rank of each run with the communication hook and known clocks, whether the run counts or not."""
    tables = [_of_run(run, run.exchange.ranks) for run in runs if run.exchange is not None and len(run.exchange.ranks)]
    rows = pd.concat(tables) if tables else pd.DataFrame(columns=list(STRAGGLER_COLUMNS))
    return rows.astype(STRAGGLER_COLUMNS).reset_index(drop=True)


def _of_run(run: Run, ranks: pd.DataFrame) -> pd.DataFrame:
    waits = ranks["peer_wait_ns"]
    found = ranks[["rank", "host", "last"]].assign(label=run.label, run=run.run)
    for name in ("slack", "transfer", "peer_wait"):
        found[f"{name}_s"] = ranks[f"{name}_ns"] / 1e9
    found["comm_hidden_s"] = ranks["hidden_ns"] / 1e9
    found["others_wait_s"] = (waits.sum() - waits) / max(1, len(waits) - 1) / 1e9
    return found[list(STRAGGLER_COLUMNS)]
