"""What an epoch and a whole training cost: time, node hours, GPU hours, and the GPUs' energy."""

from __future__ import annotations

from typing import Any

import pandas as pd

COST_COLUMNS = {
    "epoch_samples": "Int64",
    "epoch_s": "Float64",
    "node_h_per_epoch": "Float64",
    "gpu_h_per_epoch": "Float64",
    "gpu_kwh_per_epoch": "Float64",
    "train_epochs": "Int64",
    "train_s": "Float64",
    "node_h_to_train": "Float64",
    "gpu_h_to_train": "Float64",
    "gpu_kwh_to_train": "Float64",
}
"""Of a point at its median throughput, training alone: no start, evaluation or checkpoint. NA where an epoch's samples or the
GPUs' energy are not known, where data or training were left out (`measure.input`), and of a training where nobody said how many
epochs it takes.
"""


def costs(point: dict[str, Any], runs: pd.DataFrame) -> dict[str, Any]:
    """The columns for a row of the scaling table; `runs` are those its throughput is of."""
    samples = runs["epoch_samples"].iloc[0]
    if pd.isna(samples) or point["input"] != "full":
        return {}
    seconds = epoch_s(int(samples), point["samples_per_s"])
    joules = runs["energy_j_per_1000_samples"].median()
    return {
        "epoch_samples": samples,
        "epoch_s": seconds,
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
"""Column -> what it is `train_epochs` times of."""


def with_training(scaling: pd.DataFrame, epochs: int | None) -> pd.DataFrame:
    """The table with the costs of a training that takes so many epochs, at every size the same; as it is for None."""
    if epochs is None:
        return scaling
    known = scaling["epoch_s"].notna()
    columns = {name: scaling[column] * epochs for name, column in OF_TRAINING.items()}
    return scaling.assign(train_epochs=pd.Series(epochs, index=scaling.index, dtype="Int64").where(known), **columns)


def epoch_s(samples: int, samples_per_s: float) -> float:
    """Samples of the training set / throughput: each counts once, whatever a last batch that is not full makes of them."""
    return samples / samples_per_s


def unit_hours(units: int, seconds: float) -> float:
    """Nodes (or GPUs) x hours, as centres account for them: a node is taken whole, however many of its GPUs are used."""
    return units * seconds / 3600


def energy_kwh(samples: int, j_per_1000_samples: float) -> float:
    """J per 1000 samples x samples / 1000 / 3.6e6 J per kWh; of the GPUs, not of hosts, network and cooling."""
    return j_per_1000_samples * samples / 1000 / 3.6e6
