"""Everything that touches CUDA, on the GPUs of this machine: `python -m tests.gpu`, which is what `make gpu` runs.

Needs torch, torchvision and pytest; a test that lacks something else is skipped and says what. Without a GPU it says so and ends
with 0. `--stand-in`: on the stand-in of standin.py. Further arguments go to pytest.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from tests.gpu.device import COUNT_VARIABLE, FACTS_VARIABLE
from tests.gpu.results import FILE_VARIABLE

HERE = Path(__file__).parent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, help="a file that a line of JSON for each test is appended to")
    parser.add_argument("--stand-in", action="store_true", help="without a GPU, to see that the tests themselves work")
    chosen, for_pytest = parser.parse_known_args()
    if chosen.results:
        os.environ[FILE_VARIABLE] = str(chosen.results.absolute())
    if not chosen.stand_in and not _use_gpus():
        print("skipped: no GPU")
        return 0
    where = [] if any(argument.startswith("tests/") for argument in for_pytest) else [str(HERE)]
    tests = subprocess.run([sys.executable, "-m", "pytest", *PYTEST, *for_pytest, *where], check=False).returncode
    return tests


PYTEST = ("-p", "no:cacheprovider", "-W", "default", f"--confcutdir={HERE}", "--durations=5")
"""Without the fixtures of other tests and what they need; what another torch warns of is shown, and fails nothing."""


def _use_gpus() -> bool:
    """Whether there are any; their number and the machine's facts go to the tests by their environment."""
    done = subprocess.run([sys.executable, "-m", "tests.gpu.facts"], stdout=subprocess.PIPE, check=True)
    facts = json.loads(done.stdout.splitlines()[-1])
    os.environ[COUNT_VARIABLE], os.environ[FACTS_VARIABLE] = str(len(facts["gpus"])), json.dumps(facts)
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # to count GPUs by CUDA would spoil it for forked processes
    return bool(facts["gpus"])


if __name__ == "__main__":
    sys.exit(main())
