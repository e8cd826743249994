"""What a training script is sure to import, imported in its place before any run waits for nodes; its main part does not run.

Sure is what its own lines import whatever happens: none within a function, behind a condition, in a `try` or where errors are
suppressed, nor behind a line that changes where modules are found, as `sys.path.insert` does. A module beside the script is
imported as it is in a run, and with it all that it imports.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hpcddp.core.jobspec import JobSpec
from hpcddp.worker.ranks import Rank
from hpcddp.worker.script_place import enter_place, set_rank_variables

WHERE_MODULES_ARE = {"sys.path", "sys.modules", "sys.meta_path", "sys.path_hooks", "site.addsitedir"}


@dataclass(frozen=True)
class Imported:
    """One name, as a line of the script has it."""

    line: int
    module: str
    name: str | None = None
    """Of `from module import name`."""


def import_problems(spec: JobSpec, rank: Rank) -> Iterator[str]:
    """In the script's place, as a rank of it; a sentence for each line whose import fails."""
    assert spec.script
    script = enter_place(spec.script, spec.point.workload)
    set_rank_variables(rank, rank.master_port)
    failed = set[str]()
    for each in sure_imports(script):
        problem = _problem(each)
        if problem and problem not in failed:
            failed.add(problem)
            yield f"{rank.host}: {script.name}, line {each.line}, imports {each.module}: {problem}"


def sure_imports(script: Path) -> list[Imported]:
    """In the order of lines; those of `if __name__ == "__main__":` among them."""
    tree = ast.parse(script.read_bytes(), str(script))
    here = itertools.takewhile(lambda statement: not _moves_modules(statement), _sure(tree.body))
    return [each for statement in here for each in _imported(statement)]


def _sure(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements that run whatever happens."""
    for statement in body:
        if isinstance(statement, (ast.With, ast.ClassDef)) or (isinstance(statement, ast.If) and _is_main(statement.test)):
            yield from () if _suppresses(statement) else _sure(statement.body)
        else:
            yield statement


def _suppresses(statement: ast.stmt) -> bool:
    """As contextlib.suppress does, and what some libraries have for imports that may fail."""
    managers = [ast.unparse(each.context_expr) for each in statement.items] if isinstance(statement, ast.With) else []
    return any(word in manager for manager in managers for word in ("suppress", "import"))


def _moves_modules(statement: ast.stmt) -> bool:
    """Whether it names what Python finds modules by."""
    names = {ast.unparse(each) for each in ast.walk(statement) if isinstance(each, ast.Attribute)}
    return bool(names & WHERE_MODULES_ARE)


def _is_main(test: ast.expr) -> bool:
    return isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and test.left.id == "__name__"


def _imported(statement: ast.stmt) -> Iterator[Imported]:
    if isinstance(statement, ast.Import):
        yield from (Imported(statement.lineno, each.name) for each in statement.names)
    elif isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
        yield from (Imported(statement.lineno, statement.module, each.name) for each in statement.names)


def _problem(what: Imported) -> str | None:
    """Why it fails, and what to do; None where it does not."""
    try:
        _import(what)
    except ModuleNotFoundError as error:
        advice = "install it in the compute environment, or put it beside the script"
        return f"{type(error).__name__}: {error}: {advice}"
    except (Exception, SystemExit) as error:
        return f"{type(error).__name__}: {error}"
    return None


def _import(what: Imported) -> None:
    module = importlib.import_module(what.module)
    if what.name in (None, "*") or hasattr(module, str(what.name)):
        return
    with contextlib.suppress(ModuleNotFoundError):
        importlib.import_module(f"{what.module}.{what.name}")
        return
    raise ImportError(f"cannot import name {what.name!r} from {what.module!r} ({getattr(module, '__file__', None)})")
