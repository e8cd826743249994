"""The table of accuracy: exact counts, what was trained for them, and the training loss at either end."""

from __future__ import annotations

from typing import Any

import pandas as pd

from hpcddp.analysis.report.table import (
    UNKNOWN,
    Cell,
    Column,
    Spec,
    Table,
    between,
    key_columns,
    number_of,
    size_columns,
    spread_head,
    table_of,
    unit_of,
)
from hpcddp.analysis.study.series import Apart
from hpcddp.analysis.util.wording import accuracy_words, points, quantity, time_words, times

LOSS = "loss"
"""Heading of its columns."""

accuracy_spread = between("accuracy_low", "accuracy_high", points)


def accuracy_table(frame: pd.DataFrame, apart: Apart) -> Table:
    """Points of which accuracy or loss is known; no rows where nothing was evaluated."""
    known = frame[frame["accuracy"].notna() | frame["loss_end"].notna()] if frame["accuracy"].notna().any() else frame[:0]
    specs: list[Spec] = [
        *size_columns(unit_of(frame)),
        *key_columns(apart),
        (Column("n"), number_of("eval_n", str)),
        (Column("accuracy"), accuracy_cell),
        (Column(spread_head(known["accuracy_interval"]), within=" ({})"), accuracy_spread),
        (Column("samples trained", terminal="trained"), trained_cell),
        (Column("evaluated", LOSS, terminal=None), number_of("eval_loss", quantity)),
        *_losses(),
    ]
    note = (
        "Of the whole evaluation set, each sample once, after so many trained samples; medians over n runs. Points that trained "
        f"unlike amounts are not ranked. {_loss_note(known)}"
    )
    return table_of("accuracy", "Accuracy", note, specs, known)


def losses(frame: pd.DataFrame, apart: Apart) -> Table:
    """The training loss of studies that evaluated nothing."""
    known = frame[frame["loss_end"].notna()] if frame["accuracy"].isna().all() else frame[:0]
    specs: list[Spec] = [*size_columns(unit_of(frame)), *key_columns(apart), *_losses()]
    return table_of("losses", "Training loss", _loss_note(known), specs, known)


def _losses() -> list[Spec]:
    return [
        (Column("at the start", LOSS, terminal="loss: start"), number_of("loss_start", quantity)),
        (Column("at the end", LOSS, terminal="end"), number_of("loss_end", quantity)),
    ]


def to_accuracy(frame: pd.DataFrame, apart: Apart) -> Table:
    """How long each size takes to an accuracy, and its speedup beside the throughput's."""
    specs: list[Spec] = [
        *size_columns(unit_of(frame)),
        *key_columns(apart),
        (Column("accuracy"), number_of("target", lambda share: f"{points(share)} %")),
        (Column("reached", numeric=False, always=True), reached_cell),
        (Column("epochs"), number_of("epochs", lambda epochs: f"{epochs:g}")),
        (Column("time"), number_of("train_s", time_words)),
        (Column(spread_head(frame["interval"]), within=" ({})"), between("train_s_low", "train_s_high", time_words)),
        (Column("node h"), number_of("node_h", quantity)),
        *_speedups("1gpu", f"{AGAINST}1 {unit_of(frame)}"),
        *_speedups("1node", f"{AGAINST}1 node"),
    ]
    note = (
        "Training time, evaluations left out, to the end of the first evaluated epoch that is as accurate; medians over runs, "
        "unknown where half of them did not reach it; node hours are means, as they are billed, where all did. "
        f"The accuracy is {' or '.join(dict.fromkeys(frame['target_of'].dropna()))}."
    )
    return table_of("to_accuracy", "Time to accuracy", note, specs, frame)


AGAINST = "vs "
"""How the headings of speedups begin."""


def reached_cell(row: Any) -> Cell:
    """`5 of 6` runs reached the accuracy."""
    return Cell(f"{row['reached']} of {row['n']}", float(row["reached"]))


def _speedups(base: str, head: str) -> list[Spec]:
    return [
        (Column("to accuracy", head, terminal=head), number_of(f"speedup_{base}", lambda value: f"{times(value)}×")),
        (Column("throughput", head, terminal="samples/s"), number_of(f"throughput_{base}", lambda value: f"{times(value)}×")),
    ]


def _loss_note(known: pd.DataFrame) -> str:
    steps = sorted({int(each) for each in known["loss_steps"].dropna()})
    over = "step" if steps in ([], [1]) else f"{steps[-1]} steps" if len(steps) == 1 else f"{steps[0]} to {steps[-1]} steps"
    return f"Loss at the start and at the end: mean over ranks and the first and last {over}."


def accuracy_cell(row: Any) -> Cell:
    """`97.22 % (9,722 of 10,000)`"""
    if pd.isna(row["accuracy"]):
        return Cell(UNKNOWN, None)
    text = accuracy_words(row["accuracy"], row["eval_correct"], int(row["eval_samples"]))
    return Cell(text, float(row["accuracy"]))


def trained_cell(row: Any) -> Cell:
    """Samples, `640,000–650,000` where runs differ."""
    least, most = row["samples_trained"], row["samples_trained_most"]
    if pd.isna(least):
        return Cell(UNKNOWN, None)
    return Cell(f"{int(least):,}" if pd.isna(most) else f"{int(least):,}–{int(most):,}", float(least))
