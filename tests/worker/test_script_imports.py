"""What the smoke test imports of a script."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hpcddp.core.jobspec import ScriptPlace, spec_to_dict
from hpcddp.core.point import Layout, Measure, Point, Workload
from hpcddp.worker import smoke
from hpcddp.worker.script_imports import Imported, sure_imports
from tests.worker import forked, given

GUARDED = """\
import os.path, torch
from collections import abc
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    import no_such_types
try:
    import no_such_speedup
except ImportError:
    no_such_speedup = None
def main():
    import no_such_logger
with open(__file__) as file:
    import json
if __name__ == "__main__":
    import math
"""


def smoke_of(folder: Path, text: str, **modules: str) -> dict[str, Any]:
    """smoke.json of train.py on two ranks, with modules beside it."""
    for name, content in {"train": text, **modules}.items():
        (folder / f"{name}.py").write_text(content)
    point = Point(
        cluster="local",
        workload=Workload(script="train.py", args={"depth": 3}),
        layout=Layout(nodes=1, gpus_per_node=2),
        measure=Measure(telemetry_hz=0.0),
        device="cpu",
    )
    spec = given.job(folder / "study", point, script=ScriptPlace(file=str(folder / "train.py"), folder=str(folder)))
    summary: dict[str, Any] = forked.values(folder / "output", 2, smoke.run, spec_to_dict(spec))[0]
    return summary


def test_what_is_sure_to_be_imported(tmp_path: Path) -> None:
    """Nothing within a function, a condition or a try, which may well not be needed."""
    (tmp_path / "train.py").write_text(GUARDED)
    found = [(each.line, each.module, each.name) for each in sure_imports(tmp_path / "train.py")]
    assert found == [
        (1, "os.path", None),
        (1, "torch", None),
        (2, "collections", "abc"),
        (3, "typing", "TYPE_CHECKING"),
        (13, "json", None),
        (15, "math", None),
    ]
    assert Imported(1, "torch") in sure_imports(tmp_path / "train.py")


def test_what_a_run_may_go_without_is_not_sure(tmp_path: Path) -> None:
    """Where errors are suppressed, and behind a line that changes where modules are found."""
    suppressed = "with contextlib.suppress(ImportError):\n    import no_such_speedup\n"
    moved = "sys.path.insert(0, os.path.join(os.path.dirname(__file__), 'src'))\n"
    nested = "if os.path.isdir('src'):\n    sys.path.append('src')\n"
    for moves in (moved, nested):
        text = f"import contextlib, os, sys\n{suppressed}import json\n{moves}import no_such_model\n"
        (tmp_path / "train.py").write_text(text)
        assert [each.module for each in sure_imports(tmp_path / "train.py")] == ["contextlib", "os", "sys", "json"]


def test_the_missing_module_is_named(tmp_path: Path) -> None:
    """Of the script, and of a module beside it; once for all ranks of a host."""
    text = "import torch\nimport no_such_library.part\nfrom model import make\nfrom model import build\n"
    summary = smoke_of(tmp_path, text, model="import no_such_either\n")
    (host,) = {found["host"] for found in summary["ranks"]}
    missing = "ModuleNotFoundError: No module named"
    advice = "install it in the compute environment, or put it beside the script"
    assert summary["problems"] == [
        f"{host}: train.py, line 2, imports no_such_library.part: {missing} 'no_such_library': {advice}",
        f"{host}: train.py, line 3, imports model: {missing} 'no_such_either': {advice}",
    ]


def test_a_name_that_a_module_does_not_have(tmp_path: Path) -> None:
    """As with another version of a library."""
    (problem,) = smoke_of(tmp_path, "from torch.nn import Linear, NoSuchLayer\n")["problems"]
    assert "train.py, line 1, imports torch.nn: ImportError: cannot import name 'NoSuchLayer' from 'torch.nn'" in problem


def test_the_main_part_does_not_run(tmp_path: Path) -> None:
    """Modules find their rank and the script's words, as in a run."""
    text = "import setup_of_ranks\nraise RuntimeError('the training')\n"
    words = "import os, sys\nassert sys.argv[1:] == ['--depth', '3']\n"
    rank = "assert int(os.environ['RANK']) < int(os.environ['WORLD_SIZE'])\n"
    summary = smoke_of(tmp_path, text, setup_of_ranks=words + rank)
    assert (summary["ok"], summary["problems"]) == (True, [])
