"""Where runs are, on the command line: a folder, or the sweep whose runs are meant."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

_SWEEP = "hpcddp.sweep.file"
"""In click's own place for what a parameter leaves for its command."""


def named_sweep(ctx: click.Context) -> Path | None:
    """The sweep file that stood for a folder; None where the folder itself was named."""
    found: Path | None = ctx.meta.get(_SWEEP)
    return found


class RunsPath(click.Path):
    """An existing path. A sweep file stands for the folder its runs land in, unless they were sent elsewhere with --runs."""

    def __init__(self, *, file_okay: bool = True) -> None:
        super().__init__(exists=True, file_okay=file_okay, path_type=Path)

    def convert(self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None) -> Any:
        sweep = Path(value)
        if sweep.suffix not in (".yaml", ".yml") or not sweep.is_file():
            return super().convert(value, param, ctx)
        from hpcddp.study.study_folder import usual_folder

        folder = usual_folder(sweep)
        if not folder.is_dir():
            self.fail(f"{sweep}: nothing of it was submitted, {folder} is not there. Name the folder of its runs", param, ctx)
        if ctx is not None:
            ctx.meta[_SWEEP] = sweep
        return folder
