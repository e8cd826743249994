"""What copying data to the nodes cost, and after how many epochs it pays."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence

from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.util.wording import quantity
from hpcddp.core.launch_record import Staging
from hpcddp.core.text import count, duration, size


def staging_notes(runs: Sequence[Run]) -> Iterator[str]:
    """One note on all copies, and one for each point that was measured with a copy and without."""
    counting = [run for run in runs if run.state == "counts"]
    staged = [(run, run.staging) for run in counting if run.staging and not run.staging.reused]
    if not staged:
        return
    waits = sorted(staging.wait_s for _, staging in staged)
    ends = duration(waits[0]), duration(waits[-1])
    spread = f" ({ends[0]} to {ends[1]}, median of {len(waits)} runs)" if ends[0] != ends[1] else ""
    yield (
        f"before {count(len(staged), 'run')} {_copied([staging for _, staging in staged])} copied to each node, for which ranks "
        f"waited {duration(statistics.median(waits))}{spread}; no step's time has it"
    )
    points = defaultdict[str, list[Run]](list)
    for run in counting:
        points[run.label].append(run)
    for label, same in points.items():
        yield from _break_even(label, [run for run in same if run.staging], [run for run in same if not run.staging])


def _copied(copies: Sequence[Staging]) -> str:
    """`144 GB at 0.8 GB/s were`"""
    amount = max(staging.copied_bytes for staging in copies)
    rates = [staging.bytes_per_s for staging in copies if staging.bytes_per_s]
    return f"{size(amount)} {f'at {size(statistics.median(rates))}/s ' if rates else ''}were"


def _break_even(label: str, staged: Sequence[Run], direct: Sequence[Run]) -> Iterator[str]:
    """Nothing where one of the two was not measured, or nobody knows what an epoch is."""
    with_copy, without = _epochs_s(staged), _epochs_s(direct)
    if not with_copy or not without:
        return
    took_s, instead_s = statistics.median(with_copy), statistics.median(without)
    times = f"an epoch of {label} takes {quantity(took_s)} s with a copy on each node and {quantity(instead_s)} s without"
    if max(with_copy) >= min(without):
        yield f"{times}: runs with and without overlap, so that no gain is seen"
        return
    waits = [run.staging.wait_s for run in staged if run.staging and not run.staging.reused]
    if not waits:
        return
    wait_s = statistics.median(waits)
    epochs = wait_s / (instead_s - took_s)
    pays = "within the first epoch" if epochs < 1 else f"after {epochs:.1f} epochs"
    yield f"{times}: the copy, {duration(wait_s)}, pays {pays}"


def _epochs_s(runs: Sequence[Run]) -> list[float]:
    return [run.epoch_ns / 1e9 for run in runs if run.epoch_ns]
