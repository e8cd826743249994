"""What a report advises: no key has two values, everything can be run as printed, and scripts are told what they can do."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.verdicts import advice
from hpcddp.analysis.verdicts.advice import decided
from hpcddp.analysis.verdicts.context import Advice, Set, Verdict, phrase
from hpcddp.analysis.verdicts.findings import find
from hpcddp.core.point import OwnScript, Point
from hpcddp.sweep.file import read_sweep
from tests.analysis.synthetic import MS, Recorded, point, write_run, write_study

FOLDER = Path(advice.__file__).parent
OWN_SCRIPT = Path(__file__).parents[3] / "jobs/own-script.yaml"

SOURCES = {file.stem: file.read_text() for file in FOLDER.glob("*.py")}
KEYS = sorted(
    {key for text in SOURCES.values() for key in re.findall(r'"((?:workload|layout|measure|slurm)\.(?!optimizer)[\w.]+)"', text)}
)
"""Every key that the sources name."""

VALUES: dict[str, object] = {"measure.stop": "seconds", "measure.warmup": "detect", "measure.comm": "on", "measure.gc": "frozen"}
VALUES |= {
    "layout.exclusive": True,
    "layout.launcher": "torchrun",
    "layout.node_type": "a100",
    "slurm.exclude": "r001",
    "slurm.options": ["-x"],
    "slurm.srun_options": ["-x"],
}

STARTED_BY_ITSELF = replace(point(1, 2), script=OwnScript(name="train.py"))
IN_SWEEP = point(1, 2, script="train.py")


def verdict(name: str, todo: Advice, weight: float = 1.0) -> Verdict:
    return Verdict(name=name, where="at 1x2", evidence="", todo=todo, numbers={}, runs=(), weight=weight)


def said(todo: Advice, *points: Point) -> str:
    """The advice of a study with these points."""
    return decided([verdict("stalls", todo)], [], points)[0][0].advice


def test_settings_are_written_in_one_place() -> None:
    """Elsewhere they are data, or they could contradict each other."""
    assert [name for name, text in SOURCES.items() if re.search(r"`--set [^K]|repeat: \d", text) and name != "advice"] == []


def test_no_key_has_two_values() -> None:
    """The first decides, and the others refer to it, notes too; what agrees stays."""
    more, fewer = Set({"workload.loader_workers_per_rank": 7}), Set({"workload.loader_workers_per_rank": 1})
    both = Set({"layout.physical_cores_per_rank": 8, "workload.loader_workers_per_rank": 1})
    cores = Set({"layout.physical_cores_per_rank": 4})
    found = [verdict(name, phrase("so: ", each)) for name, each in (("a", more), ("b", both), ("c", cores), ("d", more))]
    verdicts, notes = decided(found, [phrase("too many: ", fewer, "."), "of nothing"], [point(1, 1)])
    assert [each.advice for each in verdicts] == [
        "so: `--set workload.loader_workers_per_rank=7`",
        "do first what the verdict `a` advises, `--set workload.loader_workers_per_rank=7`",
        "so: `--set layout.physical_cores_per_rank=4`",
        "so: `--set workload.loader_workers_per_rank=7`",
    ]
    assert notes == ["too many: do what the verdict `a` advises.", "of nothing"]


def test_what_serves_all_is_advised_to_all() -> None:
    """The most steps that anybody needs, and every host that somebody would leave out."""
    found = [verdict(str(n), phrase(Set({"measure.steps": n, "slurm.exclude": f"r{n}"}))) for n in (300, 1200, 500)]
    verdicts, notes = decided(found, [phrase(Set({"measure.steps": 100}))], [point(1, 1)])
    assert {each.advice for each in verdicts} == {"`--set measure.steps=1200 --set slurm.exclude=r300,r500,r1200`"}
    assert notes == ["`--set measure.steps=1200`"]


def test_values_are_quoted_for_a_shell() -> None:
    """As YAML reads them."""
    assert said(phrase(Set({"slurm.options": ["--hint=x"]})), point(1, 1)) == "`--set 'slurm.options=[\"--hint=x\"]'`"
    texts = {true: said(phrase(Set({"k": true})), point(1, 1)) for true in (True, 2.5, 30.0, "a b")}
    assert list(texts.values()) == ["`--set k=true`", "`--set k=2.5`", "`--set k=30`", "`--set 'k=a b'`"]


@pytest.mark.parametrize("key", KEYS)
def test_what_a_script_decides_is_no_key_of_its_sweep(key: str) -> None:
    """Neither by itself nor beside another key; what is left as a key, its sweep can have."""
    for values in ({key: VALUES.get(key, 4)}, {key: VALUES.get(key, 4), "layout.physical_cores_per_rank": 8}):
        text = said(phrase(Set(values)), IN_SWEEP)
        settings = [word for option in re.findall(r"`(--set [^`]+)`", text) for word in shlex.split(option) if "=" in word]
        read_sweep(OWN_SCRIPT, settings)
        assert not any(each.startswith(("workload.", "measure.input")) for each in settings)


@pytest.mark.parametrize("key", KEYS)
def test_what_no_sweep_has_cannot_be_set(key: str) -> None:
    """A script that was started by itself has no `--set`; hpcddp's own loops have it as it is, beside a script's, too."""
    values = phrase(Set({key: VALUES.get(key, 4), "layout.physical_cores_per_rank": 8}))
    assert "--set" not in said(values, STARTED_BY_ITSELF)
    assert said(values, point(1, 1)) == said(values, point(1, 1), IN_SWEEP)


def test_in_its_words() -> None:
    """The line to change, where there is one."""
    steps = phrase(Set({"measure.steps": 2100}), ", or ", Set({"measure.stop": "interval"}), " to go on until it is known")
    by_itself = "`measure(..., steps=2100)`, or `measure.stop: interval` in a sweep of the script to go on until it is known"
    assert said(steps, STARTED_BY_ITSELF) == by_itself
    workers = Set({"workload.loader_workers_per_rank": 4})
    assert said(phrase("take ", workers), IN_SWEEP) == "take `DataLoader(..., num_workers=4)`"
    both = phrase(Set({"layout.physical_cores_per_rank": 8, "workload.loader_workers_per_rank": 7}))
    assert said(both, IN_SWEEP) == "`DataLoader(..., num_workers=7)` with `--set layout.physical_cores_per_rank=8`"
    several = phrase(Set({"measure.warmup_steps": 500, "measure.stop": "seconds"}))
    assert said(several, STARTED_BY_ITSELF) == "`measure.warmup_steps: 500, measure.stop: seconds` in a sweep of the script"
    assert said(phrase(Set({"repeat": 6})), STARTED_BY_ITSELF) == "starting it 6 times"


def test_a_baseline_is_started_where_there_is_no_sweep(tmp_path: Path) -> None:
    """By hand, as the others were."""
    points = [replace(point(1, gpus), script=OwnScript(name="train.py")) for gpus in (2, 4)]
    study = write_study(tmp_path / "s", points)
    for each in points:
        write_run(study, each, Recorded(step_ns=100 * MS))
    (missing,) = [each for each in find(load_study(study)).verdicts if each.name == "baseline missing"]
    assert missing.evidence.endswith("against one GPU: no such run is there")
    assert (
        missing.advice == "start the script on one node with `torchrun --nproc-per-node 1`, too, and its batch per rank as it is"
    )
