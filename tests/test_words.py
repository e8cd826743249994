"""The code says what things are: words that name nothing a reader could search for are no identifiers.

`python -m tests.test_words` prints each one that is left, with its places.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

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
        for name, line in [*named, *identifiers(ast.parse(file.read_text(encoding="utf-8")))]:
            if BANNED & set(words(name)) and name not in KEYS_OF_FILES:
                found[name].append(f"{path}:{line}")
    return found


def test_words_are_those_of_an_identifier() -> None:
    """Split at underscores and capitals."""
    assert words("_WholeStep2_asNSValue") == ["whole", "step", "as", "ns", "value"]


def test_identifiers_are_found_wherever_one_may_stand() -> None:
    """Definitions, parameters, names, attributes, keywords, imports, captures."""
    code = (
        "import a.b as c\ndef d(e, *f): global g\nclass H: pass\ni.j(k=1)\n"
        "try: pass\nexcept X as l: pass\nmatch m:\n case n: pass"
    )
    assert {name for name, _ in identifiers(ast.parse(code)) if name} == set("abcdefgHijklmnX")


def test_test_functions_have_sentences_for_names() -> None:
    """A parameter of theirs is an identifier all the same."""
    assert [name for name, _ in identifiers(ast.parse("def test_all_is_told(told): pass"))] == ["told"]


@pytest.mark.dear
@pytest.mark.quick
def test_no_identifier_has_a_banned_word() -> None:
    """Each place is named."""
    assert banned() == {}


if __name__ == "__main__":
    for name, places in sorted(banned().items(), key=lambda item: -len(item[1])):
        print(len(places), name, *places[:12], "..." if places[12:] else "")
