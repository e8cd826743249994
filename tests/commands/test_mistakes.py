"""What a user can mend is said in a sentence with a documented exit code, never as a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands.conftest import Run

JOBS = Path(__file__).parent.parent.parent / "jobs"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["init", "local-mnist", "-o", "no/such/x.yaml"], "no/such/x.yaml: No such file or directory"),
        (["render", "--cluster", "rcc", "-o", "no/such/job.sh"], "no/such/job.sh: No such file or directory"),
        (["render", str(JOBS / "rcc-bigmnist.yaml"), "-o", "file"], "file: File exists"),
    ],
)
def test_file_system_says_no(run: Run, tmp_path: Path, arguments: list[str], says: str) -> None:
    """An error of the file system names the file and what is wrong with it; exit code 1."""
    (tmp_path / "file").touch()
    result = run(*arguments)
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (1, says)
