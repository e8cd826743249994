"""What a job of `hpcddp bench data` is to measure. For Python 3.10, without libraries."""

from __future__ import annotations

from dataclasses import dataclass

from hpcddp.core.point import Data
from hpcddp.core.schema import Count, NonNegative, Positive


@dataclass(frozen=True, kw_only=True)
class DataBenchRequest:
    """What a job is to measure: every combination of these."""

    loader_workers_per_rank: tuple[Count, ...] = ()
    """None given: powers of two up to the cores of a rank."""
    batch_per_gpu: tuple[Positive, ...]
    data: tuple[Data, ...]
    """The data set with each decoder and form."""
    seconds: NonNegative
    """Of each measurement, about."""
