"""Which modules are the user's own, and so travel with a function: those that are loaded and lie in no environment."""

from __future__ import annotations

import site
import sys
import sysconfig
from pathlib import Path

INSTALLED = ("site-packages", "dist-packages")
"""Folders of installed packages, which a compute environment has of its own."""


def own_modules() -> list[str]:
    """Top-level names, sorted, the script's own among them; of a package that is loaded in part, all of it travels."""
    environment = [Path(path).resolve() for path in (*sysconfig.get_paths().values(), site.getusersitepackages())]
    names = set[str]()
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        top = Path(file).stem if name == "__main__" and file else name.partition(".")[0]
        if file and file.endswith(".py") and top not in names and not top.startswith("__") and _is_own(Path(file), environment):
            names.add(top)
    return sorted(name for name in names if _is_found(name))


def search_path() -> list[Path]:
    """Where Python looks for modules, in its order."""
    return [Path(entry or ".").absolute() for entry in sys.path]


def _is_own(file: Path, environment: list[Path]) -> bool:
    folders = file.resolve().parents
    return not any(folder.name in INSTALLED for folder in folders) and not any(folder in folders for folder in environment)


def _is_found(name: str) -> bool:
    """Whether a process that imports it by this name would find it, too: not so where sys.path has changed since."""
    return any(finder.find_spec(name, None) is not None for finder in sys.meta_path if hasattr(finder, "find_spec"))
