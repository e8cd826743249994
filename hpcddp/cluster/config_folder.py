"""Where the user's settings and profiles are. Imports next to nothing: completion in a shell asks it, too."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def config_folder(env: Mapping[str, str] = os.environ) -> Path:
    """Whether or not it exists. A relative XDG_CONFIG_HOME is ignored, as its standard says."""
    base = env.get("XDG_CONFIG_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".config") / "hpcddp"
