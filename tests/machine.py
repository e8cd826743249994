"""What tests need of this machine, or are skipped: another user, a full disk; and hpcddp as a user installs it, offline."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest


def cannot_run(reason: str) -> NoReturn:
    """`reason`: what is missing here."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


NOBODY = 65534
"""Debian's and Red Hat's `nobody`, and a group that no user of a test is in."""


def as_nobody(act: Callable[[], object], folder: Path) -> None:
    """Runs `act` in a process of user and group `nobody` that stands in `folder`, whoever may enter what is above; what it raises
    fails the test.
    """
    need_root()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.chdir(folder)
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            act()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def need_root() -> None:
    """Skips where this process may not become another user."""
    if os.geteuid() != 0:
        cannot_run("only root can be another user, too")


@contextlib.contextmanager
def small_disk(above: Path) -> Iterator[Path]:
    """A disk of 1 MiB; the test cannot run where that cannot be mounted."""
    disk = above / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], capture_output=True, check=False)
    if mounted.returncode:
        cannot_run("a tmpfs can be mounted by root only")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)


def fill(disk: Path) -> None:
    """Until not a byte fits."""
    with (disk / "ballast").open("wb", buffering=0) as out, contextlib.suppress(OSError):
        while out.write(bytes(4096)):
            pass


CHECKOUT = Path(__file__).parent.parent
LEFT_OUT = (".git", ".venv*", ".*_cache", ".hypothesis", "__pycache__", "*.egg-info", "build", "dist", "demo")


def copy_checkout(target: Path) -> Path:
    """The working tree without what git ignores, links kept as links."""

    def ignore(folder: str, names: list[str]) -> set[str]:
        runs = {path.name for path in Path(folder).iterdir() if path.is_dir()} if Path(folder) == CHECKOUT / "jobs" else set()
        return runs | shutil.ignore_patterns(*LEFT_OUT)(folder, names)

    return Path(shutil.copytree(CHECKOUT, target, symlinks=True, ignore=ignore))


def build(kind: str, source: Path, into: Path) -> Path:
    """The one file `python -m build` makes of `source`; `kind` is `sdist` or `wheel`."""
    run(sys.executable, "-m", "build", "--no-isolation", f"--{kind}", "--outdir", into, source)
    (file,) = into.iterdir()
    return file


def install(what: Path | str, folder: Path) -> Path:
    """The bin folder of a new environment with `what` (a file, a folder, a git URL) in it."""
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    # this environment's own .pth files (an editable hpcddp) are not read from there
    (folder / "lib" / version / "site-packages" / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    run(
        *(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--disable-pip-version-check"),
        *("--no-deps", "--no-index", "--no-build-isolation", "--ignore-installed", what),
    )
    return python.parent


def run(*command: object, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    """Standard output of a command that must succeed."""
    done = subprocess.run([str(word) for word in command], cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout
