"""Measures any training loop: three lines in a script, and the same records as hpcddp's own workloads; docs/probe.md has them.

Under torchrun, srun or nothing at all. Records go to $HPCDDP_RUNS/adhoc (./jobs/adhoc where that is not set), a run each time;
`hpcddp analyze` reads them. Standard library and torch only, Python 3.10.
"""

from hpcddp.probe.measurement import Measurement, measure

__all__ = ["Measurement", "measure"]
