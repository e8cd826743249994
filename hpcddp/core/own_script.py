"""A sweep's point that is a script of the user's own: its command line, its files, and what its job found out of it.

Its files are it and the modules beside it that it imports, these with theirs: read from the source, nothing is imported.
"""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from hpcddp.core.errors import UsageError
from hpcddp.core.launch_record import ScriptFacts
from hpcddp.core.point import Data, Point, Workload


def arguments(workload: Workload) -> list[str]:
    """The words behind the script's name: `--depth 12 --amp --sizes 1 2`."""
    return [word for name, value in workload.args.items() for word in _words(name, value)]


def script_text(workload: Workload) -> str:
    """`train.py --depth 12`, as people write it."""
    return " ".join([Path(workload.script or "").name, *arguments(workload)])


def command_text(point: Point) -> str | None:
    """The same of a point whose loop is the user's, in a sweep or not; None of hpcddp's own."""
    if point.script:
        return " ".join([point.script.name, *point.script.arguments])
    return script_text(point.workload) if point.workload.script else None


def completed(point: Point, facts: ScriptFacts) -> Point:
    """The point with what its job found out; its id is the same."""
    workload = dataclasses.replace(
        point.workload,
        model=facts.model,
        data=Data(name=facts.data),
        precision=facts.precision,
        batch_per_gpu=facts.samples_per_step,
        accumulate=facts.iterations_per_step,
        loader_workers_per_rank=facts.loader_workers_per_rank,
        parallel=facts.parallel,
    )
    return dataclasses.replace(point, workload=workload)


def facts_of(workload: Workload) -> ScriptFacts:
    """What `completed` put into a point."""
    return ScriptFacts(
        model=workload.model,
        data=workload.data.name,
        precision=workload.precision,
        samples_per_step=workload.batch_per_gpu,
        iterations_per_step=workload.accumulate,
        loader_workers_per_rank=workload.loader_workers,
        parallel="ddp" if workload.parallel == "ddp" else "none",
    )


def _words(name: str, value: object) -> Iterator[str]:
    if value is None or value is False:
        return
    yield f"--{name}"
    if isinstance(value, (list, tuple)):
        yield from map(str, value)
    elif value is not True:
        yield str(value)


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
    """12 hexadecimal digits over the names and contents of these files; over the script's own content where it is alone."""
    files = {name: file.read_bytes() for name, file in script_files(script).items()}
    if len(files) == 1:
        (content,) = files.values()
        return hashlib.sha256(content).hexdigest()[:12]
    return digest_of_contents(files)[:12]


def digest_of_contents(contents: Mapping[str, bytes]) -> str:
    """Hexadecimal digits of the SHA-256 over names and contents."""
    total = hashlib.sha256()
    for name, content in sorted(contents.items()):
        total.update(f"{name}\0{hashlib.sha256(content).hexdigest()}\n".encode())
    return total.hexdigest()


def _imported(file: Path) -> set[str]:
    """Top-level names of all modules that the file imports anywhere, but for those from its own package."""
    try:
        tree = ast.parse(file.read_bytes(), str(file))
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"{file}: not valid Python: {error}") from error
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
            yield from python_files(folder / module, module)
            return
        if (file := folder / f"{module}.py").is_file():
            yield file.name, file
            return


def python_files(folder: Path, name: str) -> Iterator[tuple[str, Path]]:
    """Those of a package of that name."""
    return ((f"{name}/{file.relative_to(folder).as_posix()}", file) for file in files_below(folder) if file.suffix == ".py")


def files_below(folder: Path) -> Iterator[Path]:
    """Sorted; links to folders and hidden folders are left out."""
    for here, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != "__pycache__" and not name.startswith("."))
        yield from (Path(here) / name for name in sorted(files))
