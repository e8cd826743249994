"""`hpcddp env create`: environments made for real, of packages in a folder in place of an index."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hpcddp.cluster.compute_environment import LOCK, create_environment, recorded_lock
from hpcddp.cluster.profile import ClusterProfile
from hpcddp.cluster.profile_file import load_profile
from hpcddp.core.errors import HpcddpError, UsageError
from tests.test_wheelhouse import offline, wheel

PROFILE = """\
schema: 1
name: mine
title: A site
node_types: {a100: {gpus: 4, modules: [arch/a100]}}
default_node_type: a100
compute:
  module_init: [MODULES]
  modules: [site/python]
  create: {tool: uv, path: $PLACE/env, python: PYTHON, requirements: [argo>=1], lock: mine.lock}
"""

MODULES = 'module() { echo "$@" >> "$PLACE/loaded"; [ "$2" != absent ]; }\n'


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the profile, its modules and two versions of a package are."""
    index = tmp_path / "index"
    index.mkdir()
    for version in ("1.0", "1.5"):
        wheel(index, "argo", version, "py3-none-any")
    for name, value in offline(index).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PLACE", str(tmp_path))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    (tmp_path / "modules.sh").write_text(MODULES)
    return tmp_path


def profile(place: Path, *edits: tuple[str, str]) -> ClusterProfile:
    """The profile, with these words replaced."""
    text = PROFILE.replace("MODULES", str(place / "modules.sh")).replace("PYTHON", sys.executable)
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    (place / "mine.yaml").write_text(text)
    return load_profile(str(place / "mine.yaml"))


def versions(python: Path) -> str:
    return subprocess.run([python, "-m", "pip", "freeze"], capture_output=True, text=True, check=True).stdout


VENV = (("tool: uv, ", ""),)


@pytest.mark.dear
@pytest.mark.parametrize("edits", [VENV, ()], ids=["venv", "uv"])
def test_it_is_made_and_made_again_from_its_lock_file(place: Path, edits: tuple[tuple[str, str], ...]) -> None:
    """By either tool, the modules of the node type loaded first; later packages change nothing."""
    made = create_environment(profile(place, *edits), squashfs=False)
    assert made.python == place / "env" / "bin" / "python"
    assert subprocess.run([made.python, "-c", "pass"], check=False).returncode == 0
    assert (place / "env" / LOCK).read_text() == "argo==1.5\n"
    assert (made.lock, made.lock.read_text()) == (place / "mine.lock", "argo==1.5\n")
    assert (place / "loaded").read_text().splitlines() == ["load arch/a100", "load site/python"]
    made.lock.write_text("argo==1.0\n")
    again = create_environment(profile(place, *edits, ("$PLACE/env", "$PLACE/again")), squashfs=False)
    assert (place / "again" / LOCK).read_text() == made.lock.read_text() == "argo==1.0\n"
    assert again.image is None


@pytest.mark.parametrize(
    "edit", [("argo>=1", "argo>=2"), ("site/python", "absent"), (sys.executable, "/no/such/python")], ids=lambda edit: edit[1]
)
def test_what_fails_leaves_nothing(place: Path, edit: tuple[str, str]) -> None:
    """A package, a module or a Python that is not there; the error has the exit code."""
    with pytest.raises(HpcddpError, match=r"uv ended with exit code \d+; what it says is above, and nothing is left"):
        create_environment(profile(place, edit), squashfs=False)
    assert not (place / "env").exists()
    assert not (place / "mine.lock").exists()


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (("$PLACE/env", "env"), "compute.create.path is env: a path in full"),
        (("$PLACE/env", "$NOWHERE/env"), "one whose variables are set here"),
        (("mine.lock", "../mine.lock"), "a file beside the profile"),
        (("  create: ", "  torch: t\n#"), "mine says nothing of how its environment is made"),
        (("$PLACE/env", "$PLACE/index"), "index exists: remove it"),
    ],
)
def test_mistakes_are_named(place: Path, edit: tuple[str, str], words: str) -> None:
    """Before anything is made."""
    with pytest.raises(UsageError) as caught:
        create_environment(profile(place, edit), squashfs=False)
    assert words in str(caught.value)
    assert not (place / "loaded").exists()


def test_as_one_file(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By mksquashfs, which must be there before anything is made; where it fails, nothing is left."""
    mine = profile(place)
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(UsageError, match="--squashfs needs mksquashfs"):
        create_environment(mine, squashfs=True)
    assert not (place / "env").exists()
    tool = place / "bin" / "mksquashfs"
    tool.parent.mkdir()
    monkeypatch.setenv("PATH", f"{tool.parent}:{Path(sys.executable).parent}:/usr/bin:/bin")
    tool.write_text('#!/bin/sh\necho "$@" > "$2"; exit 1\n')
    tool.chmod(0o755)
    with pytest.raises(HpcddpError, match="mksquashfs ended with exit code 1"):
        create_environment(mine, squashfs=True)
    assert not (place / "env").exists()
    assert not (place / "env.sqfs").exists()
    tool.write_text('#!/bin/sh\necho "$@" > "$2"\n')
    made = create_environment(mine, squashfs=True)
    assert made.image == place / "env.sqfs"
    assert made.image.read_text() == f"{place}/env {place}/env.sqfs -noappend -quiet\n"


def test_a_study_records_the_versions(place: Path) -> None:
    """By a hash of their text; nothing of an environment that was not made so, or is not here."""
    mine = profile(place)
    assert recorded_lock(mine) == {}
    create_environment(mine, squashfs=False)
    (found,) = recorded_lock(mine).items()
    assert (len(found[0]), found[1]) == (12, "argo==1.5\n")
    assert recorded_lock(load_profile("rcc")) == {}
