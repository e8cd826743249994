"""The daemons of one twin leave those of another alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.twin import daemons
from tests.twin.daemons import MARK, stop


@pytest.mark.slurm
def test_a_database_leaves_the_temporary_tables_of_others_alone(tmp_path: Path) -> None:
    """Twins start at the same time, and a MariaDB that starts empties the folder of its temporary tables."""
    shared, folder = tmp_path / "tmp", tmp_path / "twin"
    for new in (shared, folder / "log", folder / "pid"):
        new.mkdir(parents=True)
    of_another = shared / "#sql-temptable-735f-1-3.MAI"
    of_another.touch()
    stop([daemons.start_database(folder, {**os.environ, "TMPDIR": str(shared), MARK: str(folder)})])
    assert of_another.exists()
