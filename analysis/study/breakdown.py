"""The step as tables and figures show it: parts in the order they happen, no more of them than a reader can tell apart."""

from __future__ import annotations

from typing import Any

import pandas as pd

SHOWN = {
    "data_wait": ("data_wait",),
    "h2d_exposed": ("h2d_exposed",),
    "forward": ("forward",),
    "backward": ("backward",),
    "comm_exposed": ("comm_exposed",),
    "transfer": ("transfer",),
    "peer_wait": ("peer_wait",),
    "optimizer": ("optimizer",),
    "other": ("record", "other"),
    "unaccounted": ("unaccounted",),
}
"""Part that is shown -> the recorded parts it sums. Exposed communication is shown only where it could not be split."""

NAMES = {
    "data_wait": "data wait",
    "h2d_exposed": "copy",
    "forward": "forward",
    "backward": "backward",
    "comm_exposed": "communication",
    "transfer": "transfer",
    "peer_wait": "peer wait",
    "optimizer": "optimizer",
    "other": "other",
    "unaccounted": "unaccounted",
}
"""Part -> its name in tables and figures."""

HIDDEN = ("h2d_hidden", "comm_hidden")
"""Parts that overlap others, and so stand outside the sum."""


def shown_parts(scaling: pd.DataFrame) -> pd.DataFrame:
    """Seconds per step by part, for rows of scaling_frame; NA where a part was not measured. Parts that no point measured are
    left out."""
    parts = pd.DataFrame({name: _sum(scaling, of) for name, of in SHOWN.items()}, index=scaling.index)
    parts["comm_exposed"] = parts["comm_exposed"].mask(parts["transfer"].notna())
    return parts.dropna(axis="columns", how="all")


def hidden_parts(scaling: pd.DataFrame) -> pd.DataFrame:
    """Seconds per step of the hidden parts, likewise."""
    parts = pd.DataFrame({name: _sum(scaling, (name,)) for name in HIDDEN}, index=scaling.index)
    return parts.dropna(axis="columns", how="all")


def step_total_s(scaling: pd.DataFrame) -> pd.Series[Any]:
    """Seconds that the parts add up to: the step of the runs that they come from."""
    return scaling["step_hook_s"].fillna(scaling["step_s"])


def _sum(scaling: pd.DataFrame, parts: tuple[str, ...]) -> pd.Series[Any]:
    return scaling[[f"{part}_s" for part in parts]].sum(axis=1, min_count=1)
