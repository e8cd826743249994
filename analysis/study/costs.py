"""What an epoch and a whole training cost: time, node hours, GPU hours, and the GPUs' energy."""

from __future__ import annotations

from typing import Any

import pandas as pd

COST_COLUMNS = {
    "epoch_samples": "Int64",
    "epoch_s": "Float64",
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
"""Of a point at its median throughput, training alone: no start, evaluation or checkpoint. What these and other pauses of
`work: train` took per epoch is `pauses_s_per_epoch`, and in nothing else. NA where an epoch's samples or the
GPUs' energy are not known, where data or training were left out (`measure.input`), and of a training where nobody said how many
epochs it takes.
"""


def costs(point: dict[str, Any], runs: pd.DataFrame) -> dict[str, Any]:
    """COST_COLUMNS of a point, a row of the scaling table; `runs` are the runs that its throughput comes from."""
    samples = runs["epoch_samples"].iloc[0]
    if pd.isna(samples) or point["input"] != "full":
        return {}
    seconds = epoch_s(int(samples), point["samples_per_s"])
    joules = runs["energy_j_per_1000_samples"].median()
    return {
        "epoch_samples": samples,
        "epoch_s": seconds,
        "pauses_s_per_epoch": runs["pauses_s"].median(),
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


def epoch_s(samples: int, samples_per_s: float) -> float:
    """Samples of the training set / throughput. Each sample counts once, however the last batch is filled up or dropped."""
    return samples / samples_per_s


def unit_hours(units: int, seconds: float) -> float:
    """Nodes (or GPUs) x hours, as centres account for them: a node is taken whole, however many of its GPUs are used."""
    return units * seconds / 3600


def energy_kwh(samples: int, j_per_1000_samples: float) -> float:
    """J per 1000 samples x samples / 1000 / 3.6e6 J per kWh: energy of the GPUs, without hosts, network and cooling."""
    return j_per_1000_samples * samples / 1000 / 3.6e6
