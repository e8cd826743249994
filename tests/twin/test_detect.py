"""`hpcddp clusters detect` and `check` on a Slurm like each shipped profile, with all its nodes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from hpcddp.cluster.profile_file import load_profile, read_profile
from hpcddp.detect.check import check_cluster
from hpcddp.detect.detect import detect_cluster
from tests.twin.controllers import Controllers, of_controller, slurm_profiles


@pytest.mark.parametrize("cluster", [of_controller(name) for name in slurm_profiles()])
def test_what_it_writes(controllers: Controllers, cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """check finds no drift of it, nor of the shipped profile, which this Slurm is like: it says what that says."""
    controller, file = controllers.get(load_profile(cluster)), tmp_path / "mine.yaml"
    for name, value in controller.env.items():
        monkeypatch.setenv(name, value)
    file.write_text(detect_cluster("mine").text, encoding="utf-8")
    profile = read_profile(file)
    checked = check_cluster(profile)
    assert (checked.of("differs"), checked.of("new")) == ([], [])
    assert check_cluster(controller.profile).of("differs") == []
    said, found = controller.profile.slurm, profile.slurm
    assert found.account_required == bool(said.account_required)
    assert found.gpu_request in {"gres", said.gpu_request}  # a Slurm that takes both has no rule of its own
    assert (found.memory_option, found.max_array_size) == (said.memory_option, 1001)
    account = re.search(r"Accounts you may charge: ([^,.\s]+)", str(profile.note))
    options = ["--cluster", str(file), "--nodes", "2", "--set", f"account={account[1] if account else 'none'}"]
    done = subprocess.run(
        [sys.executable, "-m", "hpcddp", "render", *options], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    taken, message = controller.test_only(done.stdout)
    assert taken, message
