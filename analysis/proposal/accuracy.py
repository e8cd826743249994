"""What the runs of a proposal learned: accuracy by size with exact counts, and what it takes to reach one."""

from __future__ import annotations

from typing import Any

import pandas as pd

from hpcddp.analysis.proposal.blocks import Block, Heading, Text, text_table
from hpcddp.analysis.proposal.proposal import Proposal
from hpcddp.analysis.report.table import UNKNOWN, Table
from hpcddp.analysis.util.wording import accuracy_words, duration, points, quantity, times, unit
from hpcddp.analysis.verdicts.accuracy import target_sentences


def accuracy(found: Proposal) -> list[Block]:
    """A heading and tables; nothing where no run of the series was evaluated."""
    rows = [size.row for size in found.sizes if pd.notna(size.row["accuracy"])]
    if not rows:
        return []
    about = (
        "Of the whole evaluation set, each sample once, as the median over runs; sizes that trained unlike numbers of samples "
        "are not to be ranked by it."
    )
    blocks: list[Block] = [Heading("Accuracy"), Text(about), _accuracies(rows)]
    targets = targets_of(found)
    if len(targets):
        scaling = pd.DataFrame([dict(size.row) for size in found.sizes])
        blocks += [Text(" ".join(target_sentences(targets, scaling, {}))), _to_accuracy(targets)]
    return blocks


def targets_of(found: Proposal) -> pd.DataFrame:
    """What each size of the series takes to an accuracy: rows of targets_frame."""
    every = found.found.targets
    rows: pd.DataFrame = every[every["series"] == found.sizes[0].row["series"]]
    return rows


def _accuracies(rows: list[Any]) -> Table:
    heads = [_size_head(rows[0]), "n", "accuracy", "between", "samples trained"]
    cells = [
        [
            _size(row),
            str(row["eval_n"]),
            accuracy_words(row["accuracy"], row["eval_correct"], int(row["eval_samples"])),
            UNKNOWN if pd.isna(row["accuracy_low"]) else f"{points(row['accuracy_low'])}–{points(row['accuracy_high'])}",
            _trained(row),
        ]
        for row in rows
    ]
    return text_table(heads, cells)


def _to_accuracy(targets: pd.DataFrame) -> Table:
    rows = [row for _, row in targets.iterrows()]
    base = next((base for base in ("1gpu", "1node") if targets[f"speedup_{base}"].notna().any()), "1gpu")
    against = f"one {unit(rows[0]['device'])}" if base == "1gpu" else "one node"
    heads = [_size_head(rows[0]), "reached", "epochs", "time", "node hours", f"over {against}", "throughput"]
    cells = [
        [
            _size(row),
            f"{row['reached']} of {row['n']}",
            _known(row["epochs"], "{:g}".format),
            _known(row["train_s"], duration),
            _known(row["node_h"], quantity),
            _known(row[f"speedup_{base}"], times),
            _known(row[f"throughput_{base}"], times),
        ]
        for row in rows
    ]
    return text_table(heads, cells)


def _known(value: Any, text: Any) -> str:
    return UNKNOWN if pd.isna(value) else str(text(value))


def _size_head(row: Any) -> str:
    return f"nodes x {unit(row['device'])}s"


def _size(row: Any) -> str:
    return f"{row['nodes']} x {row['gpus_per_node']}"


def _trained(row: Any) -> str:
    if pd.isna(row["samples_trained"]):
        return UNKNOWN
    most = "" if pd.isna(row["samples_trained_most"]) else f"–{int(row['samples_trained_most']):,}"
    return f"{int(row['samples_trained']):,}{most}"
