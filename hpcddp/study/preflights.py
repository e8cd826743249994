"""What preflight found of the nodes of a study's jobs."""

from __future__ import annotations

from hpcddp.core.errors import HpcddpError
from hpcddp.core.preflight_judgement import preflight_words
from hpcddp.core.preflight_record import PreflightRecord
from hpcddp.core.run_root import Study
from hpcddp.study.study_records import read_record


def read_preflights(study: Study) -> list[PreflightRecord]:
    """Oldest first; those that cannot be read are passed over."""
    found = []
    for file in study.preflights.glob("*.json"):
        try:
            record = read_record(PreflightRecord, file)
        except (HpcddpError, OSError):
            continue
        found += [record] if record else []
    return sorted(found, key=lambda record: record.unix_ns)


def newest_preflight_words(study: Study) -> str | None:
    """`preflight of job 4711: 4 nodes, none more than 10 % below the median`; None where there was none."""
    records = read_preflights(study)
    return f"preflight of job {records[-1].job}: {preflight_words(records[-1])}" if records else None
