"""Whether a rate over epochs is that of a clock of the script's own: `python -m tests.bench.probe_epochs`.

The loops of tests/probe/clocked.py on 1, 2 and 4 gloo ranks, with and without an evaluation and a checkpoint behind each epoch. A
figure is the median over measurements of what `analyze` shows / samples by the clock, less 1.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import sys

from tests.probe.clocked import WAYS, rate_by_clock

RANKS = (1, 2, 4)
BOUND_PERCENT = 1.0


def main() -> int:
    """Prints the table and one line of JSON; 1 where the bound does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measurements", type=int, default=3)
    measurements = parser.parse_args().measurements
    print(f"{'loop':<13} {'ranks':>5} {'evaluates':>9} {'median':>8}   from to")
    worst_percent = 0.0
    for way, ranks, evaluates in itertools.product(WAYS, RANKS, (False, True)):
        off_percent = [100 * (rate_by_clock(way, ranks, evaluates) - 1) for _ in range(measurements)]
        median = statistics.median(off_percent)
        worst_percent = max(worst_percent, abs(median))
        spread = f"{min(off_percent):+.2f} {max(off_percent):+.2f}"
        print(f"{way:<13} {ranks:>5} {'yes' if evaluates else 'no':>9} {median:+7.2f}%   {spread}", flush=True)
    holds = worst_percent <= BOUND_PERCENT
    print(json.dumps({"bench": "probe_epochs", "worst_percent": round(worst_percent, 2), "holds": holds}))
    return 0 if holds else 1


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
