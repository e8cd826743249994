"""Memory that is kept is not taken from the kernel again."""

from __future__ import annotations

import subprocess
import sys

ROUNDS, PAGES = 10, 2**25 // 4096

PROGRAM = """
import resource, sys
from hpcddp.core.malloc import retain_freed_memory
if "keep" in sys.argv:
    assert retain_freed_memory()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for round in range(11):
    if round == 1:
        before = faults()  # the first round took the memory
    [b"x" * 2**22 for _ in range(8)]
print(faults() - before)
"""


def page_faults(*arguments: str) -> int:
    """Of ROUNDS times 32 MiB that are taken, filled and freed."""
    printed = subprocess.run([sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, check=True)
    return int(printed.stdout)


def test_kept_memory_costs_no_page_faults() -> None:
    """Otherwise most of it does, in every round."""
    assert page_faults("keep") < PAGES / 2 < ROUNDS * PAGES / 2 < page_faults()
