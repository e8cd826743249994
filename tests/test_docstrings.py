"""Whatever a module offers to others says what it is."""

from __future__ import annotations

import ast

import pytest

from tests.test_words import ROOT, sources


def undocumented(tree: ast.Module) -> list[str]:
    """Public functions and classes of a module that have no docstring."""
    offered = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")]
    return [node.name for node in offered if not ast.get_docstring(node)]


@pytest.mark.dear
@pytest.mark.quick
def test_public_functions_and_classes_have_docstrings() -> None:
    """Those of both packages."""
    trees = {file.relative_to(ROOT): ast.parse(file.read_text(encoding="utf-8")) for file in sources("hpcddp", "analysis")}
    assert [f"{file}: {name}" for file, tree in trees.items() for name in undocumented(tree)] == []


def test_one_without_is_found() -> None:
    """A private one needs none."""
    code = 'def a(): "A."\ndef b(): pass\nclass C: pass\ndef _d(): pass'
    assert undocumented(ast.parse(code)) == ["b", "C"]
