"""hpcddp as a user has it: built from a copy of this checkout and installed beside this environment's dependencies, offline."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

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
