"""The code a job needs, copied into the study by content hash: an upgrade on the login node cannot alter a queued job."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import stat
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec, PathFinder
from pathlib import Path
from urllib.parse import quote

from hpcddp.core.bootstrap import ownership_problem
from hpcddp.core.errors import HpcddpError, UsageError
from hpcddp.core.own_script import digest_of_contents, files_below, python_files, script_files
from hpcddp.core.records import write_file
from hpcddp.core.run_root import Study

PACKAGE = Path(__file__).parents[1]

JOB_SIDE = (
    *("__init__.py", "core/", "data/", "probe/", "worker/"),
    *(
        "backends/__init__.py",
        "backends/local_queue.py",
        "backends/local_ranks.py",
        "backends/local_runner.py",
        "backends/hosts_run.py",
    ),
    *("backends/function_task.py", "backends/submitit_plugin.py"),
)
"""Folders and files of hpcddp that jobs run: the worker with what it imports, the probe, the runner of jobs on this machine, and
what runs a function of the user's own."""

ALWAYS = ("submitit", "cloudpickle", "typing_extensions")
"""What unpickling and running a job needs beside hpcddp; all pure Python."""

IF_PRESENT = ("pynvml",)
"""nvidia-ml-py: reads GPU clocks and temperatures where there are GPUs."""

BOOTSTRAP = "bootstrap.py"


def take_snapshot(
    study: Study,
    extra_modules: Sequence[str],
    near: Sequence[Path] = (),
    trusted: Collection[int] = (),
    scripts: Sequence[str] = (),
) -> Path:
    """The folder `.code/HASH` of the study with hpcddp, submitit and the user's modules; made if it is not there yet, compared
    with them if it is. HpcddpError where something else is in it, or somebody else may write there (`trusted` groups excepted).

    `extra_modules` are `package.module:factory` or module names; the whole top-level package or module travels, found
    without importing it, first in `near` (the sweep's folder) and the current directory. A package with compiled parts
    stays behind: the compute environment must have its own. UsageError names a module that is nowhere. `scripts`: training
    scripts, by their paths from the first of `near`; with each go the modules beside it or in `near` that it imports.
    """
    importlib.invalidate_caches()
    contents = {name: file.read_bytes() for name, file in _files(extra_modules, near)}
    for script in scripts:
        contents |= {script_place(script, name): file.read_bytes() for name, file in script_files(near[0] / script, near).items()}
    target = study.code / digest_of_contents(contents)[:16]
    if not os.path.lexists(target):
        _write(contents, target)
    verify(target, contents, trusted)
    purged = {name: content for name, content in contents.items() if not (target / name).is_file()}
    for name, content in purged.items():  # scratch file systems take old files away, one by one
        aside = (target / name).with_name(f".{Path(name).name}.{os.getpid()}")
        _write_file(aside, content)
        aside.rename(target / name)
    return target


def script_place(script: str, name: str | None = None) -> str:
    """Where in a snapshot a script lies, or a file that goes with it: in a folder of its own, with no other script's modules."""
    return f"script-{quote(script, safe='')}/{name or Path(script).name}"


def _files(extra_modules: Sequence[str], near: Sequence[Path]) -> Iterator[tuple[str, Path]]:
    """Path inside the snapshot and source of every file."""
    yield BOOTSTRAP, PACKAGE / "core" / BOOTSTRAP
    for name in JOB_SIDE:
        place = PACKAGE / name
        yield from python_files(place, f"hpcddp/{name.rstrip('/')}") if place.is_dir() else [(f"hpcddp/{name}", place)]
    for name in (*ALWAYS, *(name for name in IF_PRESENT if _find(name, ()))):
        yield from _module_files(name, ())
    own = {"hpcddp", *ALWAYS, *sys.stdlib_module_names}
    for name in sorted({text.partition(":")[0].partition(".")[0] for text in extra_modules} - own):
        yield from _module_files(name, (*near, Path.cwd()))


def _find(name: str, near: Sequence[Path]) -> ModuleSpec | None:
    """A top-level module's spec, without importing anything. As in Python's own search, a mere folder of that name (its spec has
    no origin) gives way to a module found later: results beside the sweep hide no package.
    """
    beside = PathFinder.find_spec(name, [str(folder) for folder in near])
    if beside is not None and beside.origin is not None:
        return beside
    return importlib.util.find_spec(name) or beside


def _module_files(name: str, near: Sequence[Path]) -> Iterator[tuple[str, Path]]:
    """A package's .py files, or the one file of a module; nothing of what has compiled parts."""
    spec = _find(name, near)
    if spec is None:
        places = ", ".join(dict.fromkeys(str(folder) for folder in near))
        raise UsageError(f"no module `{name}` in {places} or this Python ({sys.prefix}); put it beside the sweep, or install it")
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
    if any(file.name.endswith(tuple(EXTENSION_SUFFIXES)) for folder in folders for file in files_below(folder)):
        return
    held = [file for folder in folders for file in python_files(folder, name)]
    if folders and not held:
        places = " and ".join(map(str, folders))
        raise UsageError(f"no module `{name}`: {places} holds no Python code; put {name}.py beside the sweep, or install it")
    yield from held
    if not folders and spec.origin is not None and spec.origin.endswith(".py"):
        yield f"{name}.py", Path(spec.origin)


def _write(contents: Mapping[str, bytes], target: Path) -> None:
    """All files, read-only, written aside and renamed: nobody sees half a snapshot, and the first of two writers wins."""
    aside = target.with_name(f".{target.name}.{os.getpid()}")
    for name, content in contents.items():
        _write_file(aside / name, content)
    try:
        aside.rename(target)
    except OSError:
        shutil.rmtree(aside)
        if not target.is_dir():
            raise


def _write_file(file: Path, content: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    write_file(file, content)
    file.chmod(0o444)


def verify(snapshot: Path, contents: Mapping[str, bytes], trusted: Collection[int]) -> None:
    """HpcddpError for a file whose bytes are not those of `contents`, for a file that `contents` lacks, for a link, and for
    folders and files that others own or may write. Missing files are not looked for, nor are hidden ones, which nothing
    imports. Reads every file once a submission; what jobs check is in bootstrap.py.
    """
    for file in (snapshot, *_entries(snapshot)):
        name = file.relative_to(snapshot).as_posix()
        problem = ownership_problem(file, trusted)
        if problem or not (file.is_dir() or _holds(file, contents.get(name))):
            what = f"{problem[0]} would run as you" if problem else "does not match the snapshot's hash"
            raise HpcddpError(f"{file} {what}. Remove the snapshot and submit again: rm -r {shlex.quote(str(snapshot))}")


def _entries(folder: Path) -> Iterator[Path]:
    for entry in sorted(folder.iterdir()):
        if not entry.name.startswith("."):
            yield entry
            if stat.S_ISDIR(os.lstat(entry).st_mode):
                yield from _entries(entry)


def _holds(file: Path, content: bytes | None) -> bool:
    """Whether the file has that content; a pipe or a device is not read, which could wait for ever."""
    return content is not None and stat.S_ISREG(os.lstat(file).st_mode) and file.read_bytes() == content
