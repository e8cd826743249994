"""A typical step, beside the mean that rates come from; and whether the ranks' windows are equally long."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpcddp.analysis.records.steps import RunSteps, after_pauses, mean_step_ns, median_step_ns

CLOCK_PACE = 1e-4
"""By which clocks of two nodes may go apart: quartzes are good to 50 millionths, and a GPU's is not steered."""


@dataclass(frozen=True)
class TypicalStep:
    """Of a run's steady steps."""

    median_ns: float
    p05_ns: float
    """5 % are shorter."""
    p95_ns: float
    p99_ns: float


def typical_step(steps: RunSteps) -> TypicalStep:
    """At least one steady step."""
    p05, p95, p99 = np.quantile(steps.step_ns[steps.steady], (0.05, 0.95, 0.99)).tolist()
    return TypicalStep(median_step_ns(steps) or 0.0, p05, p95, p99)


def windows_apart(steps: RunSteps) -> tuple[float, float] | None:
    """The shortest and the longest of the ranks' windows, ns, where they differ by more than can be: a step for each stretch
    between pauses, and what clocks may drift. None where they do not, as with all ranks that wait for each other, or unknown.
    """
    least, most = float(steps.window_ns.min()), float(steps.window_ns.max())
    begins = np.diff(steps.steady.astype(np.int8), prepend=0) == 1
    stretches = np.count_nonzero(begins | (steps.steady & after_pauses(steps)))
    may = stretches * float(mean_step_ns(steps) or 0) + CLOCK_PACE * most
    return (least, most) if most - least > may else None
