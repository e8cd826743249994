"""prediction.json: what a study's points were expected to bring, written before their first job and never after it.

Version history of its schema: 1 (0.1.0).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hpcddp.core.schema import Count, NonNegative, Positive

Limit = Literal["network", "input", "compute", "unknown"]
"""What holds a point back: the exchange between nodes, waiting for data, neither, or the anchor is only a number."""


@dataclass(frozen=True, kw_only=True)
class PredictedPoint:
    """What one point should bring, by an anchor; numbers are None, and `reason` says why, where none can be told."""

    label: str
    samples_per_s: NonNegative | None = None
    low: NonNegative | None = None
    high: NonNegative | None = None
    """With `samples_per_s` the ends of its band; alone an upper bound."""
    step_s: NonNegative | None = None
    exposed_s: NonNegative | None = None
    """Of it, what the exchange between nodes adds to the computation."""
    waits_s: NonNegative | None = None
    """Of it, what ranks wait for data, as on the anchor."""
    limit: Limit | None = None
    reason: str | None = None
    anchor: str | None = None
    """The label of the measured point, or what was given in its place."""
    anchor_runs: tuple[Positive, ...] = ()
    anchor_samples_per_s: NonNegative | None = None
    network: str | None = None
    """The rate between nodes, in words."""
    network_from: str | None = None
    """`profile`, or the benchmark that found it."""
    made_unix_s: Count | None = None
    version: str | None = None
    """Of hpcddp."""


@dataclass(frozen=True, kw_only=True)
class PredictionRecord:
    """The file: each point as the last submission before its first run had it."""

    schema: Literal[1] = 1
    points: tuple[PredictedPoint, ...] = ()
