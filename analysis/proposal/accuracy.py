"""What the runs of a proposal learned: accuracy by size with exact counts, and what it takes to reach one."""

from __future__ import annotations

import pandas as pd

from hpcddp.analysis.proposal.blocks import Block, CellOf, Heading, Text, rows_table
from hpcddp.analysis.proposal.proposal import Proposal
from hpcddp.analysis.report.accuracy_table import accuracy_cell, accuracy_spread, reached_cell, trained_cell
from hpcddp.analysis.report.cells import number_of, text_cell
from hpcddp.analysis.report.table import UNKNOWN
from hpcddp.analysis.util.wording import duration, quantity, times, unit
from hpcddp.analysis.verdicts.accuracy import target_sentences

ABOUT = (
    "Of the whole evaluation set, each sample once, as the median over runs; sizes that trained unlike numbers of samples "
    "are not to be ranked by it."
)


def accuracy_blocks(found: Proposal) -> list[Block]:
    """A heading and tables; nothing where no run of the series was evaluated."""
    rows = [size.row for size in found.sizes if pd.notna(size.row["accuracy"])]
    if not rows:
        return []
    gpu = unit(rows[0]["device"])
    size: dict[str, CellOf] = {f"nodes x {gpu}s": lambda row: text_cell(f"{row['nodes']} x {row['gpus_per_node']}")}
    counts = {
        **size,
        "n": number_of("eval_n", str),
        "accuracy": accuracy_cell,
        "between": accuracy_spread,
        "samples trained": trained_cell,
    }
    blocks: list[Block] = [Heading("Accuracy"), Text(ABOUT), rows_table(counts, rows, UNKNOWN)]
    targets = targets_of(found)
    if targets.empty:
        return blocks
    base = next((base for base in ("1gpu", "1node") if targets[f"speedup_{base}"].notna().any()), "1gpu")
    effort = {
        **size,
        "reached": reached_cell,
        "epochs": number_of("epochs", "{:g}".format),
        "time": number_of("train_s", duration),
        "node hours": number_of("node_h", quantity),
        f"over one {gpu if base == '1gpu' else 'node'}": number_of(f"speedup_{base}", times),
        "throughput": number_of(f"throughput_{base}", times),
    }
    scaling = pd.DataFrame([dict(each.row) for each in found.sizes])
    sentences = " ".join(target_sentences(targets, scaling, {}))
    return [*blocks, Text(sentences), rows_table(effort, (row for _, row in targets.iterrows()), UNKNOWN)]


def targets_of(found: Proposal) -> pd.DataFrame:
    """What each size of the series takes to an accuracy: rows of targets_frame."""
    every = found.found.targets
    rows: pd.DataFrame = every[every["series"] == found.sizes[0].row["series"]]
    return rows
