"""Which Slurm is here, and that an older one than 22.05 is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcddp.backends.slurm import SlurmBackend
from hpcddp.backends.slurm_version import too_old, version_here
from hpcddp.core.errors import HpcddpError
from tests.backends.fake_slurm import calls, stand_ins
from tests.backends.test_slurm_answers import submission


@pytest.mark.parametrize("words", ["slurm 22.05.8", "slurm-wlm 22.05.8", "slurm 22.05.8 (site build 7)"])
def test_the_version_is_read_as_sites_print_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    """Debian's name, and what follows it."""
    stand_ins(tmp_path, monkeypatch, ("srun",), f"echo '{words}'")
    assert version_here() == "22.05.8"


@pytest.mark.parametrize("script", ["exit 1", "echo srun of ParaStation", "sleep 60"])
def test_one_that_does_not_say_its_version_is_taken_for_a_newer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    """And is waited for no longer than a moment."""
    monkeypatch.setattr("hpcddp.backends.slurm_version.TIMEOUT_S", 0.5)
    stand_ins(tmp_path, monkeypatch, ("srun",), script)
    assert version_here() is None
    assert too_old(version_here()) is None


@pytest.mark.parametrize("version", ["22.05.0", "22.05", "23.02.7", "24.11.0-0rc1", "25.05.1"])
def test_22_05_and_later_ones_are_supported(version: str) -> None:
    """Whatever stands behind."""
    assert too_old(version) is None


@pytest.mark.parametrize("version", ["21.08.8", "20.11.9", "17.11.2"])
def test_an_older_one_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """Nothing is submitted, however many runs there are, and it was asked once."""
    stand_ins(tmp_path, monkeypatch, ("srun", "sbatch", "sacctmgr"), f"echo slurm {version}")
    backend = SlurmBackend()
    for _ in range(2):
        with pytest.raises(HpcddpError, match=rf"Slurm {version} is older than 22.05, the oldest that hpcddp supports; nothing"):
            backend.check(submission(tmp_path))
    assert len(calls(tmp_path, "srun")) == 1
