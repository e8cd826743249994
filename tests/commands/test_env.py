"""`hpcddp env`."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcddp.cluster.compute_environment import MadeEnvironment
from hpcddp.cluster.yamlfile import parse_yaml
from tests.commands.conftest import Run


@pytest.mark.parametrize("mount", [True, False])
@pytest.mark.parametrize("squashfs", [True, False])
def test_it_says_what_the_profile_then_says(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, squashfs: bool, mount: bool
) -> None:
    """As YAML: the Python, and how its image is mounted where it was made."""
    image = Path("/w/env.sqfs") if squashfs else None
    made = MadeEnvironment(python=Path("/w/env/bin/python"), lock=Path("/w/mine.lock"), image=image)
    monkeypatch.setattr("hpcddp.cluster.compute_environment.create_environment", lambda profile, squashfs: made)
    if mount:
        (tmp_path / "squashfs-mount").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    result = run("env", "create", "--cluster", "rcc", *(["--squashfs"] if squashfs else []))
    assert result.exit_code == 0
    compute = parse_yaml(result.stdout, "stdout")["compute"]
    bound = "apptainer exec --nv --mount type=bind,src=/w/env.sqfs,dst=/w/env,image-src=/ IMAGE.sif /w/env/bin/python"
    mounted = "squashfs-mount /w/env.sqfs:/w/env -- /w/env/bin/python" if mount else bound
    assert compute == {"kind": "venv", "python": mounted if squashfs else "/w/env/bin/python"}
    assert "/w/mine.lock" in result.stdout


def test_a_profile_without_a_recipe(run: Run) -> None:
    """The error names the key."""
    result = run("env", "create", "--cluster", "rcc")
    assert result.exit_code == 2
    assert "`compute.create`" in result.stderr
