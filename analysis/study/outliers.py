"""Runs far from the others of their point: shown, never dropped. The median does not follow them; their cause is worth a look."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import NormalDist, median

import pandas as pd

from hpcddp.analysis.runs.intervals import interval_rank
from hpcddp.analysis.study.scaling import by_point, rates_per_s, timed_runs

FAR = 5
"""Scaled median absolute deviations. With 3, as is usual for large samples, one in five points of 6 to 20 clean runs had a run
to name in simulation, with 5 one in 15 (6 runs) to 80 (20); ten standard deviations are still found in 92 % of points of 6.
"""

SMALLEST = 0.02
"""Share of the median below which no difference is an outlier: nobody looks for its cause."""

TO_DEVIATION = 1 / NormalDist().inv_cdf(0.75)
"""Of a normal distribution, standard deviation / median absolute deviation."""

OUTLIER_COLUMNS = {"label": "string", "run": "Int64", "series": "string", "percent": "Float64"}
"""`percent`: throughput above (below: negative) the median of the point's runs."""


def outliers(values: Sequence[float]) -> list[int]:
    """Indices of values more than FAR scaled median absolute deviations, and SMALLEST, off the median; none below six values."""
    if interval_rank(len(values)) is None:
        return []
    middle = median(values)
    off = [abs(value - middle) for value in values]
    least = max(FAR * TO_DEVIATION * median(off), SMALLEST * middle)
    return [index for index, each in enumerate(off) if each > least]


def outliers_frame(runs: pd.DataFrame) -> pd.DataFrame:
    """A row for each run that counts and is far from the others of its point."""
    rows = []
    for _, group in by_point(runs):
        timed = timed_runs(group)
        rates = [float(rate) for rate in rates_per_s(timed)]
        for index in outliers(rates):
            percent = 100 * (rates[index] / median(rates) - 1)
            rows.append({**timed.iloc[index][["label", "run", "series"]], "percent": percent})
    return pd.DataFrame(rows, columns=list(OUTLIER_COLUMNS)).astype(OUTLIER_COLUMNS)


def outlier_notes(far: pd.DataFrame) -> Iterator[str]:
    """A sentence on the run that is farthest from the others of its point, and how many more there are."""
    if len(far):
        worst = far.iloc[int(far["percent"].abs().argmax())]
        direction = "slower" if worst["percent"] < 0 else "faster"
        others = f" and {len(far) - 1} more (outliers.csv)" if len(far) > 1 else ""
        yield (
            f"r{worst['run']} of {worst['label']} is {abs(worst['percent']):.1f} % {direction} than its point's median{others}: "
            f"far from the others, counted all the same; look for what was different there"
        )
