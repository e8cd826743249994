"""The smoke test: one short job that shows, before anything else is submitted, whether workers can run there.

Of a training script, what it is sure to import is imported in its place; its main part does not run. Sure is what its own lines
import whatever happens: none within a function, behind a condition, in a `try` or where errors are suppressed, nor behind a line
that changes where modules are found, as `sys.path.insert` does. A module beside the script is imported as it is in a run, and
with it all that it imports.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcddp.core.catalog import is_factory
from hpcddp.core.errors import HpcddpError
from hpcddp.core.job_records import SmokeData, SmokeFindings, SmokeSummary
from hpcddp.core.jobspec import JobSpec, data_root, data_root_as_given
from hpcddp.core.launch_record import NodeFacts
from hpcddp.core.point import FROM_LIBRARY, LIBRARY_MODULE, Data
from hpcddp.core.prepared import FILES, unprepared
from hpcddp.worker import small_job
from hpcddp.worker.ranks import Rank
from hpcddp.worker.script_place import enter_place, set_rank_variables

WHERE_MODULES_ARE = {"sys.path", "sys.modules", "sys.meta_path", "sys.path_hooks", "site.addsitedir"}


def smoke_rank(spec: dict[str, Any]) -> dict[str, Any]:
    """Every rank leaves its findings and returns them; rank 0 writes smoke.json from all and returns its content."""
    job, rank, study = small_job.begin(spec)
    folder = study.smoke_dir(rank.job)
    findings = small_job.leave(small_job.answer_file(folder / "smoke", rank.rank), examine(job, rank))
    if rank.rank:
        return findings
    found, silent = small_job.answers(SmokeFindings, folder / "smoke", rank.world)
    return small_job.leave(folder / "smoke.json", summarize(job, found, silent))


def examine(job: JobSpec, rank: Rank) -> SmokeFindings:
    """What one rank finds; whatever goes wrong is a sentence under `problems`."""
    problems: list[str] = []
    root = small_job.tried(problems, rank.host, "the data folder", data_root, job)
    readable = None if root is None else os.path.isdir(root) and os.access(root, os.R_OK | os.X_OK)
    if readable and root is not None and rank.local_rank == 0 and job.point.reads_data:
        small_job.tried(problems, rank.host, "the data cannot be read", _open_data, job.point.workload.data, root)
    for name in _needed_modules(job):
        small_job.tried(problems, rank.host, f"cannot import {name}", importlib.import_module, name)
    found = _TorchFindings()
    small_job.tried(problems, rank.host, "torch does not work", found.examine, rank, job.point.device)
    if job.script and found.summed:
        small_job.tried(problems, rank.host, "the script's imports", lambda: problems.extend(import_problems(job, rank)))
    return SmokeFindings(
        rank=rank.rank,
        host=rank.host,
        data_root=root,
        data_seen=readable,
        problems=tuple(problems),
        versions=found.versions,
        node=found.node,
        summed=found.summed,
    )


def summarize(job: JobSpec, found: Sequence[SmokeFindings], silent: str) -> SmokeSummary:
    """The findings of all ranks in one summary; `found` in the order of ranks, `silent`: those that did not answer."""
    problems = [problem for each in found for problem in each.problems]
    if silent:
        within = f"{small_job.ANSWER_WITHIN_S:.0f} s"
        problems.append(f"no answer from rank {silent} in {within}: check that {job.study} is the same folder on every node")
    found_on = _hosts(found, readable=True)
    missing_on = [host for host in _hosts(found, readable=False) if host not in found_on]
    root, default = data_root_as_given(job), job.profile.get("default_node_type")
    if missing_on:
        problems.append(f"the data folder {root} is missing or not readable on {', '.join(missing_on)}")
    return SmokeSummary(
        ok=not problems,
        problems=tuple(dict.fromkeys(problems)),
        node_type=job.point.layout.node_type or (default if isinstance(default, str) else None),
        data=SmokeData(root=root, seen_by=tuple(found_on), missing_on=tuple(missing_on)),
        ranks=tuple(found),
    )


def _open_data(data: Data, root: str) -> None:
    """HpcddpError where a run would not find its data, or other data; a folder of a million pictures is not listed for that."""
    found = unprepared(data, Path(root))
    if found is not None:
        raise HpcddpError(found.text)
    if data.name in FILES and not (data.name == "imagenet" and not (Path(root) / FILES["imagenet"][0]).is_file()):
        from hpcddp.data.opening import open_source

        open_source(data, "train", root)


def _needed_modules(job: JobSpec) -> list[str]:
    if job.script:
        return ["torch"]
    names = [job.point.workload.model, job.point.workload.data.name]
    own = [name.partition(":")[0] for name in names if is_factory(name)]
    vision = not is_factory(names[0]) and names[0] not in ("mnist-cnn", "none")
    library = [LIBRARY_MODULE] if job.point.workload.optimizer.name in FROM_LIBRARY else []
    decoder = [job.point.workload.data.decoder] if job.point.workload.data.decoder in ("simplejpeg", "torchvision") else []
    return ["torch", *(["torchvision"] if vision else []), *decoder, *library, *own]


@dataclass
class _TorchFindings:
    """What is known by the time that something goes wrong."""

    versions: Mapping[str, str | None] | None = None
    node: NodeFacts | None = None
    summed: int | None = None

    def examine(self, rank: Rank, device: str) -> None:
        """Versions and GPUs, then one sum over all ranks by the way that training will take."""
        import torch
        import torch.distributed as dist

        from hpcddp.worker.launch_record import node_facts, versions
        from hpcddp.worker.rendezvous import join

        self.versions, self.node = versions(), node_facts(rank.host)
        group = join(rank, device, small_job.MEET_WITHIN)
        ones = torch.ones(1, device=group.device)
        dist.all_reduce(ones)
        group.leave()
        self.summed = int(ones.item())
        if self.summed != rank.world:
            raise HpcddpError(f"an all-reduce of ones over {rank.world} ranks gave {self.summed}")


def _hosts(found: Sequence[SmokeFindings], *, readable: bool) -> list[str]:
    return list(dict.fromkeys(each.host for each in found if each.data_seen is readable))


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
