"""The user's own settings.

`~/.config/hpcddp/config.yaml` (under XDG_CONFIG_HOME where that is set):

    account: abc01
    reservation: s_tra_x
    mail: me@site.org
    run_root: $WORK/runs
    data_roots: {imagenet: $WORK/imagenet}
    budget: {node_hours: 200}
    ask_above: {node_hours: 4}
    trusted_groups: [physics]
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpcddp.cluster.profile_names import config_folder
from hpcddp.cluster.yamlfile import decode_file, located, read_yaml
from hpcddp.core.errors import UsageError
from hpcddp.core.hours import Budget
from hpcddp.core.schema import Path as KeyPath
from hpcddp.core.schema import SchemaError

_HONOURED = {"SBATCH_ACCOUNT": "account", "SBATCH_RESERVATION": "reservation"}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What belongs to the user and never to a point's id."""

    account: str | None = None
    reservation: str | None = None
    mail: str | None = None
    run_root: str | None = None
    """Where studies land, variables allowed; None: beside the sweep file."""
    budget: Budget = Budget()
    """Of each study whose sweep names none."""
    ask_above: Budget = Budget()
    """`submit` does not ask before what takes no more than this at most; without a limit it always asks."""
    data_roots: Mapping[str, str] = field(default_factory=dict)
    """Name of a data set -> its folder; variables are expanded in the job."""
    trusted_groups: tuple[str, ...] = ()
    """Unix groups whose members may write in a study, and so have jobs run their code as this user."""

    def run_root_here(self) -> Path | None:
        """run_root with ~ and variables filled in; UsageError for one that is not set."""
        root = self.run_root and os.path.expanduser(os.path.expandvars(self.run_root))
        if root and "$" in root:
            raise UsageError(f"run_root is {self.run_root}, with a variable that is not set. Set it, or write the path in full.")
        return Path(root) if root else None


def config_file(env: Mapping[str, str] = os.environ) -> Path:
    """Where the settings are, whether or not the file exists."""
    return config_folder(env) / "config.yaml"


def load_settings(env: Mapping[str, str] = os.environ) -> tuple[Settings, list[str]]:
    """The settings, with SBATCH_ACCOUNT and SBATCH_RESERVATION over the file's as sbatch has it, and a remark on each SBATCH_*.
    UsageError names file and line of what does not fit.
    """
    settings = _read(config_file(env))
    remarks = []
    for name in sorted(name for name in env if name.startswith("SBATCH_") and env[name]):
        key = _HONOURED.get(name)
        if key is None:
            remarks.append(f"{name}={env[name]} is ignored: jobs follow the sweep and the profile")
            continue
        changed: dict[str, Any] = {key: env[name]}
        settings = dataclasses.replace(settings, **changed)
        remarks.append(f"{key} {env[name]} is taken from {name}, unless the sweep names its own")
    return settings, remarks


def _read(file: Path) -> Settings:
    if not file.is_file():
        return Settings()
    data = read_yaml(file)
    settings = Settings() if data is None else decode_file(Settings, data, file)
    paths: dict[KeyPath, str | None] = {
        ("run_root",): settings.run_root,
        **{("data_roots", name): root for name, root in settings.data_roots.items()},
    }
    for where, path in paths.items():
        if path is not None and not path.startswith(("/", "$", "~", "s3://")):
            raise located(SchemaError(where, f"`{path}` is relative, but jobs run in another folder. Give it in full."), file)
    return settings
