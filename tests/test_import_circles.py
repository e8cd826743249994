"""No two files import each other, whatever lies between: each can be read after those that it imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.test_words import ROOT, sources


def module_name(file: Path) -> str:
    """`hpcddp.analysis.runs.run`; a package is its own name."""
    parts = [*file.relative_to(ROOT).with_suffix("").parts]
    return ".".join((["hpcddp"] if parts[0] == "analysis" else []) + [part for part in parts if part != "__init__"])


def imported(tree: ast.Module) -> Iterator[str]:
    """Modules, and names that may be modules, wherever in the file they are imported."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(module), names=names):
                yield from (module, *(f"{module}.{alias.name}" for alias in names))
            case _:
                pass


def graph() -> Mapping[str, set[str]]:
    """Module -> the modules of ours that it imports; a name of a module is that module, not its package."""
    trees = {module_name(file): ast.parse(file.read_text(encoding="utf-8")) for file in sources("hpcddp", "analysis")}
    found = {name: {other for other in imported(tree) if other in trees and other != name} for name, tree in trees.items()}
    packages = {name for name in trees if any(other.startswith(f"{name}.") for other in trees)}
    return {
        name: {other for other in others if not (other in packages and others & below(other, trees))}
        for name, others in found.items()
    }


def below(package: str, modules: Mapping[str, object]) -> set[str]:
    """The modules of a package."""
    return {name for name in modules if name.startswith(f"{package}.")}


def circle(modules: Mapping[str, set[str]]) -> list[str]:
    """The modules of a circle, if there is one."""
    try:
        TopologicalSorter(modules).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


@pytest.mark.dear
@pytest.mark.quick
def test_no_file_imports_itself_over_others() -> None:
    """Inside functions either."""
    assert circle(graph()) == []


def test_a_circle_is_found() -> None:
    """Over a third module, too."""
    assert set(circle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})) == {"a", "b", "c"}
