from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_folder_is_not_a_package_of_its_own() -> None:
    """`import analysis` from a checkout says which name to use: two names would be two copies of each module."""
    done = python("import analysis")
    assert "ImportError: this folder is imported as `hpcddp.analysis`" in done.stderr


@pytest.mark.parametrize("modules", ["analysis", "analysis.proposal.page, hpcddp.analysis.proposal.blocks"])
def test_what_draws_nothing_needs_neither_torch_nor_submitit_nor_matplotlib_to_load(modules: str) -> None:
    """matplotlib comes with the first figure, which a page on stdout has none of; pickles are never read. What pandas loads by
    itself, pyarrow's own imports among it, is not counted.
    """
    code = (
        f"import sys, pandas; by_pandas = set(sys.modules); import hpcddp.{modules}; "
        "print([m for m in ('torch', 'submitit', 'cloudpickle', 'matplotlib') if m in {*sys.modules} - by_pandas])"
    )
    assert python(code).stdout == "[]\n"
