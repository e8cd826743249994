from __future__ import annotations

import ast
import importlib
import inspect
import pickle
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from hpcddp.backends.slurm_commands import UnansweredError
from hpcddp.cli import EPILOG, main
from hpcddp.core import errors
from hpcddp.core.errors import USAGE, HpcddpError
from hpcddp.core.records import append_line, write_aside, write_file
from hpcddp.core.schema import MissingKeyError, SchemaError
from tests.machine import fill, small_disk
from tests.test_source import module_name, sources

TAKEN = {
    "path": ("a", "b"), "message": "words", "of_record": "is 1", "key": "name", "known": ("names",),
    "rank": 1, "host": "gn02", "words": "words",
}  # fmt: skip
"""What the classes take, by the names of their parameters."""


def classes() -> list[type[Exception]]:
    found = []
    for file in sources("hpcddp", "analysis"):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef) and any(re.search("(Error|Exception)$", ast.unparse(base)) for base in node.bases):
                found.append(getattr(importlib.import_module(module_name(file)), node.name))
    return found


@pytest.mark.parametrize("kind", classes(), ids=lambda kind: kind.__name__)
def test_an_error_comes_back_from_another_process_as_it_is(kind: type[Exception]) -> None:
    takes = [] if kind.__init__ is Exception.__init__ else list(inspect.signature(kind).parameters)
    error = kind(*(TAKEN[name] for name in takes)) if takes else kind("words")
    back = pickle.loads(pickle.dumps(error))
    assert (type(back), str(back)) == (kind, str(error))
    assert str(error)
    assert not isinstance(error, HpcddpError) or str(error.reworded("other words")) == "other words"


def test_a_schema_error_from_inside_a_document_keeps_its_place() -> None:
    back = pickle.loads(pickle.dumps(MissingKeyError("name").inside("workload")))
    assert isinstance(back, SchemaError)
    assert (str(back), back.path) == ("workload: `name` is missing", ("workload",))


@pytest.mark.parametrize("error", [MissingKeyError("name"), errors.FullError("sbatch: full"), HpcddpError("no")])
def test_other_words_keep_the_exit_code(error: HpcddpError) -> None:
    new = error.reworded("other words")
    assert (str(new), new.exit_code) == ("other words", error.exit_code)
    assert MissingKeyError("name").reworded("x").exit_code == USAGE


def test_no_answer_of_slurm_has_the_exit_code_that_help_and_docs_give_it() -> None:
    words = "Slurm or SageMaker refused, or did not answer"
    docs = Path(errors.__file__).parents[2] / "docs" / "troubleshooting.md"
    assert f"5 {words}" in EPILOG
    assert f"| 5 | {words} |" in docs.read_text()
    assert UnansweredError("no").exit_code == errors.FullError("full").exit_code == 5


def test_the_file_that_could_not_be_written_is_named(tmp_path: Path) -> None:
    data = b"x" * 9000
    writers: list[Callable[[Path], None]] = [
        lambda file: write_file(file, data),
        lambda file: write_file(file, data, "x"),
        lambda file: write_aside(file, data),
        lambda file: append_line(file, data.decode()),
    ]
    with small_disk(tmp_path) as disk:
        fill(disk)
        for number, write in enumerate(writers):
            file = disk / f"{number}.sh"
            with pytest.raises(OSError, match=f"No space left on device: '{re.escape(str(file))}'"):
                write(file)


def test_a_record_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    """Who has it open reads the old one; where the new one does not fit the old one stays, and nothing beside it."""
    with small_disk(tmp_path) as disk:
        file = disk / "end.json"
        write_aside(file, b"old")
        with file.open("rb") as reader:
            write_aside(file, b"new")
            assert (reader.read(), file.read_bytes()) == (b"old", b"new")
        fill(disk)
        before = sorted(disk.iterdir())
        with pytest.raises(OSError, match="No space left"):
            write_aside(file, b"x" * 9000)
        assert (file.read_bytes(), sorted(disk.iterdir())) == (b"new", before)


@pytest.mark.parametrize(
    "command",
    [["init", "rcc-bigmnist", "-o", "FILE"], ["render", "--cluster", "rcc", "--nodes", "1", "--set", "account=a", "-o", "FILE"]],
)
def test_commands_say_which_file(tmp_path: Path, command: list[str]) -> None:
    with small_disk(tmp_path) as disk:
        fill(disk)
        file = disk / "new.yaml"
        ended = CliRunner().invoke(main, [str(file) if word == "FILE" else word for word in command])
        assert ended.exit_code == 1
        assert f"{file}: No space left on device" in ended.stderr
