"""Which files a training script consists of: it, and the modules beside it that it imports, these with theirs.

Read from the source, nothing is imported. Standard library only, Python 3.10: jobs hash these files, too.
"""

from __future__ import annotations

import ast
import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from hpcddp.core.errors import UsageError


def script_files(script: Path, near: Sequence[Path] = ()) -> dict[str, Path]:
    """Name beside the script -> file. Modules are searched for in the script's folder, then in those of `near`; what is in none
    of them is an installed library. A package comes with all of its Python files. UsageError where a file is no Python.
    """
    folders = list(dict.fromkeys([script.parent, *near]))
    found, unread = {script.name: script}, [script]
    while unread:
        for module in sorted(_imported(unread.pop())):
            new = {name: file for name, file in _module_files(module, folders) if name not in found}
            found |= new
            unread += new.values()
    return found


def digest_with_modules(script: Path) -> str:
    """12 hexadecimal digits of the SHA-256 over the names and contents of these files; of the script's own content where it is
    alone.
    """
    files = {name: file.read_bytes() for name, file in script_files(script).items()}
    if len(files) == 1:
        (content,) = files.values()
        return hashlib.sha256(content).hexdigest()[:12]
    total = hashlib.sha256()
    for name, content in sorted(files.items()):
        total.update(f"{name}\0{hashlib.sha256(content).hexdigest()}\n".encode())
    return total.hexdigest()[:12]


def _imported(file: Path) -> set[str]:
    """Top-level names of all modules that the file imports anywhere, but for those from its own package."""
    try:
        tree = ast.parse(file.read_bytes(), str(file))
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"{file}: no Python that can be read: {error}") from error
    names = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(each.name.partition(".")[0] for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


def _module_files(module: str, folders: Sequence[Path]) -> Iterator[tuple[str, Path]]:
    """A package comes before a module of its name, as in Python's own search."""
    for folder in folders:
        if (folder / module / "__init__.py").is_file():
            yield from _package_files(folder / module)
            return
        if (file := folder / f"{module}.py").is_file():
            yield file.name, file
            return


def _package_files(package: Path) -> Iterator[tuple[str, Path]]:
    for here, folders, files in os.walk(package):
        folders[:] = sorted(name for name in folders if name != "__pycache__" and not name.startswith("."))
        for name in sorted(files):
            if name.endswith(".py"):
                file = Path(here) / name
                yield file.relative_to(package.parent).as_posix(), file
