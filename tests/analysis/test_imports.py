from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_folder_is_not_a_package_of_its_own() -> None:
    """`import analysis` from a checkout says which name to use: two names would be two copies of each module."""
    done = python("import analysis")
    assert "ImportError: this folder is imported as `hpcddp.analysis`" in done.stderr


def test_analysis_needs_neither_torch_nor_submitit_nor_matplotlib_to_load() -> None:
    """matplotlib comes with the first figure; pickles are never read."""
    code = (
        "import sys, hpcddp.analysis; print([m for m in ('torch', 'submitit', 'cloudpickle', 'matplotlib') if m in sys.modules])"
    )
    assert python(code).stdout == "[]\n"
