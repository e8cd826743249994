"""A user without settings and without profiles of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcddp.cluster.profile_names import own_folder


@pytest.fixture(autouse=True)
def _no_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def own_profile(name: str, text: str) -> Path:
    """A profile of that name in the user's folder: `text` with schema, name and title in front."""
    file = own_folder() / f"{name}.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"schema: 1\nname: {name}\ntitle: Mine\n{text}")
    return file
