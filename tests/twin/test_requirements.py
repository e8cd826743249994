"""Where no twin can run, its tests are skipped, but never in CI."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TEST = Path(__file__).with_name("test_twin.py")


@pytest.mark.parametrize(("ci", "outcome"), [("", "1 skipped"), ("true", "1 error")])
def test_missing_programs_skip_the_tests_except_in_ci(tmp_path: Path, ci: str, outcome: str) -> None:
    """Without Slurm a test that wants a twin is skipped with the reason; with CI=true it is an error."""
    test = f"{TEST}::test_a_command_that_fails_says_why"
    command = [sys.executable, "-m", "pytest", "-rsE", "-p", "no:cacheprovider", f"--basetemp={tmp_path}/pytest", test]
    env = {**os.environ, "PATH": str(tmp_path), "CI": ci}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert outcome in done.stdout
    assert "root" in done.stdout or "slurmctld" in done.stdout
