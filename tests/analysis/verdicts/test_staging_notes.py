"""What is said of data that were copied to the nodes."""

from __future__ import annotations

from typing import Literal

from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.verdicts.staging_notes import staging_notes
from hpcddp.core.launch_record import NodeCopy, Staging
from tests.worker import given


def staging(wait_s: float) -> Staging:
    """144 GB to two nodes, the slower of which reads 0.8 GB/s."""
    copies = [
        NodeCopy(host=host, folder="/tmp/x", filesystem="ext4", files=1, copied_bytes=144 * 10**9, copy_s=took_s, check_s=20.0)
        for host, took_s in (("a", 180.0), ("b", 100.0))
    ]
    return Staging(wait_s=wait_s, nodes=tuple(copies))


def run(number: int, epoch_s: float, wait_s: float | None, state: Literal["counts", "rejected"] = "counts") -> Run:
    """Of two ranks that train a million samples an epoch."""
    return Run(
        label="n02-g1-b4",
        run=number,
        state=state,
        point=given.point(2, nodes=2),
        staging=None if wait_s is None else staging(wait_s),
        epoch_samples=1_000_000,
        steady_samples=1_000,
        timed_ns=round(2 * epoch_s / 1_000 * 1e9),
    )


def test_a_copy_is_said_with_its_rate() -> None:
    """The median wait with its range, the slowest node's rate; nothing where nothing was copied, or of runs that do not count."""
    (said,) = staging_notes([run(1, 50, 200), run(2, 50, 250), run(3, 50, 210)])
    assert said == (
        "before 3 runs 144 GB at 800 MB/s were copied to each node, for which ranks waited 4 min (3 min to 4 min, median of 3 "
        "runs); no step's time has it"
    )
    assert list(staging_notes([run(1, 50, None), run(2, 50, 9, "rejected")])) == []


def test_a_copy_that_pays_has_its_number_of_epochs() -> None:
    """200 s for 25 s less an epoch: eight."""
    _, said = staging_notes([run(1, 50, 200), run(2, 51, 200), run(3, 49, 200), run(4, 75, None), run(5, 75, None)])
    assert said == (
        "an epoch of n02-g1-b4 takes 50.0 s with a copy on each node and 75.0 s without: the copy, 3 min, pays after 8.0 epochs"
    )
    *_, said = staging_notes([run(1, 50, 5), run(2, 75, None)])
    assert said.endswith("the copy, 5 s, pays within the first epoch")


def test_no_gain_is_claimed_where_runs_overlap() -> None:
    """One run without that is as fast as the slowest with."""
    _, said = staging_notes([run(1, 50, 200), run(2, 76, 200), run(3, 75, None), run(4, 80, None)])
    assert said.endswith("runs with and without overlap, so that no gain is seen")
