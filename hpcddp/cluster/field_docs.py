"""What the docstrings of dataclasses say of their fields, in the words of YAML."""

from __future__ import annotations

import ast
import functools
import inspect
import re
import textwrap


@functools.cache
def field_docs(cls: type) -> dict[str, str]:
    """Field -> the docstring below it, in one line, with None, True and False as null, true and false."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(tree, ast.ClassDef)
    found = {}
    for field, below in zip(tree.body, tree.body[1:], strict=False):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = as_yaml(" ".join(text.split()))
            case _:
                pass
    return found


def as_yaml(text: str) -> str:
    """What Python calls None, True and False is null, true and false in a sweep or profile."""
    return re.sub(r"\b(None|True|False)\b", lambda word: f"`{'null' if word[0] == 'None' else word[0].lower()}`", text)
