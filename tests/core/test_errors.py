"""Errors keep their text, whatever a class of them takes: in another process, and where somebody words them anew."""

from __future__ import annotations

import ast
import importlib
import inspect
import pickle
from pathlib import Path

import pytest

from hpcddp.backends.slurm_commands import UnansweredError
from hpcddp.cli import EPILOG
from hpcddp.core import errors
from hpcddp.core.errors import USAGE, HpcddpError
from hpcddp.core.schema import MissingKeyError, SchemaError

PACKAGES = (Path(errors.__file__).parents[1], Path(errors.__file__).parents[2] / "analysis")

TAKEN = {
    "path": ("a", "b"), "message": "words", "of_record": "is 1", "key": "name", "known": ("names",),
    "rank": 1, "host": "gn02", "words": "words",
}  # fmt: skip
"""What the classes take, by the names of their parameters."""


def classes() -> list[type[Exception]]:
    """Every class of errors in the source."""
    found = []
    for package in PACKAGES:
        for file in sorted(package.rglob("*.py")):
            for node in ast.parse(file.read_text()).body:
                if isinstance(node, ast.ClassDef) and any(
                    ast.unparse(base).endswith(("Error", "Exception")) for base in node.bases
                ):
                    name = ".".join(file.relative_to(package).with_suffix("").parts)
                    inside = "hpcddp.analysis" if package.name == "analysis" else "hpcddp"
                    found.append(getattr(importlib.import_module(f"{inside}.{name}"), node.name))
    return found


@pytest.mark.parametrize("kind", classes(), ids=lambda kind: kind.__name__)
def test_an_error_comes_back_from_another_process_as_it_is(kind: type[Exception]) -> None:
    """As pools and submitit send it: of its class, with its text."""
    takes = [] if kind.__init__ is Exception.__init__ else list(inspect.signature(kind).parameters)
    error = kind(*(TAKEN[name] for name in takes)) if takes else kind("words")
    back = pickle.loads(pickle.dumps(error))
    assert (type(back), str(back)) == (kind, str(error))
    assert str(error)
    assert not isinstance(error, HpcddpError) or str(error.reworded("other words")) == "other words"


def test_a_schema_error_from_inside_a_document_keeps_its_place() -> None:
    """It is added after the error was made."""
    back = pickle.loads(pickle.dumps(MissingKeyError("name").inside("workload")))
    assert isinstance(back, SchemaError)
    assert (str(back), back.path) == ("workload: `name` is missing", ("workload",))


@pytest.mark.parametrize("error", [MissingKeyError("name"), errors.FullError("sbatch: full"), HpcddpError("no")])
def test_other_words_keep_the_exit_code(error: HpcddpError) -> None:
    """Also of a class that takes no text."""
    new = error.reworded("other words")
    assert (str(new), new.exit_code) == ("other words", error.exit_code)
    assert MissingKeyError("name").reworded("x").exit_code == USAGE


def test_no_answer_of_slurm_has_the_exit_code_that_help_and_docs_give_it() -> None:
    """One sentence in both."""
    words = "Slurm refused or did not answer"
    docs = Path(errors.__file__).parents[2] / "docs" / "troubleshooting.md"
    assert f"5 {words}" in EPILOG
    assert f"| 5 | {words} |" in docs.read_text()
    assert UnansweredError("no").exit_code == errors.FullError("full").exit_code == 5
