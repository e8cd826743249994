"""The code that travels with jobs."""

import ast
import os
import shutil
import stat
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from submitit.core.utils import DelayedSubmission

from hpcddp.core.errors import UsageError
from hpcddp.core.launcher import call
from hpcddp.core.run_root import Study
from hpcddp.submit.snapshot import PACKAGE, take_snapshot

WHERE = """
import hpcddp, submitit, cloudpickle, typing_extensions, os, sys

def report(spec):
    files = [m.__file__ for m in (hpcddp, submitit, cloudpickle, typing_extensions, sys.modules[__name__])]
    print("\\n".join(os.path.dirname(os.path.relpath(f, spec["code"])) for f in files))
"""


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder a user submits from, with a module and a package of their own."""
    folder = tmp_path / "my folder"
    (folder / "mynets" / "blocks").mkdir(parents=True)
    (folder / "mynets" / "__init__.py").write_text("raise SystemExit('imported on the login side')\n")
    (folder / "mynets" / "blocks" / "res.py").write_text("")
    (folder / "mynets" / "weights.bin").write_bytes(b"0" * 100)
    (folder / "where.py").write_text(WHERE)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return Study(tmp_path / "runs" / "a study")


def names(folder: Path) -> set[str]:
    return {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}


def is_module(module: str, among: set[str]) -> bool:
    """Whether `a.b` is a module or a package of those files."""
    path = module.replace(".", "/")
    return f"{path}.py" in among or f"{path}/__init__.py" in among


def imports_of_hpcddp(file: Path, known: set[str]) -> set[str]:
    """Modules of hpcddp that a file imports; of `from package import name` the name, too, where it is a module of `known`."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {name for name in found if name.split(".")[0] == "hpcddp" and is_module(name, known)}


def test_snapshot_holds_what_a_job_needs_and_no_more(study: Study, user: Path) -> None:
    held = names(take_snapshot(study, []))
    assert {"bootstrap.py", "hpcddp/core/launcher.py", "hpcddp/worker/__init__.py", "submitit/core/_submit.py"} <= held
    assert {"cloudpickle/cloudpickle.py", "typing_extensions.py"} <= held
    tops = {"bootstrap.py", "hpcddp", "submitit", "cloudpickle", "typing_extensions.py", "pynvml.py"}
    assert {name.split("/")[0] for name in held} <= tops
    assert all(name.endswith(".py") for name in held)
    modes = {stat.S_IMODE(file.stat().st_mode) for file in take_snapshot(study, []).rglob("*.py")}
    assert modes == {0o444}


def test_snapshot_holds_the_job_side_of_hpcddp(study: Study, user: Path) -> None:
    held = {name.removeprefix("hpcddp/") for name in names(take_snapshot(study, [])) if name.startswith("hpcddp/")}
    assert {name.split("/")[0] for name in held} == {"__init__.py", "backends", "core", "data", "probe", "worker"}
    names_held = {"__init__", "function_task", "hosts_run", "local_queue", "local_ranks", "local_runner", "submitit_plugin"}
    assert {name for name in held if name.startswith("backends/")} == {f"backends/{name}.py" for name in names_held}


def test_what_a_job_imports_of_hpcddp_is_in_the_snapshot(study: Study, user: Path) -> None:
    """Wherever in a module an import stands: a job would find it missing hours later, in the queue's own time."""
    snapshot = take_snapshot(study, [])
    held = names(snapshot)
    known = {f"hpcddp/{name}" for name in names(PACKAGE)}
    for file in (name for name in held if name.startswith("hpcddp/")):
        missing = [module for module in imports_of_hpcddp(snapshot / file, known) if not is_module(module, held)]
        assert missing == [], file


def test_user_factories_travel_without_being_imported(study: Study, user: Path) -> None:
    held = names(take_snapshot(study, ["mynets.blocks.res:make", "where:report"]))
    assert {"mynets/__init__.py", "mynets/blocks/res.py", "where.py"} <= held
    assert "mynets/weights.bin" not in held


def test_sweep_folder_comes_before_the_current_one(study: Study, user: Path, tmp_path: Path) -> None:
    beside = tmp_path / "sweeps"
    beside.mkdir()
    (beside / "where.py").write_text("# beside the sweep\n")
    snapshot = take_snapshot(study, ["where:report"], near=[beside])
    assert (snapshot / "where.py").read_text() == "# beside the sweep\n"


def test_folder_of_results_hides_no_package(study: Study, user: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "installed" / "resnets").mkdir(parents=True)
    (tmp_path / "installed" / "resnets" / "__init__.py").write_text("")
    (tmp_path / "beside" / "resnets").mkdir(parents=True)
    (tmp_path / "beside" / "resnets" / "plot.py").write_text("")
    near = [tmp_path / "beside"]
    assert "resnets/plot.py" in names(take_snapshot(study, ["resnets.a:make"], near=near))
    monkeypatch.syspath_prepend(tmp_path / "installed")
    held = names(take_snapshot(study, ["resnets.a:make"], near=near))
    assert "resnets/__init__.py" in held
    assert "resnets/plot.py" not in held


def test_folder_of_results_is_no_module(study: Study, user: Path, tmp_path: Path) -> None:
    """The runs of a sweep that is named like its missing module would be taken for it; the error says what the folder is not."""
    (tmp_path / "beside" / "mynet" / ".code" / "abc").mkdir(parents=True)
    (tmp_path / "beside" / "mynet" / ".code" / "abc" / "bootstrap.py").touch()
    with pytest.raises(UsageError, match=r"no module `mynet`: .*/mynet holds no Python code; put mynet\.py beside the sweep"):
        take_snapshot(study, ["mynet:make"], near=[tmp_path / "beside"])


def test_compiled_packages_stay_behind(study: Study, user: Path) -> None:
    """Half a package would hide the compute environment's own: torchvision is not copied."""
    with pytest.raises(UsageError, match="no module `nosuchnets`"):
        take_snapshot(study, ["nosuchnets.a:make"])
    assert not study.code.exists()
    assert not [name for name in names(take_snapshot(study, ["torchvision.models:resnet18"])) if name.startswith("torchvision")]


def test_same_code_same_folder_other_code_another(study: Study, user: Path) -> None:
    """The folder's name is the content: taken twice it is one, after an edit it is a second and the first is as it was."""
    first = take_snapshot(study, ["where:report"])
    assert take_snapshot(study, ["where:report"]) == first
    (user / "where.py").write_text("# edited\n")
    second = take_snapshot(study, ["where:report"])
    assert second != first
    assert (first / "where.py").read_text() == WHERE
    assert sorted(path.name for path in study.code.iterdir()) == sorted([first.name, second.name])


def test_purged_files_are_put_back(study: Study, user: Path) -> None:
    snapshot = take_snapshot(study, ["where:report"])
    before, unchanged = names(snapshot), (snapshot / "bootstrap.py").stat()
    (snapshot / "where.py").unlink()
    shutil.rmtree(snapshot / "hpcddp" / "worker")
    hidden = snapshot / "hpcddp" / "core" / ".nfs0001"  # as a file server keeps a file that is open
    (snapshot / "hpcddp" / "core" / "launcher.py").rename(hidden)
    assert take_snapshot(study, ["where:report"]) == snapshot
    assert names(snapshot) - before == {hidden.relative_to(snapshot).as_posix()}
    assert before <= names(snapshot)
    assert (snapshot / "where.py").read_text() == WHERE
    assert (snapshot / "bootstrap.py").stat() == unchanged


def pythons() -> list[str]:
    """This Python and, where there is one, the oldest that jobs may have."""
    older = sorted(Path(sys.base_prefix).parent.glob("3.10*/bin/python3.10"))
    return [os.path.realpath(sys.executable), *map(str, older[:1])]


@pytest.mark.parametrize("base", pythons())
@pytest.mark.parametrize("safe_path", ["", "1"])
def test_job_runs_the_snapshot_in_a_hostile_place(study: Study, user: Path, tmp_path: Path, base: str, safe_path: str) -> None:
    snapshot = take_snapshot(study, ["where:report"])
    before = names(snapshot)
    checkout = tmp_path / "checkout"
    for name in ("hpcddp", "submitit", "cloudpickle", "typing_extensions"):
        (checkout / name).mkdir(parents=True)
        (checkout / name / "__init__.py").write_text("__version__ = 'wrong'\n")
    (checkout / "sitecustomize.py").write_text("import hpcddp, typing_extensions\n")
    folder = study.jobs / "L0001"
    folder.mkdir(parents=True)
    DelayedSubmission(call, "where:report", {"code": str(snapshot)}).dump(folder / "7_submitted.pkl")
    venv.create(tmp_path / "bare", symlinks=True) if base == pythons()[0] else None
    python = tmp_path / "bare" / "bin" / "python" if base == pythons()[0] else Path(base)
    env = {"PATH": os.environ["PATH"], "SUBMITIT_EXECUTOR": "local", "SUBMITIT_LOCAL_JOB_ID": "7"}
    env |= {"PYTHONPATH": f"{checkout}:", **({"PYTHONSAFEPATH": safe_path} if safe_path else {})}
    command = [str(python), "-u", str(snapshot / "bootstrap.py"), str(folder)]
    done = subprocess.run(command, check=False, cwd=checkout, env=env, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    printed = [line for line in done.stdout.splitlines() if "submitit" not in line or line == "submitit"]
    assert printed == ["hpcddp", "submitit", "cloudpickle", "", ""]
    assert names(snapshot) == before


def test_module_option_runs_that_module_with_its_arguments(study: Study, user: Path) -> None:
    (user / "echo.py").write_text("import sys\nprint(sys.argv[1:], __name__)\n")
    snapshot = take_snapshot(study, ["echo:main"])
    command = [sys.executable, str(snapshot / "bootstrap.py"), "--module", "echo", "a b", "--c"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=True)
    assert done.stdout == "['a b', '--c'] __main__\n"
