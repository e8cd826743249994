"""Where the warm-up of a series of step times ends. Standard library only."""

from __future__ import annotations

from collections.abc import Sequence

BATCH = 5
"""The 5 of MSER-5."""

FEWEST = 20 * BATCH
"""Steps below which no warm-up is looked for: of fewer than 20 means of five, chance decides."""

WINSORISED_AT = 0.9


def warmup_steps(times_ns: Sequence[int]) -> int | None:
    """How many steps at the start belong to the warm-up; at most half of them. None for fewer than FEWEST steps.

    MSER-5: of the means z_1..z_m of five steps each, leave out the first d with the smallest sum over i > d of
    (z_i - mean of z_(d+1)..z_m)^2 / (m - d)^2, d <= m/2 (White 1997, An effective truncation heuristic for bias reduction in
    simulation output, Simulation 69(6); White, Cobb & Spratt 2000 for means of five). Steps slower than the 90th percentile
    count as that: else a single spike looks like the end of a warm-up.
    """
    if len(times_ns) < FEWEST:
        return None
    means = _winsorised_means(times_ns)
    centre = sum(means) / len(means)
    total = squares = 0.0
    errors = [0.0] * len(means)
    for cut in range(len(means) - 1, -1, -1):
        away, left = means[cut] - centre, len(means) - cut
        total += away
        squares += away * away
        errors[cut] = (squares - total * total / left) / left**2
    allowed = errors[: len(means) // 2 + 1]
    return BATCH * allowed.index(min(allowed))


def _winsorised_means(times_ns: Sequence[int]) -> list[float]:
    most = sorted(times_ns)[int(WINSORISED_AT * (len(times_ns) - 1))]
    capped = [min(time, most) for time in times_ns]
    return [sum(capped[start : start + BATCH]) / BATCH for start in range(0, len(capped) - BATCH + 1, BATCH)]
