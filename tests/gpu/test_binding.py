"""Where a rank's GPU is: its address on the bus is the driver's, and the record says which socket it is attached to."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.gpu import ranks
from tests.gpu.device import gpu_count, is_real
from tests.gpu.marks import touches
from tests.gpu.results import Figures


@touches("hpcddp/worker/binding.py", stand_in="addresses are made up, and no socket is known of them")
def test_every_rank_knows_its_gpus_place(tmp_path: Path, figures: Figures) -> None:
    """One address a rank, each another, as nvidia-smi has them; processors as the rank may use them."""
    attempt = ranks.run_point(tmp_path, ranks.gpu_point())
    attempt.check_done()
    bindings = attempt.launch["bindings"]
    addresses = [binding["gpu"] for binding in bindings]
    assert len(set(addresses)) == len(addresses) == gpu_count()
    assert all(re.fullmatch(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.0", address) for address in addresses)
    assert all(binding["cpus"] for binding in bindings)
    if is_real():
        assert set(addresses) <= set(driver_addresses())
    known = [binding for binding in bindings if binding["gpu_socket"] is not None]
    figures.add("gpus_with_a_known_socket", len(known))
    figures.add("ranks_on_the_gpus_socket", len([binding for binding in known if binding["gpu_socket"] in binding["sockets"]]))


def driver_addresses() -> list[str]:
    """`0000:17:00.0` of nvidia-smi's `00000000:17:00.0`."""
    command = ["nvidia-smi", "--query-gpu=pci.bus_id", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except OSError:
        pytest.skip("needs nvidia-smi")
    return [line.strip().lower()[-len("0000:00:00.0") :] for line in done.stdout.splitlines()]
