"""What benchmarks of a study's data found."""

from __future__ import annotations

from hpcddp.analysis.records.decoding import decode_file
from hpcddp.analysis.records.rows import Rejected
from hpcddp.analysis.util.regular_files import read_object
from hpcddp.core.data_bench_record import DataBenchRecord
from hpcddp.core.errors import HpcddpError
from hpcddp.core.run_root import Study


def read_data_benches(study: Study, warnings: list[str]) -> tuple[DataBenchRecord, ...]:
    """Oldest first; what cannot be read is a warning."""
    found = []
    for file in sorted(study.data_benches.glob("*/bench-data.json")) if study.data_benches.is_dir() else []:
        name = file.relative_to(study.folder)
        try:
            found.append(decode_file(DataBenchRecord, read_object(file), str(name)))
        except (Rejected, HpcddpError, FileNotFoundError) as error:
            warnings.append(f"{name} cannot be read: {error}")
    return tuple(sorted(found, key=lambda record: record.unix_ns))
