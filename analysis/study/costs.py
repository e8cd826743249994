"""What an epoch and a whole training cost: time, node hours, GPU hours, and the GPUs' energy."""

from __future__ import annotations

import statistics
from typing import Any

import pandas as pd

COST_COLUMNS = {
    "epoch_samples": "Int64",
    "epoch_s": "Float64",
    "epoch_s_low": "Float64",
    "epoch_s_high": "Float64",
    "pauses_s_per_epoch": "Float64",
    "node_h_per_epoch": "Float64",
    "gpu_h_per_epoch": "Float64",
    "gpu_kwh_per_epoch": "Float64",
    "train_epochs": "Int64",
    "train_s": "Float64",
    "node_h_to_train": "Float64",
    "gpu_h_to_train": "Float64",
    "gpu_kwh_to_train": "Float64",
}
"""Means over the runs of a point, as hours are billed by their sum; `_low` and `_high` are the least and the most of any run, NA
for a single one. Training alone: no start, evaluation or checkpoint. What these and other pauses of `work: train` took per epoch
is `pauses_s_per_epoch`, and in nothing else. NA where an epoch's samples or the GPUs' energy are not known, where data or
training were left out (`measure.input`), and of a training where nobody said how many epochs it takes.
"""


def costs(point: dict[str, Any], runs: pd.DataFrame) -> dict[str, Any]:
    """COST_COLUMNS of a row of the scaling table, with the `rates` of its `runs`, those that its throughput comes from."""
    samples = runs["epoch_samples"].iloc[0]
    if pd.isna(samples) or point["input"] != "full":
        return {}
    times = [int(samples) / rate for rate in point["rates"]]
    seconds = float(statistics.mean(times))
    joules = runs["energy_j_per_1000_samples"].mean()
    several = len(times) > 1
    return {
        "epoch_samples": samples,
        "epoch_s": seconds,
        "epoch_s_low": float(min(times)) if several else None,
        "epoch_s_high": float(max(times)) if several else None,
        "pauses_s_per_epoch": runs["pauses_s"].mean(),
        "node_h_per_epoch": unit_hours(point["nodes"], seconds),
        "gpu_h_per_epoch": None if point["device"] == "cpu" else unit_hours(point["gpus"], seconds),
        "gpu_kwh_per_epoch": None if pd.isna(joules) else energy_kwh(int(samples), joules),
    }


OF_TRAINING = {
    "train_s": "epoch_s",
    "node_h_to_train": "node_h_per_epoch",
    "gpu_h_to_train": "gpu_h_per_epoch",
    "gpu_kwh_to_train": "gpu_kwh_per_epoch",
}
"""Column of a training -> the column of an epoch that `train_epochs` multiplies."""


def with_training(scaling: pd.DataFrame, epochs: int | None) -> pd.DataFrame:
    """The table with the costs of a training of `epochs` epochs, the same number at every size; unchanged where `epochs` is
    None."""
    if epochs is None:
        return scaling
    known = scaling["epoch_s"].notna()
    columns = {name: scaling[column] * epochs for name, column in OF_TRAINING.items()}
    return scaling.assign(train_epochs=pd.Series(epochs, index=scaling.index, dtype="Int64").where(known), **columns)


def unit_hours(units: int, seconds: float) -> float:
    """Nodes (or GPUs) x hours, as centres account for them: a node is taken whole, however many of its GPUs are used."""
    return units * seconds / 3600


def energy_kwh(samples: int, j_per_1000_samples: float) -> float:
    """J per 1000 samples x samples / 1000 / 3.6e6 J per kWh: energy of the GPUs, without hosts, network and cooling."""
    return j_per_1000_samples * samples / 1000 / 3.6e6
