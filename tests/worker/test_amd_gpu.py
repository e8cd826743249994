"""AMD's GPUs by AMD SMI: what is read, of which GPUs, and what is said where they cannot be."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hpcddp.core.records import GPU_COLUMNS
from hpcddp.worker.telemetry.amd_gpu import AmdGpuReader
from hpcddp.worker.telemetry.gpu import NoGpus
from hpcddp.worker.telemetry.reader import open_gpus
from hpcddp.worker.telemetry.reader_process import gpu_summary

STANDIN = Path(__file__).parent.parent / "gpu" / "standin_amdsmi" / "amdsmi.py"

ADDRESSES = ["0000:05:00.0", "0000:06:00.0", "0000:a5:00.0", "0000:a6:00.0"]


@pytest.fixture
def smi(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module of its own for each test, of four GPUs; what a test changes in it is gone with it."""
    spec = importlib.util.spec_from_file_location("amdsmi", STANDIN)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.GPUS = [address.upper() for address in ADDRESSES]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "amdsmi", module)
    return module


def read(reader: AmdGpuReader) -> list[dict[str, Any]]:
    return [dict(zip(GPU_COLUMNS, row, strict=True)) for row in reader.rows()]


def test_a_gpu_is_a_row(smi: Any) -> None:
    (row,) = read(AmdGpuReader(smi, ADDRESSES[:1]))
    assert row.pop("unix_ns") / 1e9 == pytest.approx(row.pop("energy_mj") / 1e3 / smi.POWER_W, rel=1e-6)
    assert row == {
        "gpu": 0,
        "util_percent": 97,
        "mem_used_bytes": 32 * 2**20,
        "power_mw": 300_000,
        "sm_mhz": 2100,
        "mem_mhz": 1300,
        "temperature_c": 60,
        "throttle_reasons": None,
    }


def test_what_a_gpu_or_its_library_lacks_is_empty(smi: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(gpu: str) -> dict[str, Any]:
        raise smi.AmdSmiException("AMDSMI_STATUS_NOT_SUPPORTED")

    monkeypatch.setattr(smi, "amdsmi_get_gpu_activity", refuse)
    monkeypatch.setattr(smi, "amdsmi_get_power_info", lambda gpu: {"current_socket_power": "N/A", "average_socket_power": 94})
    monkeypatch.setattr(smi, "amdsmi_get_energy_count", lambda gpu: {"power": 10**9, "counter_resolution": 15.3})
    monkeypatch.setattr(smi, "amdsmi_get_clock_info", lambda gpu, kind: {"cur_clk": "N/A" if kind == 5 else 1700})
    monkeypatch.delattr(smi, "amdsmi_get_gpu_metrics_info")
    reader = AmdGpuReader(smi, ADDRESSES[:1])
    read(reader)
    (row,) = read(reader)
    assert (row["util_percent"], row["power_mw"], row["energy_mj"]) == (None, 94_000, 15_300_000)
    assert (row["sm_mhz"], row["mem_mhz"], row["throttle_reasons"]) == (1700, None, None)


@pytest.mark.parametrize(
    ("counter", "reason"),
    [
        ("ppt_residency_acc", "sw_power_cap"),
        ("socket_thm_residency_acc", "sw_thermal_slowdown"),
        ("hbm_thm_residency_acc", "sw_thermal_slowdown"),
        ("vr_thm_residency_acc", "hw_thermal_slowdown"),
        ("prochot_residency_acc", "hw_thermal_slowdown"),
        (None, None),
    ],
)
def test_a_counter_that_grows_is_a_reason(
    smi: Any, monkeypatch: pytest.MonkeyPatch, counter: str | None, reason: str | None
) -> None:
    """Of an MI300: in the summary it has the word that NVIDIA's have, by which gates judge. The first reading knows none."""
    metrics = smi.amdsmi_get_gpu_metrics_info("")
    monkeypatch.setattr(smi, "amdsmi_get_gpu_metrics_info", lambda gpu: dict(metrics))
    reader = AmdGpuReader(smi, ADDRESSES[:1])
    rows = read(reader)
    if counter:
        metrics[counter] += 1
    rows += read(reader) + read(reader)
    assert throttle(rows) == ({reason: 0.5} if reason else {})


@pytest.mark.parametrize(("status", "expected"), [(True, {"throttled": 1.0}), (False, {}), ("N/A", None)])
def test_an_mi200_says_only_that_it_is_throttled(
    smi: Any, monkeypatch: pytest.MonkeyPatch, status: Any, expected: dict[str, float] | None
) -> None:
    """It has no counters; a reason that no gate knows is evidence, and no fault."""
    monkeypatch.setattr(smi, "amdsmi_get_gpu_metrics_info", lambda gpu: {"indep_throttle_status": status})
    assert throttle(read(AmdGpuReader(smi, ADDRESSES[:1]))) == expected


def throttle(rows: list[dict[str, Any]]) -> Any:
    return gpu_summary(0, rows, 1.0).throttle


def test_gpus_are_those_of_the_ranks(smi: Any) -> None:
    reader = AmdGpuReader(smi, [ADDRESSES[3], ADDRESSES[0]])
    assert [gpu["uuid"][7] for gpu in reader.describe()] == ["3", "0"]
    del smi.amdsmi_get_gpu_device_uuid
    assert reader.describe()[0] == {"gpu": 0, "name": "AMD Instinct MI300X", "uuid": None}


def test_dies_share_a_meter(smi: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An MI250X's first die reads the power of both: a sum over whole modules holds, and of less nothing is known."""
    dual(smi, monkeypatch)
    assert [row["power_mw"] for row in read(AmdGpuReader(smi, ADDRESSES))] == [500_000, 0, 500_000, 0]
    assert [row["power_mw"] for row in read(AmdGpuReader(smi, ADDRESSES[2:]))] == [500_000, 0]
    for part in (ADDRESSES[:1], ADDRESSES[1:2], ADDRESSES[1:3], ADDRESSES[:3]):
        rows = read(AmdGpuReader(smi, part))
        assert {row["power_mw"] for row in rows} == {row["energy_mj"] for row in rows} == {None}
        assert {row["sm_mhz"] for row in rows} == {2100}


def dual(smi: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    power = {gpu: 500 * (place % 2 == 0) for place, gpu in enumerate(smi.GPUS)}
    monkeypatch.setattr(smi, "NAME", "AMD Instinct MI250X")
    monkeypatch.setattr(
        smi, "amdsmi_get_power_info", lambda gpu: {"current_socket_power": "N/A", "average_socket_power": power[gpu]}
    )


def test_a_gpu_that_is_not_there_or_in_parts_is_named(smi: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NoGpus, match=r"AMD SMI knows no GPU at 0000:99:00\.0 on the bus"):
        AmdGpuReader(smi, ["0000:99:00.0"])
    monkeypatch.setattr(smi, "GPUS", ["0000:05:00.0", "0000:05:00.1"])
    with pytest.raises(NoGpus, match="lists several GPUs"):
        AmdGpuReader(smi, ADDRESSES[:1])
    with pytest.raises(NoGpus, match="lists several GPUs"):
        AmdGpuReader(smi, ["0000:05:00.0", "0000:05:00.0"])


def test_the_library_of_a_torch_for_rocm_is_amd_smi(smi: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert isinstance(open_gpus(4, ADDRESSES)[0], AmdGpuReader)
    assert open_gpus(2, ADDRESSES[:1]) == (None, "the node's first rank sees 1 of its 2 GPUs")
    assert open_gpus(1, []) == (None, "this torch does not report the bus address of its GPUs; torch 2.10 does")

    def no_driver() -> None:
        raise smi.AmdSmiException("Error code:\n\t34 | AMDSMI_STATUS_DRIVER_NOT_LOADED")

    monkeypatch.setattr(smi, "amdsmi_init", no_driver)
    assert open_gpus(1, ADDRESSES)[1] == "no AMD SMI: Error code: 34 | AMDSMI_STATUS_DRIVER_NOT_LOADED"
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    reason = open_gpus(1, ADDRESSES)[1]
    assert reason is not None
    assert reason.startswith("no AMD SMI: ")
    assert "share/amd_smi" in reason


def test_a_library_of_another_version_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """amdsmi loads ROCm's library as it is imported: what goes wrong there is no ImportError."""

    class Broken:
        def find_spec(self, name: str, *_: Any) -> ModuleType | None:
            if name == "amdsmi":
                raise OSError("libamd_smi.so: cannot open shared object file")
            return None

    monkeypatch.delitem(sys.modules, "amdsmi", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Broken(), *sys.meta_path])
    assert "OSError: libamd_smi.so: cannot open" in str(open_gpus(1, ADDRESSES)[1])
