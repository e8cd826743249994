"""What holds for all of the source: its words, docstrings and imports, that what its prose names exists, how large a room may be.

`python -m tests.test_source`, part of `make lint`, prints what does not hold. A room is a folder right below hpcddp/ or analysis/
with all that is in it, and its limit is in setup.cfg: one sees in a diff that it was raised. `--limits` prints that table.
"""

from __future__ import annotations

import ast
import configparser
import dataclasses
import functools
import importlib.util
import io
import re
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from hpcddp.sweep.file import Sweep

ROOT = Path(__file__).parent.parent
FOLDERS = ("hpcddp", "analysis", "tests")
BANNED = frozenset(
    {"told", "seen", "settle", "knock", "mend", "turns", "alone", "lanes", "kept", "asked", "whole"}
    | {"tells", "settled", "knocks", "mended", "turn", "lane", "look", "looks", "together", "meeting", "learner", "keeper"}
)
"""They name nothing that a reader could search for."""


KEYS_OF_FILES = frozenset({"data_seen", "seen_by"})
"""Fields of records whose names are keys of files (smoke.json), which stay what they are."""


def sources(*folders: str) -> list[Path]:
    """Python files of the checkout below these folders, each once: links within hpcddp/ are not followed."""
    links = {path for path in (ROOT / "hpcddp").iterdir() if path.is_symlink()}
    files = [file for folder in folders for file in (ROOT / folder).rglob("*.py")]
    return sorted(file for file in files if not links & set(file.parents))


@functools.cache
def tree_of(source: str) -> ast.Module:
    return ast.parse(source)


def parsed(file: Path) -> ast.Module:
    return tree_of(file.read_text(encoding="utf-8"))


def words(identifier: str) -> list[str]:
    """`SlurmJob`, `slurm_job` and `SLURM_JOB` are slurm, job."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", identifier)]


def identifiers(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Every name that code gives or uses, with its line. Test functions have sentences for names, which are prose."""
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if name.startswith("test_"):
                pass
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, line
            case ast.Name(id=name) | ast.arg(arg=name) | ast.Attribute(attr=name) | ast.keyword(arg=str(name)):
                yield name, line
            case ast.alias(name=name, asname=other):
                yield from ((part, line) for part in [*name.split("."), other or ""])
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name, line
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                yield from ((name, line) for name in names)
            case _:
                pass


def banned() -> dict[str, list[str]]:
    """Identifier -> its places; files and folders are identifiers, too."""
    found: dict[str, list[str]] = defaultdict(list)
    for file in sources(*FOLDERS):
        path = file.relative_to(ROOT)
        named = [(part, 0) for part in path.with_suffix("").parts]
        for name, line in [*named, *identifiers(parsed(file))]:
            if BANNED & set(words(name)) and name not in KEYS_OF_FILES:
                found[name].append(f"{path}:{line}")
    return found


def test_words_are_those_of_an_identifier() -> None:
    assert words("_WholeStep2_asNSValue") == ["whole", "step", "as", "ns", "value"]


def test_identifiers_are_found_wherever_one_may_stand() -> None:
    code = (
        "import a.b as c\ndef d(e, *f): global g\nclass H: pass\ni.j(k=1)\n"
        "try: pass\nexcept X as l: pass\nmatch m:\n case n: pass"
    )
    assert {name for name, _ in identifiers(ast.parse(code)) if name} == set("abcdefgHijklmnX")


def test_parameters_of_test_functions_are_identifiers() -> None:
    assert [name for name, _ in identifiers(ast.parse("def test_all_is_told(told): pass"))] == ["told"]


@pytest.mark.dear
@pytest.mark.quick
def test_no_identifier_has_a_banned_word() -> None:
    assert banned() == {}


def undocumented(tree: ast.Module) -> list[str]:
    """Public functions and classes of a module that have no docstring."""
    offered = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")]
    return [node.name for node in offered if not ast.get_docstring(node)]


@pytest.mark.dear
@pytest.mark.quick
def test_public_functions_and_classes_have_docstrings() -> None:
    trees = {file.relative_to(ROOT): parsed(file) for file in sources("hpcddp", "analysis")}
    assert [f"{file}: {name}" for file, tree in trees.items() for name in undocumented(tree)] == []


def test_one_without_is_found() -> None:
    code = 'def a(): "A."\ndef b(): pass\nclass C: pass\ndef _d(): pass'
    assert undocumented(ast.parse(code)) == ["b", "C"]


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
    trees = {module_name(file): parsed(file) for file in sources("hpcddp", "analysis")}
    found = {name: {other for other in imported(tree) if other in trees and other != name} for name, tree in trees.items()}
    packages = {name for name in trees if any(other.startswith(f"{name}.") for other in trees)}
    return {
        name: {other for other in others if not (other in packages and others & below(other, trees))}
        for name, others in found.items()
    }


def below(package: str, modules: Mapping[str, object]) -> set[str]:
    return {name for name in modules if name.startswith(f"{package}.")}


def circle(modules: Mapping[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(modules).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


@pytest.mark.dear
@pytest.mark.quick
def test_no_file_imports_itself_over_others() -> None:
    assert circle(graph()) == []


def test_a_circle_is_found() -> None:
    assert set(circle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})) == {"a", "b", "c"}


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
    for node in docstrings(tree_of(source)):
        yield node.lineno, _without_addresses(str(node.value))


def docstrings(tree: ast.AST) -> list[ast.Constant]:
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
        found.setdefault(module.name, set()).update(top_level(parsed(file)))
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
    for node in docstrings(tree_of(source)):
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
    assert found() == []


def test_names_that_are_gone_are_found() -> None:
    gone = "See worker/no_such.py, gates.no_such and `no_such_name`"
    assert list(stale(gone)) == ["worker/no_such.py", "gates.no_such", "no_such_name"]
    there = "See worker/gates.py, gates.ROUNDING, measure.steps, torch.nn, os.fsync, end.json and `batch_per_gpu`"
    assert list(stale(there)) == []
    assert [text for _, text in prose('"""A."""\nb = 1  # C\n"""D: https://e.f/g.h"""\n')] == ["# C", "A.", "D: "]


ROOM = 1.03
"""What a limit leaves, as a factor."""


def sizes() -> dict[str, int]:
    """Room -> lines of its Python files."""
    lines = Counter[str]()
    for package in ("hpcddp", "analysis"):
        for file in (ROOT / package).rglob("*.py"):
            lines["/".join(file.relative_to(ROOT).parts[:-1][:2])] += file.read_text().count("\n")
    return dict(sorted(lines.items()))


def too_large(found: dict[str, int], limits: dict[str, int]) -> list[str]:
    """A sentence for each room beyond its limit, or without one."""
    words = "make it smaller, or raise its limit in setup.cfg"
    beyond = [(room, lines) for room, lines in found.items() if lines > limits.get(room, 0)]
    return [f"{room} has {lines:,} lines, at most {limits.get(room, 0):,}: {words}" for room, lines in beyond]


def test_one_function_sets_thousands_apart() -> None:
    """No format specification but that of `thousands` has a comma."""
    specs = (
        (file.relative_to(ROOT), part.value)
        for file in sources("hpcddp", "analysis")
        for node in ast.walk(parsed(file))
        if isinstance(node, ast.FormattedValue) and isinstance(node.format_spec, ast.JoinedStr)
        for part in node.format_spec.values
        if isinstance(part, ast.Constant) and set(str(part.value)) & {",", "_"}
    )
    assert [str(file) for file, _ in specs] == ["hpcddp/core/text.py"]


def main(arguments: list[str]) -> int:
    """1 where something does not hold."""
    if arguments == ["--limits"]:
        print("\n".join(f"{room} = {round(ROOM * lines)}" for room, lines in sizes().items()))
        return 0
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    words = [f"{name} is banned: {', '.join(places)}" for name, places in sorted(banned().items())]
    said = [*words, *found(), *too_large(sizes(), {room: int(lines) for room, lines in config["rooms"].items()})]
    print("\n".join(said), end="\n" if said else "")
    return int(bool(said))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
