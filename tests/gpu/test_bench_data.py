"""Loaders alone, from pinned memory to the GPUs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hpcddp.core.data_bench_record import DataBenchRecord
from hpcddp.core.data_bench_request import DataBenchRequest
from hpcddp.core.jobspec import spec_to_dict
from hpcddp.core.schema import decode_record
from hpcddp.worker.data_bench import job
from tests.gpu import ranks
from tests.gpu.device import gpu_count
from tests.gpu.marks import touches
from tests.gpu.results import Figures
from tests.worker import given


@touches("hpcddp/worker/data_bench/passes.py", stand_in="copies stay in the processor's memory, and are soon over")
def test_loaders_are_timed_to_the_gpu(tmp_path: Path, figures: Figures) -> None:
    """Every setting gives a rate, the copy to each GPU with it."""
    point = ranks.gpu_point()
    batch, seconds = (point.workload.batch_per_gpu,), 1.0 if ranks.steps(1, 0) else 0.1
    request = DataBenchRequest(loader_workers_per_rank=(0, 2), batch_per_gpu=batch, data=(point.workload.data,), seconds=seconds)
    spec = spec_to_dict(given.job(tmp_path, point, data_bench=request))
    plain = ranks.values(tmp_path / "output", gpu_count(), benched, spec)[0]
    found = decode_record(DataBenchRecord, plain)
    assert (found.device, found.ranks) == ("cuda", gpu_count())
    assert [(rate.loader_workers_per_rank, rate.cache) for rate in found.rates] == [(0, "warm"), (2, "warm")]
    for rate in found.rates:
        figures.add(f"loaded_samples_per_s_{rate.loader_workers_per_rank}_workers", rate.samples_per_s, least=1)


def benched(spec: dict[str, Any]) -> dict[str, Any]:
    return job.run(spec)
