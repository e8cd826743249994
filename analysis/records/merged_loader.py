"""The loaders of several attempts or runs as one: times add up, rates are weighted by the samples they were measured with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hpcddp.core.loader_record import LoaderTimes


def pooled(found: Iterable[LoaderTimes | None]) -> LoaderTimes | None:
    """None where nothing is known of any. Of equal workers, as attempts and runs of one point have."""
    known = [each for each in found if each is not None]
    if not known:
        return None
    samples = sum(each.samples for each in known)
    took_s = sum(each.samples / each.samples_per_s for each in known if each.samples_per_s)
    waits = [each.processor_wait_s for each in known if each.processor_wait_s is not None]
    return replace(
        known[0],
        samples_per_s=samples / took_s if took_s else 0.0,
        samples=samples,
        batches=sum(each.batches for each in known),
        read_s=sum(each.read_s for each in known),
        compute_s=sum(each.compute_s for each in known),
        processor_wait_s=sum(waits) if len(waits) == len(known) else None,
        read_bytes=None if any(each.read_bytes is None for each in known) else sum(each.read_bytes or 0 for each in known),
        hand_over_s=sum(each.hand_over_s for each in known),
        receive_s=sum(each.receive_s for each in known),
    )
