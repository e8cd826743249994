"""What several attempts read of a node and its GPUs, as one."""

from __future__ import annotations

import pytest

from hpcddp.analysis.records.merged import merged_nodes
from hpcddp.core.attempt_records import GpuTelemetry, NodeTelemetry


def test_attempts_are_merged() -> None:
    """Times, readings and energy add up, peaks are the highest, means weigh by readings; a node of one attempt is as it was."""
    gpus = [
        GpuTelemetry(gpu=0, readings=n, power_w_mean=w, power_w_peak=w, energy_j=10.0 * n, throttle={"hw_slowdown": share})
        for n, w, share in ((30, 200.0, 0.2), (10, 300.0, 0.6))
    ]
    nodes = [
        NodeTelemetry(
            host="a", readings=gpu.readings, window_s=5.0, cpu_foreign_share=share, net_rx_bytes_per_s=rate, gpus=(gpu,)
        )
        for gpu, share, rate in zip(gpus, (0.1, 0.3), (100.0, 200.0), strict=True)
    ]
    other = NodeTelemetry(host="b", readings=3)
    merged, same = merged_nodes([*nodes, other])
    (gpu,) = merged.gpus
    assert same is other
    assert (merged.readings, merged.window_s, merged.cpu_foreign_share, merged.net_rx_bytes_per_s) == (40, 10.0, 0.3, 125.0)
    assert (gpu.readings, gpu.power_w_mean, gpu.power_w_peak, gpu.energy_j) == (40, 225.0, 300.0, 400.0)
    assert gpu.throttle == pytest.approx({"hw_slowdown": 0.3})
