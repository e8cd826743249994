"""Everything that touches CUDA, on the GPUs of this machine: `python -m tests.gpu`, which is what `make gpu` runs.

Needs torch, torchvision and pytest; a test that lacks something else is skipped and says what. Without a GPU it says so and ends
with 0. `--stand-in`: on the stand-in of standin.py. Further arguments go to pytest.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from tests.gpu.device import add_options, start

HERE = Path(__file__).parent


def main() -> int:
    """Of the first part that fails, pytest's or the benchmark's exit code; both run."""
    # The benchmark comes last: it takes longest, and a machine may be there for minutes only.
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    chosen, for_pytest = parser.parse_known_args()
    if not start(chosen):
        return 0
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # another project's might begin CUDA here, before the ranks are forked
    where = [] if any(argument.startswith("tests/") for argument in for_pytest) else [str(HERE)]
    parts = [["-m", "pytest", *PYTEST, *for_pytest, *where]]
    if not for_pytest:
        parts.append(["-m", "tests.bench.gpu_step", *(["--stand-in"] if chosen.stand_in else [])])
    codes = [subprocess.run([sys.executable, *part], check=False).returncode for part in parts]
    return next((code for code in codes if code), 0)


PYTEST = (
    *("-p", "no:cacheprovider", "-W", "default", "--continue-on-collection-errors", f"--confcutdir={HERE}", "--durations=5"),
    *("-m", "gpu or not soak"),
)
"""Without the fixtures of other tests and what they need; what another torch warns of is shown, and fails nothing."""


if __name__ == "__main__":
    sys.exit(main())
