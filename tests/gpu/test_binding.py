"""Where ranks on GPUs are bound, as launch.json has it."""

from __future__ import annotations

from pathlib import Path

from tests.gpu import ranks
from tests.gpu.device import is_real
from tests.gpu.marks import touches


@touches("hpcddp/worker/binding.py", stand_in="its GPUs have addresses at which the machine has no device")
def test_each_rank_names_its_own_gpu(tmp_path: Path) -> None:
    """By its address on the bus, where the kernel says what is near it."""
    attempt = ranks.run_point(tmp_path, ranks.gpu_point())
    attempt.check_done()
    found = attempt.launch["bindings"]
    addresses = [binding["gpu"] for binding in found]
    assert len(set(addresses)) == len(addresses) == len(attempt.outcomes)
    for binding in found:
        assert binding["cpus"]
        if is_real():
            assert (Path("/sys/bus/pci/devices") / binding["gpu"] / "local_cpulist").is_file()
