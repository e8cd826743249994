"""Loaders of several attempts or runs as one."""

from __future__ import annotations

from hpcddp.analysis.records.merged_loader import pooled
from hpcddp.core.attempt_records import LoaderTimes


def times(samples: int, rate: float, processor_wait_s: float | None = 0.5) -> LoaderTimes:
    return LoaderTimes(
        workers=2,
        samples_per_s=rate,
        samples=samples,
        batches=samples // 10,
        read_s=4.0,
        compute_s=3.0,
        processor_wait_s=processor_wait_s,
        hand_over_s=1.0,
        receive_s=0.5,
    )


def test_times_add_up_and_rates_weigh_by_samples() -> None:
    """300 samples at 100/s and 100 at 50/s take 3 + 2 s: 80/s."""
    found = pooled([times(300, 100.0), None, times(100, 50.0)])
    assert found is not None
    assert (found.samples_per_s, found.samples, found.batches, found.workers) == (80.0, 400, 40, 2)
    assert (found.read_s, found.compute_s, found.processor_wait_s, found.hand_over_s, found.receive_s) == (8, 6, 1, 2, 1)
    assert found.storage_wait_s == 1


def test_what_one_does_not_know_is_not_known() -> None:
    """For what it waited; of none, nothing."""
    found = pooled([times(300, 100.0), times(100, 50.0, None)])
    assert found is not None
    assert (found.processor_wait_s, found.storage_wait_s) == (None, None)
    assert pooled([None]) is None
