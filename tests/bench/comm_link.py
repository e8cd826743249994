"""Whether `bench comm` finds the rate of a link: `python -m tests.bench.comm_link` (root, iproute2).

Two gloo ranks at the ends of a wire throttled by a token bucket (tests/net/link.py). Of `rate` bits per second TCP gets the
payload share, 1448 of 1514; the bandwidth fitted to messages of 4 MiB and more should be that within 2 %. Each rate is measured
ROUNDS times and the median round counts. Send/receive is printed beside the others but not bounded: each of its messages
finds the bucket full, and the first 128 KiB or 2 ms of it pass at once.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from hpcddp.core.comm_record import bus_share
from hpcddp.core.schema import encode
from hpcddp.worker.comm.bench import bench_comm
from hpcddp.worker.ranks import this_rank
from hpcddp.worker.rendezvous import join
from tests.net.link import PAYLOAD_SHARE, Link, throttled_link

RATES_MBIT = (100, 300, 1000)
SIZES = tuple(2**power for power in range(22, 26))
BOUNDED = ("all_reduce", "broadcast")
OPS = (*BOUNDED, "send_recv")
BOUND = 0.02
ROUNDS = 3


def main() -> int:
    """Prints the table and one line of JSON; 1 where a bound does not hold."""
    ratios: dict[int, dict[str, float]] = {}
    print(f"{'Mbit/s':>6}  {'operation':<10}  {'recovered/expected':>18}  rounds")
    with tempfile.TemporaryDirectory() as scratch, throttled_link(None) as link:
        for mbit in RATES_MBIT:
            rounds = [recovered(link, mbit, Path(scratch, f"{mbit}-{number}")) for number in range(ROUNDS)]
            ratios[mbit] = {op: statistics.median(found[op] for found in rounds) for op in OPS}
            for op in OPS:
                each = " ".join(f"{found[op]:.4f}" for found in rounds)
                print(f"{mbit:>6}  {op:<10}  {ratios[mbit][op]:>18.4f}  {each}", flush=True)
    result = summary(ratios)
    print(json.dumps(result))
    return 0 if result["holds"] else 1


def recovered(link: Link, mbit: int, folder: Path) -> dict[str, float]:
    """Operation -> fitted bus bandwidth over the wire's payload rate."""
    link.set_rate(mbit)
    expected = mbit * 1e6 / 8 * PAYLOAD_SHARE
    measured = link.values(folder, measure)[0]["ops"]
    return {op: measured[op]["fit"]["bandwidth_bytes_per_s"] * bus_share(op, 2) / expected for op in OPS}


def measure() -> Any:
    """In each rank."""
    group = join(this_rank("local"), "cpu")
    found = bench_comm(group, SIZES, OPS)
    group.leave()
    return encode(found)


def summary(ratios: dict[int, dict[str, float]]) -> dict[str, object]:
    worst = max(abs(found[op] - 1) for found in ratios.values() for op in BOUNDED)
    return {
        "bench": "comm_link",
        "recovered_over_expected": {mbit: {op: round(found[op], 4) for op in OPS} for mbit, found in ratios.items()},
        "worst_of": BOUNDED,
        "worst": round(worst, 4),
        "bound": BOUND,
        "holds": worst <= BOUND,
    }


if __name__ == "__main__":
    sys.exit(main())
