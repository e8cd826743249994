"""What is recorded of GPUs and of the node they are in: by a run, by a survey, by preflight."""

from __future__ import annotations

import dataclasses
import gzip
import json
import re
from pathlib import Path

import pytest
import torch

from hpcddp.core.errors import HpcddpError
from hpcddp.core.jobspec import spec_to_dict
from hpcddp.core.preflight import PreflightRecord, slow_readings
from hpcddp.core.records import trace_file
from hpcddp.core.schema import decode_record, encode
from hpcddp.worker import preflight
from hpcddp.worker.comm.trace import has_kernels
from hpcddp.worker.gpus import require_gpu
from hpcddp.worker.ranks import this_rank
from hpcddp.worker.survey import survey_node
from tests.gpu import ranks
from tests.gpu.device import Figures, gpu_count, is_real, touches
from tests.worker import given


@touches(
    "worker/launch_record.py",
    "worker/main.py",
    "worker/training/profiling.py",
    stand_in="versions are made up; the profiler sees no kernels",
)
def test_where_it_ran(recorded_run: ranks.Attempt, figures: Figures) -> None:
    attempt = recorded_run
    launch, node = attempt.launch, attempt.node
    assert launch["gpus"]
    libraries = ("cuda", "nccl", "cudnn") if torch.version.hip is None else ("rocm", "rccl", "miopen")
    assert all(launch["versions"][name] for name in ("torch", *libraries))
    assert len(node["gpus"]) >= gpu_count()
    assert all(gpu["memory_bytes"] > 0 and re.fullmatch(r"\d+\.\d|gfx\w+", gpu["capability"]) for gpu in node["gpus"])
    events = json.loads(gzip.decompress(trace_file(attempt.folder, 0).read_bytes()))["traceEvents"]
    assert has_kernels(events) == is_real()
    figures.add("flops_per_sample", attempt.end["flops_per_sample"], least=1.0)


@touches("worker/gpus.py", stand_in="it says of itself that it is a GPU of capability 9.0")
def test_a_rank_without_a_gpu_of_its_own(tmp_path: Path) -> None:
    devices, sentences = zip(*ranks.values(tmp_path, gpu_count(), own_and_missing_gpu), strict=True)
    assert list(devices) == [f"cuda:{rank}" for rank in range(gpu_count())]
    assert all("ask for them per node" in sentence for sentence in sentences)


def own_and_missing_gpu() -> tuple[str, str]:
    mine = this_rank("local")
    device = require_gpu(mine)
    with pytest.raises(HpcddpError) as refused:
        require_gpu(dataclasses.replace(mine, local_rank=gpu_count()))
    return str(device), str(refused.value)


@touches("worker/binding.py", stand_in="its GPUs have addresses at which the machine has no device")
def test_each_rank_names_its_own_gpu(recorded_run: ranks.Attempt) -> None:
    found = recorded_run.launch["bindings"]
    addresses = [binding["gpu"] for binding in found]
    assert len(set(addresses)) == len(addresses) == len(recorded_run.outcomes)
    for binding in found:
        assert binding["cpus"]
        if is_real():
            assert (Path("/sys/bus/pci/devices") / binding["gpu"] / "local_cpulist").is_file()


@touches("worker/survey.py", stand_in="there is no driver, and so no matrix of links")
def test_a_node_is_surveyed(tmp_path: Path) -> None:
    (found,) = ranks.values(tmp_path, 1, lambda: encode(survey_node("here")))
    assert len(found["node"]["gpus"]) >= gpu_count()
    assert found["arch_list"]
    assert found["versions"].get("nccl") or found["versions"]["rccl"]
    if is_real() and torch.version.hip is None:
        assert len([name for name in found["topology"] if name.startswith("GPU")]) >= gpu_count()


@touches("worker/preflight.py", stand_in="rates are the processor's; messages and buffers are small")
def test_what_preflight_reads(tmp_path: Path, figures: Figures, monkeypatch: pytest.MonkeyPatch) -> None:
    if not is_real():
        monkeypatch.setattr(preflight, "PART_S", 0.05)
        monkeypatch.setattr(preflight, "SIDES", (64, 128))
        monkeypatch.setattr(preflight, "COPIED_BYTES", {"cuda": 2**20})
        monkeypatch.setattr(preflight, "MESSAGE_BYTES", {"cuda": 2**16})
    spec = spec_to_dict(given.job(tmp_path, ranks.gpu_point()))
    record = decode_record(PreflightRecord, ranks.values(tmp_path / "output", gpu_count(), preflight.run_preflight, spec)[0])
    assert (record.device, len(record.ranks)) == ("cuda", gpu_count())
    for each in record.ranks:
        assert all((each.matrix_flops_per_s, each.memory_bytes_per_s, each.copy_bytes_per_s)), each.problems
        assert (each.node_bytes_per_s is not None) == (gpu_count() > 1)
        assert (each.neighbour_bytes_per_s, each.problems) == (None, ())
    assert slow_readings(record.ranks) == ()
    first = record.ranks[0]
    figures.add("preflight_matrix_tflop_per_s", (first.matrix_flops_per_s or 0) / 1e12)
    figures.add("preflight_memory_gb_per_s", (first.memory_bytes_per_s or 0) / 1e9)
    figures.add("preflight_copy_gb_per_s", (first.copy_bytes_per_s or 0) / 1e9)
    figures.add("preflight_took_s", record.took_s)
