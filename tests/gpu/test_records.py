"""What a run on a GPU records of where it ran, what it refuses to run on, and its profile."""

from __future__ import annotations

import dataclasses
import gzip
import json
import re
from pathlib import Path

import pytest
import torch

from hpcddp.core.errors import HpcddpError
from hpcddp.core.records import trace_file
from hpcddp.worker.comm.trace import has_kernels
from hpcddp.worker.gpus import require_gpu
from hpcddp.worker.ranks import this_rank
from tests.gpu import ranks
from tests.gpu.device import gpu_count, is_real
from tests.gpu.marks import touches
from tests.gpu.results import Figures


@touches(
    "hpcddp/worker/launch_record.py",
    "hpcddp/worker/main.py",
    "hpcddp/worker/training/profiling.py",
    stand_in="versions are made up; the profiler sees no kernels",
)
def test_where_it_ran(tmp_path: Path, figures: Figures) -> None:
    """Names of GPUs, versions of CUDA, NCCL and cuDNN (or ROCm's), and a profile that shows kernels."""
    attempt = ranks.run_point(tmp_path, ranks.gpu_point(measure={"profile_steps": 2}))
    attempt.check_done()
    launch, node = attempt.launch, attempt.node
    assert launch["gpus"]
    libraries = ("cuda", "nccl", "cudnn") if torch.version.hip is None else ("rocm", "rccl", "miopen")
    assert all(launch["versions"][name] for name in ("torch", *libraries))
    assert len(node["gpus"]) >= gpu_count()
    assert all(gpu["memory_bytes"] > 0 and re.fullmatch(r"\d+\.\d|gfx\w+", gpu["capability"]) for gpu in node["gpus"])
    events = json.loads(gzip.decompress(trace_file(attempt.folder, 0).read_bytes()))["traceEvents"]
    assert has_kernels(events) == is_real()
    figures.add("flops_per_sample", attempt.end["flops_per_sample"], least=1.0)


@touches("hpcddp/worker/gpus.py", stand_in="it says of itself that it is a GPU of capability 9.0")
def test_a_rank_without_a_gpu_of_its_own(tmp_path: Path) -> None:
    """Each rank has the GPU of its local rank; one more than there are GPUs is refused, with the next step."""
    devices, sentences = zip(*ranks.values(tmp_path, gpu_count(), own_and_missing_gpu), strict=True)
    assert list(devices) == [f"cuda:{rank}" for rank in range(gpu_count())]
    assert all("ask for them per node" in sentence for sentence in sentences)


def own_and_missing_gpu() -> tuple[str, str]:
    mine = this_rank("local")
    device = require_gpu(mine)
    with pytest.raises(HpcddpError) as refused:
        require_gpu(dataclasses.replace(mine, local_rank=gpu_count()))
    return str(device), str(refused.value)
