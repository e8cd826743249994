"""Environment modules of a twin: the ones a profile's jobs load, and the Python that they bring."""

from __future__ import annotations

import shlex
from pathlib import Path

from hpcddp.cluster.environment import Environment


def write_modules(environment: Environment, folder: Path, python: str) -> None:
    """`folder`/modulefiles with every module of the profile; the last one puts `folder`/bin with `python` first in PATH."""
    for text_file, text in modulefiles(environment, folder).items():
        text_file.parent.mkdir(parents=True, exist_ok=True)
        text_file.write_text(text, encoding="utf-8")
    _write_interpreters(folder / "bin", python)


def modulefiles(environment: Environment, folder: Path) -> dict[Path, str]:
    """The modulefiles: path -> text."""
    texts = {}
    for name in environment.modules:
        is_last = name == environment.modules[-1]
        path_line = f"prepend-path PATH {folder}/bin\n" if is_last else ""
        texts[folder / "modulefiles" / name] = f"#%Module1.0\nmodule-whatis {{{name}, as far as a twin has it}}\n{path_line}"
    return texts


def _write_interpreters(folder: Path, python: str) -> None:
    """Scripts and not links: a virtual environment is found from the path that Python was started by."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("python", "python3"):
        script = folder / name
        script.write_text(f'#!/bin/sh\nexec {shlex.quote(python)} "$@"\n', encoding="utf-8")
        script.chmod(0o755)
