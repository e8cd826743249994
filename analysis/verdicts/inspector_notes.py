"""Whether NCCL Inspector, where a run had it, saw what hpcddp's communication hook timed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hpcddp.analysis.runs.inspected import witnesses
from hpcddp.analysis.runs.run import Run
from hpcddp.core.text import count


def inspector_notes(runs: Sequence[Run]) -> Iterator[str]:
    """A sentence for each run whose largest bucket the plugin saw, too."""
    for run in runs:
        both = witnesses(run) if run.state == "counts" else None
        if both is None:
            continue
        words = "which agree" if both.agree else "which do not agree: do not rely on this run's transfer"
        times = f"take {both.inspector_s * 1e3:.3g} ms by NCCL Inspector, {both.hook_s * 1e3:.3g} ms by the communication hook"
        yield f"r{run.run} of {run.label}: {count(both.count, 'all-reduce')} of {both.bytes / 1e6:.3g} MB {times}, {words}"
