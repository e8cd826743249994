"""Points that are scripts of the user's own."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path

import pytest

from hpcddp.core.errors import UsageError
from hpcddp.core.launch_record import ScriptFacts
from hpcddp.core.own_script import arguments, completed, digest_with_modules, facts_of, script_files, script_text
from hpcddp.core.point import Point, Workload, flat_keys
from hpcddp.core.point_rules import check_point

FACTS = ScriptFacts(model="train:Net", data="train:Words", precision="bf16", samples_per_step=8, iterations_per_step=4)


def point(**changes: object) -> Point:
    """A point of two ranks whose script has one argument."""
    workload = {"script": "src/train.py", "args": {"depth": 12}, **changes}
    return Point(cluster="local", workload=Workload(**workload), device="cpu")  # type: ignore[arg-type]


def test_arguments_are_words() -> None:
    """A bare flag for true, nothing for false and null, several words for a list."""
    args = {"depth": 12, "lr": 0.1, "amp": True, "plain": False, "nothing": None, "sizes": [1, 2], "name": "a b"}
    words = ["--depth", "12", "--lr", "0.1", "--amp", "--sizes", "1", "2", "--name", "a b"]
    assert arguments(Workload(script="train.py", args=args)) == words
    assert script_text(point().workload) == "train.py --depth 12"


def test_what_the_job_finds_changes_no_id() -> None:
    """Model, precision and the rest are known to the job alone: id and label are those of the sweep."""
    planned = point()
    found = completed(planned, FACTS)
    assert (found.id, found.label) == (planned.id, planned.label)
    assert found.label.startswith("n01-g1-script-")
    assert found.global_batch == 8
    assert facts_of(found.workload) == FACTS


def test_what_is_not_known_is_no_key() -> None:
    """Of a script's workload a point has the sweep's keys, and what its job found where that is known."""
    planned = {key for key in flat_keys(point()) if key.startswith("workload.")}
    assert planned == {"workload.script", "workload.args.depth", "workload.samples_per_step"}
    found = flat_keys(completed(point(), FACTS))
    assert (found["workload.precision"], found["workload.batch_per_gpu"], found["workload.accumulate"]) == ("bf16", 8, 4)
    assert "workload.optimizer.lr" not in found
    assert not any(key.startswith("workload.args") or key == "workload.script" for key in flat_keys(own_loop()))


def own_loop() -> Point:
    """A point of hpcddp's own loop."""
    return dataclasses.replace(point(), workload=Workload(model="resnet18"))


def test_arguments_are_hashed() -> None:
    """Another value, another script or another batch is another point; points are keys of mappings all the same."""
    others = [point(), point(args={"depth": 13}), point(args={}), point(script="train.py"), point(samples_per_step=8)]
    assert len({each.id for each in others}) == len(set(others)) == len(others)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"precision": "bf16"}, "workload.precision is the script's own choice. Give it as an argument"),
        ({"batch_per_gpu": 8}, "Say it in workload.samples_per_step"),
        ({"args": {"depth": {"of": 1}}}, r"workload.args.depth is \{'of': 1\}: it is text, a number"),
        ({"args": {"--depth": 1}}, "`--depth` cannot be the name of an argument"),
        ({"script": None, "model": "resnet18"}, "workload.args goes with workload.script"),
    ],
)
def test_what_a_script_cannot_have(changes: dict[str, object], message: str) -> None:
    """Each with the next step."""
    with pytest.raises(UsageError, match=message):
        check_point(point(**changes))


@pytest.mark.parametrize("measure", [{"input": "synthetic"}, {"evaluate": True}])
def test_what_only_hpcddps_own_loop_does(measure: dict[str, object]) -> None:
    """Refused with the key's name."""
    (key,) = measure
    planned = point()
    with pytest.raises(UsageError, match=rf"measure\.{key}"):
        check_point(dataclasses.replace(planned, measure=dataclasses.replace(planned.measure, **measure)))  # type: ignore[arg-type]


def test_files_of_a_script(tmp_path: Path) -> None:
    """It, what it imports beside it or beside the sweep, and what that imports; libraries and everything else stay."""
    src = tmp_path / "src"
    (src / "nets").mkdir(parents=True)
    files = {
        "src/train.py": "import torch\nimport nets.small\nfrom tools import lr\ndef late():\n    import late_one\n",
        "src/nets/__init__.py": "",
        "src/nets/small.py": "from . import other\nimport shapes\n",
        "src/tools.py": "",
        "src/unused.py": "",
        "shapes.py": "",
        "tools.py": "never = True",
        "late_one.py": "",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    found = script_files(src / "train.py", [tmp_path])
    assert set(found) == {"train.py", "nets/__init__.py", "nets/small.py", "tools.py", "shapes.py", "late_one.py"}
    assert found["tools.py"] == src / "tools.py"


def test_the_digest_is_of_all_files(tmp_path: Path) -> None:
    """Of a script by itself it is the content's, as that of a script that no sweep started."""
    script, nets = tmp_path / "train.py", tmp_path / "nets.py"
    script.write_text("import nets\n")
    assert digest_with_modules(script) == hashlib.sha256(b"import nets\n").hexdigest()[:12]
    nets.write_text("depth = 1\n")
    before = digest_with_modules(script)
    nets.write_text("depth = 2\n")
    assert digest_with_modules(script) != before


def test_a_script_that_is_no_python(tmp_path: Path) -> None:
    """Before anything is queued, with the line."""
    (tmp_path / "train.py").write_text("import torch\nfor\n")
    with pytest.raises(UsageError, match=r"train.py: no Python that can be read: .*line 2"):
        script_files(tmp_path / "train.py")
