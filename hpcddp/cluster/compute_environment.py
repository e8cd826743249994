"""`hpcddp env create`: the environment that ranks run in, made as the profile's `compute: {create:}` says.

The exact versions lie in the environment, `requirements.lock`, and in the profile's lock file where it names one: the next time
they are installed from there. A study's study.json keeps those that its runs were submitted with.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from hpcddp.cluster.environment import EnvironmentRecipe
from hpcddp.cluster.paths import is_below
from hpcddp.cluster.profile import ClusterProfile
from hpcddp.core.errors import HpcddpError, UsageError

STDERR = 2

LOCK = "requirements.lock"
"""Below the environment's folder."""


@dataclass(frozen=True, kw_only=True)
class MadeEnvironment:
    """Where it is."""

    python: Path
    lock: Path
    image: Path | None
    """Of its folder, a SquashFS file."""


def create_environment(profile: ClusterProfile, *, squashfs: bool) -> MadeEnvironment:
    """Makes it, with what the tools print on stderr; HpcddpError where one fails, and then nothing is left."""
    recipe = profile.compute.create
    if recipe is None:
        raise UsageError(f"{profile.name} says nothing of how its environment is made; write `compute.create` (docs/clusters.md)")
    folder, lock = _folder(recipe), _lock_file(profile, recipe)
    image = folder.with_name(f"{folder.name}.sqfs") if squashfs else None
    for path in (folder, image):
        if path is not None and path.exists():
            raise UsageError(f"{path} exists: remove it, or give compute.create.path another one")
    if image is not None and shutil.which("mksquashfs") is None:
        raise UsageError("--squashfs needs mksquashfs (package squashfs-tools), which is not on this machine")
    try:
        _run("\n".join([*_modules(profile), *_commands(recipe, folder, lock)]), recipe.tool)
        if lock is not None and not lock.exists():
            shutil.copyfile(folder / LOCK, lock)
        if image is not None:
            _run(shlex.join(["mksquashfs", str(folder), str(image), "-noappend", "-quiet"]), "mksquashfs")
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        if image is not None:
            image.unlink(missing_ok=True)
        raise
    return MadeEnvironment(python=folder / "bin" / "python", lock=lock or folder / LOCK, image=image)


def recorded_lock(profile: ClusterProfile) -> Mapping[str, str]:
    """Hash -> text of the versions in the environment as it is now; empty where it was not made so, or is not here."""
    try:
        recipe = profile.compute.create
        text = None if recipe is None else (_folder(recipe) / LOCK).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError, UsageError):
        return {}
    return {} if text is None else {hashlib.sha256(text.encode()).hexdigest()[:12]: text}


def _folder(recipe: EnvironmentRecipe) -> Path:
    path = os.path.expanduser(os.path.expandvars(recipe.path))
    if "$" in path or not os.path.isabs(path):
        raise UsageError(f"compute.create.path is {recipe.path}: a path in full, or one whose variables are set here")
    return Path(path)


def _lock_file(profile: ClusterProfile, recipe: EnvironmentRecipe) -> Path | None:
    if recipe.lock is None:
        return None
    if profile.file is None:
        raise UsageError(f"compute.create.lock: {profile.name} comes with hpcddp, so nothing can be written beside it")
    folder = Path(profile.file).parent
    if not is_below(folder / recipe.lock, folder):
        raise UsageError(f"compute.create.lock is {recipe.lock}: a file beside the profile, or below its folder")
    return folder / recipe.lock


def _modules(profile: ClusterProfile) -> Iterator[str]:
    """As the job loads them, those of the default node type first."""
    default = profile.node_types.get(profile.default_node_type or "")
    names = (*(default.modules if default else ()), *profile.compute.modules)
    if names and profile.compute.module_init:
        yield f"type module >/dev/null 2>&1 || for init in {shlex.join(profile.compute.module_init)}; do"
        yield '  if [ -r "$init" ]; then . "$init"; break; fi'
        yield "done"
    yield from (f"module load {shlex.quote(name)} || exit" for name in names)


def _commands(recipe: EnvironmentRecipe, folder: Path, lock: Path | None) -> Iterator[str]:
    """Of the tool: make, install, write down."""
    python, pins = shlex.quote(str(folder / "bin" / "python")), shlex.quote(str(folder / LOCK))
    is_locked = lock is not None and lock.exists()
    wanted = ["--requirement", str(lock)] if is_locked else list(recipe.requirements)
    if recipe.tool == "uv":
        make, pip = ["uv", "venv", "--python", recipe.python, str(folder)], f"uv pip %s --python {python}"
    else:
        make, pip = [*shlex.split(recipe.python), "-m", "venv", str(folder)], f"{python} -m pip %s"
    yield f"{shlex.join(make)} || exit"
    yield f"{pip % 'install'} {shlex.join(wanted)} || exit"
    yield f"{pip % 'freeze'} > {pins} || exit"


def _run(script: str, tool: str) -> None:
    """In bash, which has the site's `module`; what goes to stdout goes to stderr, as the result is ours."""
    try:
        code = subprocess.run(["bash", "-c", script], stdout=STDERR, check=False).returncode
    except FileNotFoundError as error:
        raise HpcddpError("no bash on this machine") from error
    if code:
        raise HpcddpError(f"{tool} ended with exit code {code}; what it says is above, and nothing is left of the environment")
