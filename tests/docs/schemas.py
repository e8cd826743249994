"""The JSON Schema files beside profiles and sweeps, which the editor line of each names."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from hpcddp.cluster.json_schema import Schema
from hpcddp.cluster.profile_schema import profile_schema
from hpcddp.sweep.sweep_schema import sweep_schema
from tests.docs.pages import ROOT

SCHEMAS: Mapping[Path, Callable[[], Schema]] = {
    ROOT / "clusters" / "profile.schema.json": profile_schema,
    ROOT / "jobs" / "sweep.schema.json": sweep_schema,
}


def text(schema: Callable[[], Schema]) -> str:
    """What `hpcddp schema` prints."""
    return json.dumps(schema(), indent=1) + "\n"
