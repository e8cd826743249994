"""What docstrings and comments name exists: files, functions of modules, and whatever stands in backticks.

`python -m tests.test_mentions` prints what does not.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib.util
import io
import re
import sys
import tokenize
from collections.abc import Iterator

import pytest

from hpcddp.sweep.file import Sweep
from tests.test_words import ROOT, sources

FILES = sources("hpcddp", "analysis")
ENDINGS = "conf|cpp|css|csv|db|err|gz|html|js|jsonl?|lock|md|pkl|py|reserve|sbatch|sh|sif|stat|tex|u8|usage|xml|yaml"
FILE_ENDS = re.compile(rf"\.({ENDINGS})$")
FOREIGN_FILES = frozenset({"torch/distributed/argparse_util.py", "throughput.py", "HASH/bootstrap.py"})
OF_SLURM = {"AssocGrpCPUMinutesLimit", "INVALID", "QOSMaxNodePerUserLimit", "UNLIMITED"}
OF_LIBRARIES = {"_env", "dist", "fp32_precision", "localflock", "op", "tqdm"}
EXAMPLES = {"Avg", "L0001", "ac", "data", "fsdp16", "jfly", "n01", "package", "r001", "r007", "r1"}
FOREIGN = OF_SLURM | OF_LIBRARIES | EXAMPLES
"""What is named without being ours, the first part of a dotted name included."""


def prose(source: str) -> Iterator[tuple[int, str]]:
    """Comments and docstrings, those of fields too, with their lines; without addresses of the web."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], _without_addresses(token.string)
    for node in docstrings(ast.parse(source)):
        yield node.lineno, _without_addresses(str(node.value))


def docstrings(tree: ast.AST) -> list[ast.Constant]:
    """Strings that are statements."""
    statements = [node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)]
    return [value for value in statements if isinstance(value, ast.Constant) and isinstance(value.value, str)]


def _without_addresses(text: str) -> str:
    return re.sub(r"\S+://\S+", "", text)


@functools.cache
def paths() -> set[str]:
    """Every file of the checkout, from each folder on its way: a/b/c.py, b/c.py, c.py."""
    files = [file.relative_to(ROOT).parts for file in sources("hpcddp", "analysis", "tests")]
    return {"/".join(parts[start:]) for parts in files for start in range(len(parts))}


@functools.cache
def definitions() -> dict[str, set[str]]:
    """Last part of a module's name -> what any such module defines, a package its modules."""
    found: dict[str, set[str]] = {}
    for file in FILES:
        module = file.parent if file.name == "__init__.py" else file.with_suffix("")
        if module.parent != ROOT:  # whose name is the checkout's own
            found.setdefault(module.parent.name, set()).add(module.name)
        found.setdefault(module.name, set()).update(top_level(ast.parse(file.read_text(encoding="utf-8"))))
    return found


def top_level(tree: ast.Module) -> Iterator[str]:
    """Functions, classes, constants, and methods of classes as Class.method's first part."""
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Assign(targets=targets):
                yield from (name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                yield from (alias.asname or alias.name for alias in names)
            case _:
                pass


@functools.cache
def sweep_parts() -> set[str]:
    """What a key of a sweep may begin with, and names that sentences use for what a module calls otherwise."""
    return {field.name for field in dataclasses.fields(Sweep)} | {"optimizer", "ddp"}


@functools.cache
def code_words() -> set[str]:
    """Every word of the code: identifiers and what strings hold, without docstrings; and of templates, profiles and sweeps."""
    texts = [without_prose(file.read_text(encoding="utf-8")) for file in FILES]
    others = [file for end in ("templates/*.j2", "clusters/*.yaml", "jobs/*.yaml", "analysis/**/*.js") for file in ROOT.glob(end)]
    texts += [file.read_text(encoding="utf-8") for file in others]
    return {word for text in texts for word in re.findall(r"\w+", text)}


def without_prose(source: str) -> str:
    """Without docstrings and comments."""
    lines = source.splitlines()
    for node in docstrings(ast.parse(source)):
        lines[node.lineno - 1 : node.end_lineno] = [""] * ((node.end_lineno or node.lineno) - node.lineno + 1)
    tokens = tokenize.generate_tokens(io.StringIO("\n".join(lines) + "\n").readline)
    return " ".join(token.string for token in tokens if token.type != tokenize.COMMENT)


def stale(text: str) -> Iterator[str]:
    """What a piece of prose names and the code has not."""
    yield from (
        name
        for name in re.findall(r"[\w./-]*\w\.py\b", text)
        if name.removeprefix("hpcddp/analysis/") not in paths() | FOREIGN_FILES
    )
    yield from (name for name in re.findall(r"(?<![\w./-])[a-z_]\w*(?:\.[A-Za-z_]\w+)+", text) if not known_dotted(name))
    yield from (name for name in re.findall(r"`([A-Za-z_]\w+)`", text) if name not in code_words() | FOREIGN)


def known_dotted(name: str) -> bool:
    """`module.NAME` of ours; or a key of a sweep, a file, something of a library."""
    first, second = name.split(".")[:2]
    if FILE_ENDS.search(name) or first in sweep_parts() | FOREIGN:
        return True
    if first == "hpcddp":
        is_function = name.count(".") == 1 and second in definitions()[first]
        return is_function or importlib.util.find_spec(name) is not None
    if first in definitions():
        return second in definitions()[first]
    return first in sys.stdlib_module_names or importlib.util.find_spec(first) is not None


def found() -> list[str]:
    """Each stale name with its place."""
    return [
        f"{file.relative_to(ROOT)}:{line} {name}"
        for file in FILES
        for line, text in prose(file.read_text(encoding="utf-8"))
        for name in stale(text)
    ]


@pytest.mark.dear
@pytest.mark.quick
def test_what_prose_names_exists() -> None:
    """A name that moved away is found where prose still has it."""
    assert found() == []


def test_names_that_are_gone_are_found() -> None:
    """A file, a function of a module, a parameter; what is there, a key of a sweep and a library's are none."""
    gone = "See worker/no_such.py, gates.no_such and `no_such_name`"
    assert list(stale(gone)) == ["worker/no_such.py", "gates.no_such", "no_such_name"]
    there = "See worker/gates.py, gates.ROUNDING, measure.steps, torch.nn, os.fsync, end.json and `batch_per_gpu`"
    assert list(stale(there)) == []
    assert [text for _, text in prose('"""A."""\nb = 1  # C\n"""D: https://e.f/g.h"""\n')] == ["# C", "A.", "D: "]


if __name__ == "__main__":
    print(*found(), sep="\n")
