"""What torch's profiler says of the exchange in a script's steps, as end.json has it. Standard library only, Python 3.10."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hpcddp.core.schema import NonNegative, Positive


@dataclass(frozen=True, kw_only=True)
class ProfiledExchange:
    """Means over ranks and the profiled steps, which the profiler makes longer than the timed ones."""

    method: str
    """How it was measured, in words."""
    steps: Positive
    step_s: NonNegative
    collectives_s: NonNegative
    """With a collective on its way, for each rank its own."""
    exposed_s: NonNegative
    """Of that, with nothing computing meanwhile: transfer, and what a rank waits for others."""
    by_operation_s: Mapping[str, NonNegative]
    """`all_gather`: its collectives one by one; several may be on their way at a time."""
    step_clock_exposed_s: NonNegative | None = None
    """comm_exposed of the same steps by the step clock; None where nothing marks it."""
