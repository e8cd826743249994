"""What a prediction takes: `python -m tests.bench.predict_speed`.

`plan` of a sweep whose node was measured in 12 runs of 500 steps on 4 ranks, Python's start included, and each shipped sweep's
points predicted on 1 to 1,024 nodes. Medians over rounds.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from hpcddp.cluster.profile_file import load_profile
from hpcddp.core.point import Point
from hpcddp.core.run_root import Study
from hpcddp.predict.expected import AnchorSource, Predictions, why_not
from hpcddp.predict.model import Anchor
from hpcddp.sweep.expand import expand
from hpcddp.sweep.file import read_sweep
from tests.analysis.synthetic import MS, write_runs, write_study
from tests.predict.test_expected import predictions_of

JOBS = Path(__file__).parents[2] / "jobs"
ROUNDS, RUNS, STEPS = 7, 12, 500
PLAN_BOUND_S, SWEEPS_BOUND_S = 2.0, 1.0


def main() -> int:
    """Prints both and a line of JSON; 1 where a bound does not hold."""
    with tempfile.TemporaryDirectory() as scratch:
        found = predictions_of(Path(scratch))
        points = [each.point for each in found.points]
        node = next(point for point in points if point.layout.nodes == 1 and point.layout.gpus_per_node == 4)
        write_runs(write_study(found.study.folder, points), node, [100 * MS + run for run in range(RUNS)], steps=STEPS)
        command = [sys.executable, "-m", "hpcddp", "plan", "small.yaml"]
        plan_s = median_s(lambda: subprocess.run(command, cwd=scratch, capture_output=True, check=True))
    sweeps_s = max(median_s(partial(on_all_nodes, file)) for file in sorted(JOBS.glob("*.yaml")))
    print(f"plan of a measured node: {plan_s:.2f} s; the slowest shipped sweep on 1 to 1,024 nodes: {sweeps_s:.2f} s")
    holds = plan_s < PLAN_BOUND_S and sweeps_s < SWEEPS_BOUND_S
    bounds = {"plan_bound_s": PLAN_BOUND_S, "sweeps_bound_s": SWEEPS_BOUND_S}
    print(
        json.dumps(
            {"bench": "predict_speed", "plan_s": round(plan_s, 3), "sweeps_s": round(sweeps_s, 3), **bounds, "holds": holds}
        )
    )
    return 0 if holds else 1


def median_s(call: Callable[[], object]) -> float:
    """Of a call, in seconds."""
    seconds = []
    for _ in range(ROUNDS):
        start_s = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start_s)
    return statistics.median(seconds)


def on_all_nodes(file: Path) -> int:
    """How many predictions there are of the sweep's points on 1, 2, 4 ... 1,024 nodes, from an anchor of 100 ms."""
    source = read_sweep(file)
    profile = load_profile(str(source.sweep.cluster))
    found = Predictions(Study(file.with_suffix("")), source, profile, expand(source, profile))
    wanted = [point for point in found.wanted() if not why_not(point)]
    return len([found.on(point, anchor_of(point), 2**doublings) for point in wanted for doublings in range(11)])


def anchor_of(point: Point) -> AnchorSource:
    batch = point.workload.known_batch or 1
    anchor = Anchor(nodes=1, gpus_per_node=point.layout.gpus_per_node, batch_per_gpu=batch, step_s=0.1, waits=0.0)
    return AnchorSource(name="given", anchor=anchor)


if __name__ == "__main__":
    sys.exit(main())
