"""What launch.json says of the training set."""

from __future__ import annotations

import sys
from pathlib import Path

from hpcddp.core.catalog import dataset_facts, is_on_disk
from hpcddp.core.jobspec import JobSpec, data_root, data_root_as_given
from hpcddp.core.launch_record import TrainingData
from hpcddp.core.point import Point
from hpcddp.data.in_memory import resident_bytes
from hpcddp.data.small_sets import unofficial_files


def training_data(spec: JobSpec, samples: int, decoder: str | None) -> TrainingData:
    """Called by rank 0, which reads official files once more for their checksums."""
    return TrainingData(
        name=spec.point.workload.data.name,
        root=data_root_as_given(spec),
        samples=samples,
        decoder=decoder,
        resident_bytes=_resident_bytes(spec.point, samples),
        unofficial=_unofficial(spec),
        form=spec.point.workload.data.form if spec.point.workload.data.name == "bigmnist" else None,
    )


def _resident_bytes(point: Point, samples: int) -> int | None:
    data = point.workload.data
    facts = dataset_facts(data) if data.resident and point.measure.input != "synthetic" else None
    return resident_bytes(facts.shape, samples) if facts else None


def _unofficial(spec: JobSpec) -> tuple[str, ...] | None:
    """With a remark in the job's log."""
    point = spec.point
    if point.work == "comm" or point.measure.input == "synthetic" or point.own_loop or not is_on_disk(point.workload.data):
        return None
    if (root := data_root(spec)) is None:
        return None
    found = unofficial_files(point.workload.data.name, Path(root))
    if found:
        print(f"hpcddp: {', '.join(found)} of {root}: not the official file, by size or checksum", file=sys.stderr, flush=True)
    return found
