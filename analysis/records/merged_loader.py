"""The loaders of several attempts or runs as one: times add up, rates are weighted by the samples they were measured with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hpcddp.analysis.records.merged import merged_fields
from hpcddp.core.attempt_records import LoaderTimes


def pooled(found: Iterable[LoaderTimes | None]) -> LoaderTimes | None:
    """None where nothing is known of any. Of equal workers, as attempts and runs of one point have."""
    known = [each for each in found if each is not None]
    if not known:
        return None
    took_s = sum(each.samples / each.samples_per_s for each in known if each.samples_per_s)
    rate = sum(each.samples for each in known) / took_s if took_s else 0.0
    return replace(known[0], **merged_fields(known), samples_per_s=rate)
