"""What preflight recorded beside the runs, with the nodes that it found slow."""

from __future__ import annotations

from collections.abc import Sequence

from hpcddp.analysis.records.attempt_files import decode_record_file
from hpcddp.analysis.records.rows import Rejected
from hpcddp.analysis.util.regular_files import read_object
from hpcddp.core.errors import HpcddpError
from hpcddp.core.preflight import PreflightRecord
from hpcddp.core.run_root import Study


def read_preflights(study: Study, warnings: list[str]) -> tuple[PreflightRecord, ...]:
    """Oldest first; what cannot be read is a warning."""
    found = []
    for file in sorted(study.preflights.glob("*.json")) if study.preflights.is_dir() else []:
        try:
            found.append(decode_record_file(PreflightRecord, read_object(file), file.name))
        except (Rejected, HpcddpError, FileNotFoundError) as error:
            warnings.append(f"preflight/{file.name} cannot be read: {error}")
    return tuple(sorted(found, key=lambda record: record.unix_ns))


def latest_on(host: str, records: Sequence[PreflightRecord], before_unix_ns: int | None) -> PreflightRecord | None:
    """The newest that measured the host, of those before a run began; `records` oldest first."""
    known = [record for record in records if before_unix_ns is None or record.unix_ns <= before_unix_ns]
    return next((record for record in reversed(known) if host in record.hosts), None)
