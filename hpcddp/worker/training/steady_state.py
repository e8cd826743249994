"""Where the warm-up of a series of step times ends. Standard library only."""

from __future__ import annotations

from collections.abc import Sequence

BATCH = 5
"""The 5 of MSER-5."""

FEWEST = 20 * BATCH
"""Steps below which no warm-up is detected: of fewer than 20 means of five, chance decides."""

FEWEST_MEANS_LEFT = 5
"""After a cut: of fewer means, chance makes the error small."""

LATER_CUT_SHARE = 0.25
"""A cut in the second half whose error is below this share of the best one in the first half: the times settle there, if ever.
Of sound series (AR(1) up to 0.9, 100 to 2000 steps) one in fifty has one."""

LAST_CUT_SHARE = 0.5
"""The share where the best cut of the first half is its last: a steady fall over all steps has 0.25 there."""

WINSORISED_AT = 0.9


def warmup_steps(times_ns: Sequence[int]) -> int | None:
    """How many steps at the start belong to the warm-up. None where that cannot be seen: of fewer than FEWEST steps, and where
    they settle in the second half, if ever.

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
    half = len(means) // 2
    allowed, later = errors[: half + 1], errors[half + 1 : len(means) - FEWEST_MEANS_LEFT + 1]
    cut, least = allowed.index(min(allowed)), min(allowed)
    share = LAST_CUT_SHARE if cut == half else LATER_CUT_SHARE
    return None if min(later, default=least) < share * least else BATCH * cut


def _winsorised_means(times_ns: Sequence[int]) -> list[float]:
    most = sorted(times_ns)[int(WINSORISED_AT * (len(times_ns) - 1))]
    capped = [min(time, most) for time in times_ns]
    return [sum(capped[start : start + BATCH]) / BATCH for start in range(0, len(capped) - BATCH + 1, BATCH)]
