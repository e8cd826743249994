"""Preflight on GPUs: all of its readings, and how long they take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpcddp.core.jobspec import spec_to_dict
from hpcddp.core.preflight_judgement import slow_readings
from hpcddp.core.preflight_record import PreflightRecord
from hpcddp.core.schema import decode_record
from hpcddp.worker import preflight
from tests.gpu import ranks
from tests.gpu.device import gpu_count, is_real
from tests.gpu.marks import touches
from tests.gpu.results import Figures
from tests.worker import given


@touches(
    "hpcddp/worker/preflight.py",
    stand_in="rates are the processor's; messages and buffers are small",
)
def test_what_preflight_reads(tmp_path: Path, figures: Figures, monkeypatch: pytest.MonkeyPatch) -> None:
    """Products, memory, copies and the all-reduce of all GPUs, in about five seconds; of one node nothing is said."""
    if not is_real():
        monkeypatch.setattr(preflight, "PART_S", 0.05)
        monkeypatch.setattr(preflight, "SIDES", (64, 128))
        monkeypatch.setattr(preflight, "COPIED_BYTES", {"cuda": 2**20})
        monkeypatch.setattr(preflight, "MESSAGE_BYTES", {"cuda": 2**16})
    spec = spec_to_dict(given.job(tmp_path, ranks.gpu_point()))
    record = decode_record(PreflightRecord, ranks.values(tmp_path / "output", gpu_count(), measured, spec)[0])
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


def measured(spec: dict[str, Any]) -> dict[str, Any]:
    return preflight.preflight_rank(spec)
