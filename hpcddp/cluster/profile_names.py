"""Where profiles lie, those that come with hpcddp and the user's own in `~/.config/hpcddp/clusters/`; paths as they are typed.

Imports next to nothing until a name is looked up: completion in a shell lists them, too.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path

from hpcddp.core.errors import UsageError


def typed_path(path: Path | str) -> str:
    """The path as a shell takes it: quoted where need be, `~` for the home folder."""
    home, text = str(Path.home()), str(path)
    return f"~/{shlex.quote(text.removeprefix(f'{home}/'))}" if text.startswith(f"{home}/") else shlex.quote(text)


def is_below(path: Path, folder: Path) -> bool:
    """Whether `path` lies in `folder` or below, links followed."""
    return folder.resolve() in path.resolve().parents


def config_folder(env: Mapping[str, str] = os.environ) -> Path:
    """Whether or not it exists. A relative XDG_CONFIG_HOME is ignored, as its standard says."""
    base = env.get("XDG_CONFIG_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".config") / "hpcddp"


FOLDER = Path(__file__).parents[1] / "clusters"


def is_profile_file(cluster: object) -> bool:
    """Whether a cluster is named by its YAML file: anything with a slash or ending in .yaml."""
    return isinstance(cluster, str) and ("/" in cluster or cluster.endswith((".yaml", ".yml")))


def profile_names() -> list[str]:
    """The clusters that come with hpcddp, sorted."""
    return sorted(file.stem for file in FOLDER.glob("*.yaml"))


def own_folder() -> Path:
    """Where the user's own profiles are, whether or not the folder exists."""
    return config_folder() / "clusters"


def own_profiles() -> dict[str, Path]:
    """The user's own profiles, by name; hidden files, such as an editor's, are none."""
    return {file.stem: file for file in sorted(own_folder().glob("[!.]*.yaml")) if file.is_file()}


def profile_path(name: str) -> Path:
    """The file of the profile of that name; UsageError where there is none, or one of the user's beside one of hpcddp's."""
    from hpcddp.cluster.yamlfile import located
    from hpcddp.core.schema import SchemaError, did_you_mean

    shipped, own = (folder / f"{name}.yaml" for folder in (FOLDER, own_folder()))
    if own.is_file():
        if shipped.is_file():
            words = f"`{name}` is also the name of a shipped profile ({shipped}). Rename this one: its file and its `name`."
            raise located(SchemaError(("name",), words), own)
        return own
    if not shipped.is_file():
        folders = "clusters/" + (f" or {typed_path(own_folder())}" if own_folder().is_dir() else "")
        raise UsageError(f"no cluster `{name}` in {folders}{did_you_mean(name, [*profile_names(), *own_profiles()])}")
    return shipped
